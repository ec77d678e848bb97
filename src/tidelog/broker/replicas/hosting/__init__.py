"""The replicas of this broker: their logs, their roles, and the requests that wait on them.

Begin with `partition`: one replica, and the planned appends of all. `hosted_partitions` finds
replicas by name, and `broker_log_dirs` has their directories. A role uses the services of
`context`.

Roles: `role` is none or follower, and their base. `leader_role` is the leader's, and
`leader_effects` carries out its decisions. `role_changes` gives a replica its next role, and
`role_traces` reports it.

Waiting requests: `purgatory`. Throttling of replication (R15): `throttles` has both sides.

Appends: `late_appends` are batches that a thread checks first. `early_batches` are refused ones for
replicas that do not exist yet. `leader_syncs` is group commit with `flush.before.ack` (V69).

ISR changes on their way: `isr_change_queue`. Leaderships that begin: `takeovers` (watched until
clients have recovered) and `unclean_elections` (the data at risk).

Measures: `log_bytes` (bytes on one side of an offset) and `reassignment_meters` (R16).
"""
