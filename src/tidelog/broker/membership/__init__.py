"""This broker as a member of the cluster: its session, its registration, and its departure.

Also what a member asks the controller for on its own behalf: producer ids, and topics that are
created on first use.
"""
