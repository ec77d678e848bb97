"""Protocol clients of a simulated cluster, written against the ports and the wire codec.

Each client is a node of the simulator: its requests travel the simulated network. What clients
ask for, and the responses, go into the history.
"""
