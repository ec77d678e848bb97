"""One replica of this broker: its log, its role, and the requests that wait on it.

Begin with `partition`. It uses the services of `context`, and its parts see it by the views of
`hosted_replica`.

Roles: `role` is none, follower or leader. `leader_role` is the leader's, and `leader_effects`
carries out its decisions. `role_traces` reports each change of role.

Waiting requests: `purgatory`.

Appends: `planned_appends` (from the plan to the end of a read event) and `late_appends` (batches
that a thread checks first). `early_batches` are refused ones for replicas that do not exist yet.
`leader_syncs` is group commit with `flush.before.ack` (V69).

Leaderships that begin: `takeovers` (watched until clients have recovered) and `unclean_elections`
(the data at risk).

Measures: `log_bytes` (bytes on one side of an offset) and `reassignment_meters` (R16).
"""
