"""This broker as a member of the cluster: its session, its registration, and its departure.

Also the requests of a member to the controller on its own behalf: producer ids, and topics that are
created on first use.
"""
