"""The replicas of this broker: their logs, their roles, and the requests that wait on replicas.

Begin with `partition`: one replica, and the planned appends of all replicas. `hosted_partitions`
finds replicas by name, and `broker_log_dirs` has their directories. A role uses the services of
`context`.

`role` has the roles of a replica without a leadership: none, follower, and the base class of all
roles. `leader_role` is the leader's role, and `leader_effects` carries out the leader's decisions.
`role_changes` gives a replica its next role, and `role_traces` reports that role.

`purgatory` holds waiting requests. `throttles` has both sides of the replication throttle (R15).

`late_appends` holds appends whose batch a thread checks first. `early_batches` notes batches that
were refused because the replica did not exist yet. `leader_syncs` does group commit for
`flush.before.ack` (V69).

`isr_change_queue` queues the ISR changes that leaders propose. `takeovers` watches new leaderships
until clients have recovered, and `unclean_elections` reports the data at risk.

`log_bytes` computes the bytes of a log before or after an offset. `topic_meters` counts the traffic
of topics, and `reassignment_meters` the bytes that reassignments copy (R16).
"""
