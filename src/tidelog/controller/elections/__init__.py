"""Leader elections: which replica leads a partition next, and when the controller looks at that.

`election` derives the next published state of one partition from its `circumstances`, as a pure
function. `leaders` looks at partitions whose circumstances changed and serves ElectLeaders. `waits`
reports partitions without a leader.

`preferred` returns leaderships to preferred replicas, `balance` finds the leaderships to return.
`relinquishing` moves leaderships away from brokers that step back (F11, V68, D13, D14).

Recovery by proof (E6): `recovery` decides which member leads, `recoveries` keeps the progress.
"""
