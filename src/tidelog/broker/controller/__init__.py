"""The shell of the cluster's controller, as far as it is this broker (V1-V6).

It races for the controller's node, reads the state of the cluster from the metadata store, lets
`tidelog.controller` decide, writes the decisions, and sends the commands to all brokers.
"""
