"""Reassignments of partitions to other brokers (KIP-455): asked for, carried through, ended.

`requests` serves clients and the administrator's node, `targets` says which targets are refused and
why. `progress` begins, completes and ends reassignments in a decision, `transitions` derives what
one partition's replicas and state are next.
"""
