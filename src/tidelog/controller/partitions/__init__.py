"""Partitions of topics: their number, the placement of their replicas, and their ISRs.

`addition` and `removal` change how many a topic has; `refusals` decides which requests are
rejected. `assignments` bounds the replicas that requests name, `placement` places those of new
partitions.

`isr` judges the ISR that a leader proposes, `alter_partition` serves its request. `expansions`
holds expansions back to merge them (A11). `isr_changes` adopts changes that leaders wrote into
state nodes themselves (A12, A13).
"""
