"""The log: partitions, segments, indexes, checkpoints, recovery: Kafka's files through lanes.

Every file operation is an operation on a lane (`core.ports.Lane`). Nothing here reads a clock but
through its port, knows the wire protocol, or decides about replication.

One directory: `log_directory` opens it, keeps its replicas and closes it. `directory_state` is
shared by all its logs. Replicas come and go with `replica_directories`, `new_replicas`,
`replica_departures` and `stray_replicas`. `recovery` loads one replica's directory, and
`recovery_walk` judges its batches.

One log: `partition_log` with `config`, its state in `log_state`. Appends: `append_validation` under
a `loop_budget`, then `append_plan` and `append_queue`; `refused_batches` keeps sequence numbers in
order. The other operations: `log_reads`, `flush`, `retention` and `truncation`.

Compaction: `compaction` decides which records stay; `log_cleaner` chooses a log and rewrites it.

Files and formats: `segment`, `index`, `scan`, `segment_files`, `segment_reads`, `producer_state`,
`checkpoints`, `directory_files`, `names`, `open_files`.

Several directories: `log_dir_choice` (new replicas), `log_dir_drain` and `log_dir_balance` (moves,
in terms of `log_dir_plan`). `known_log_dirs` remembers what the directories held. `owners` and
`directory_stamps` record whose they are (E8).

Moves between directories (D11): `future_logs` (copies), `replacement` (of the log by its copy),
`held_requests` (meanwhile), `moved_from` (which of two copies is the newer one).

Directories in trouble: `directory_disk` (failed, D1), `free_space` and `directory_space` (full,
D14), `slow_directories` and `directory_speed` (slow, D13).
"""
