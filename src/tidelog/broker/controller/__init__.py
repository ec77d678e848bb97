"""The shell of the cluster's controller on this broker (V1-V6).

The shell races for the controller's node and reads the state of the cluster from the metadata
store. `tidelog.controller` decides. The shell writes the decisions and sends the commands to all
brokers.
"""
