"""Partitions of topics: their number, the placement of their replicas, and their ISRs.

`addition` and `removal` change the number of a topic's partitions; `refusals` decides which
requests are rejected. `assignments` checks the replicas that requests name, and `placement` places
the replicas of new partitions.

`isr` judges the ISR that a leader proposes, and `alter_partition` serves the leader's request.
`expansions` holds back ISR expansions to merge them (A11). `isr_changes` applies changes that
leaders wrote into state nodes themselves (A12, A13).
"""
