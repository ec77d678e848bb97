"""The replicas of this broker: their roles, the commands that change the roles, and replication.

A `Partition` has a log and a role (leader or follower), whose decisions `tidelog.replication`
makes. `replica_set` holds all partitions of the broker and applies the controller's commands.

Five subpackages hold the parts of this package. Each subpackage imports only subpackages that this
text names earlier; `isr`, `fetching` and `placement` do not import each other.

Begin with `hosting`: the replicas, their roles and appends, and the requests that wait on replicas.

`isr` sends ISR changes to the controller, or writes them into the store. `fetching` serves and
sends fetches. `placement` chooses the log directory of a replica, and moves replicas to other
directories (D2, D11).

`directories` checks log directories at start, and handles directories that fail, fill up or slow
down.

`upkeep` (periodic work) and `replica_set` use all subpackages. `commands` executes LeaderAndIsr and
StopReplica. `stray_recovery` lists, deletes and restores strays: replicas that the broker set
aside, because the controller's commands no longer list them (V35).

`metrics` declares the metrics of all subpackages, and `replica_readings` reads the metrics of
replicas. `command_requests` asks the controller to send all commands again.
"""
