"""Leader elections: who leads a partition next, and when that is looked at.

`election` derives the next published state of one partition, as a pure function. `leaders` looks at
partitions whose circumstances changed and serves ElectLeaders. `preferred` gives leaderships back
to preferred replicas, `balance` finds those that are to go back.
"""
