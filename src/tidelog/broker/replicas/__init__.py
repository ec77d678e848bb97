"""The replicas of this broker: their roles, the commands that change these, and replication.

A `Partition` joins a log with the role that the pure decisions of `tidelog.replication` give it.
`replica_set` holds all partitions of the broker and applies the controller's commands.

Five rooms hold the parts. Each imports those before it only, and `isr`, `fetching` and `placement`
do not know each other.

Begin with `hosting`: the replicas, their roles and appends, and the requests that wait on them.

`isr` sends ISR changes to the controller, or writes them into the store. `fetching` has the fetches
that this broker serves and sends. `placement` chooses the log directory of a replica, and moves
replicas to other directories (D2, D11).

`directories` looks after log directories at a start and in trouble.

On the rooms stand `upkeep` (periodic work) and `replica_set`. `commands` executes LeaderAndIsr and
StopReplica. `stray_recovery` lists, deletes and restores strays (V35).

For all rooms: `metrics`, and `command_requests`, which requests all commands again.
"""
