"""Leader elections: which replica becomes a partition's leader, and when an election is due.

`election` derives the next published state of one partition from its `circumstances`, as a pure
function. `leaders` checks the partitions whose circumstances changed and serves ElectLeaders.
`waits` reports partitions without a leader.

`preferred` returns leaderships to preferred replicas, and `balance` finds these leaderships.
`relinquishing` elects other leaders for brokers that give up leaderships (F11, V68, D13, D14).

`recovery` compares the logs of a leaderless partition's members to find a leader ("recovery by
proof", E6), and `recoveries` keeps the progress of recoveries.
"""
