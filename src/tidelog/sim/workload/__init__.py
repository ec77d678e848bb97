"""Protocol clients of a simulated cluster, written against the ports and the wire codec.

Each client is a node of the world: its requests travel the simulated network. What they ask for and
are told goes into the history.
"""
