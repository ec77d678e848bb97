"""Reassignments of partitions to other brokers (KIP-455): requested, carried through, ended.

Requests: `requests` serves clients and `stored` serves nodes of the store, which `stored_nodes`
reads. `targets` decides which targets are rejected and why. `listing` lists the reassignments,
`cancelling` cancels all of them.

Decisions: `queueing` chooses which reassignments begin (R8, R9). `progress` begins, advances and
ends them. `pausing` stops a reassignment that hurts its partition. `transitions` derives the next
replicas and the next state of one partition.
"""
