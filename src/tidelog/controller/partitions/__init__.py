"""Partitions of topics: more of them, fewer of them, where their replicas go, and their ISRs.

`addition` and `removal` change how many a topic has, `refusals` says which requests cannot be done.
`placement` and `assignments` say where replicas go. `isr` judges the ISR that a leader proposes,
`alter_partition` serves its request.
"""
