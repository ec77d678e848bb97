"""Protocol clients of a simulated cluster, written against the ports and the wire codec.

Each client is a node of the simulator, so its requests travel through the simulated network. The
history records requests and responses.
"""
