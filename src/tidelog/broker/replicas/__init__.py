"""The replicas of this broker: their roles, the commands that change these, and replication.

A `Partition` joins a log with the role that the pure decisions of `tidelog.replication` give it.
`replica_set` holds all partitions of the broker and applies the controller's commands.

One replica: `partition`, with the services of `context` and the views of `hosted_replica`. Its
`role` is none, follower or leader. `leader_role` is the leader's, `leader_effects` carries out its
decisions, and `role_traces` reports each change of role.

Commands: `commands` executes LeaderAndIsr and StopReplica, `command_requests` requests all commands
again.

Appends: `planned_appends` (from the plan to the end of a read event) and `late_appends` (batches
that a thread checks first). `early_batches` are refused ones for replicas that do not exist yet.
`leader_syncs` is group commit with `flush.before.ack` (V69).

Fetches that this broker serves: `delayed_fetch` (one fetch), `fetch_sessions` (KIP-227),
`fetch_checks` (may it read here). `fetch_growth` is what a fetch can still get, `fetch_reads` its
reads from the disk. `purgatory` holds the requests that wait on a partition.

Fetches that this broker sends: `fetchers`, each with `followed_partition` for every partition that
it copies.

ISR changes: `isr_changes` is the queue as leaders see it. `alter_partition_manager` sends the
changes to the controller in the form of `alter_partition_requests`. `state_node_writer` writes them
into state nodes below protocol level 2.7. `foreign_isr_changes` handles changes that the leader did
not request (A3, A9). `frozen_watermarks` reports partitions that commit nothing because other
replicas are eligible (E1).

Leaderships that begin or end: `takeovers` (new leaderships until clients have recovered),
`unclean_elections` (the data at risk), `relinquishing` (leaderships to give up).

Throttling of replication (R15): `throttles`, `throttled_reads`, `throttle_watch`. Reassignments are
measured by `reassignment_meters`.

Start: `log_dir_survey` looks at all directories before any is opened, `duplicate_replicas` keeps
one of two copies (D6). `log_dir_placement` chooses the directory of a new replica. `stray_recovery`
lists, deletes and restores strays (V35).

Moves between directories (D11): `directory_moves` (all of the broker) and `directory_move` (one
replica). `planned_directory_moves` begins the moves of a plan: of `directory_drains` (D12) or
`directory_balance` (D15).

Directories and replicas in trouble: `failed_directories`, `full_directories`, `slow_directories`
and `damaged_replicas`. `unfit_directories` lists the replicas that should lead nothing.
`offline_reports` sends offline replicas to the controller (D4, D16).

Over time: `upkeep` (periodic work), `log_bytes` (bytes on one side of an offset), `metrics`.
"""
