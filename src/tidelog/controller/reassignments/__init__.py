"""Reassignments of partitions to other brokers (KIP-455), from the request to the end.

`requests` serves the requests of clients, and `stored` the requests in nodes of the store, which
`stored_nodes` reads. `targets` decides which targets are rejected and why. `listing` lists the
reassignments, and `cancelling` cancels all reassignments.

`queueing` chooses which reassignments begin (R8, R9). `progress` begins, advances and ends
reassignments. `pausing` pauses a reassignment while too few replicas of its partition are in sync.
`transitions` derives the next replicas and the next state of one partition.
"""
