"""Reassignments of partitions to other brokers (KIP-455): requested, carried through, ended.

`requests` serves clients and the administrator's node; `targets` decides which targets are rejected
and why. `progress` begins, completes and ends reassignments in a decision. `transitions` derives
the next replicas and the next state of one partition.
"""
