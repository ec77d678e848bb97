"""Leader elections: which replica leads a partition next, and when the controller looks at that.

`election` derives the next published state of one partition, as a pure function. `leaders` looks at
partitions whose circumstances changed and serves ElectLeaders. `preferred` returns leaderships to
preferred replicas, `balance` finds the leaderships that are to return.
"""
