"""Partitions of topics: their number, the placement of their replicas, and their ISRs.

`addition` and `removal` change how many a topic has; `refusals` decides which requests are
rejected. `placement` and `assignments` decide where replicas go. `isr` judges the ISR that a leader
proposes, `alter_partition` serves its request.
"""
