"""Partition logs in Kafka's file formats: segments, indexes and checkpoints in log directories.

Every file operation runs on a lane, the queue of one directory's operations (`core.ports.Lane`).
This package reads clocks only through their port, does not use the wire protocol, and decides
nothing about replication.

One directory: `log_directory` opens and closes a log directory, and keeps its replicas.
`directory_state` is the state that all logs of the directory share. `replica_directories`,
`new_replicas`, `replica_departures` and `stray_replicas` create and remove replicas. `recovery`
loads one replica's directory, and `recovery_walk` checks the order of its batches.

One log: `partition_log` with its settings (`config`) and its state (`log_state`). Appends:
`append_validation` checks batches, `loop_budget` limits the checks on the event loop, and
`append_plan` holds a checked append until `append_queue` has written it. `refused_batches`
remembers batches that the broker refused, so that idempotent producers resend them in order.
Operations of a log other than appends: `log_reads`, `flush`, `retention` and `truncation`.

Compaction: `compaction` decides which records stay; `log_cleaner` chooses a log and rewrites it.

Files and formats: `segment`, `index`, `scan`, `segment_files`, `segment_reads`, `producer_state`,
`checkpoints`, `directory_files`, `names`, `open_files`.

Several directories: `log_dir_choice` (new replicas), `log_dir_drain` and `log_dir_balance` (moves,
based on the facts in `log_dir_plan`). `known_log_dirs` remembers the broker's directories and the
size of their replicas. `owners` reads which cluster and broker own a directory, and
`directory_stamps` writes their ids into the directory (E8).

Moves between directories (D11): `future_logs` (the copies), `replacement` (the copy replaces the
log), `held_requests` (flushes and truncations that wait for the replacement), `moved_from` (which
of two copies is newer).

Directories in trouble: `directory_disk` (failed, D1), `free_space` and `directory_space` (full,
D14), `slow_directories` and `directory_speed` (slow, D13).
"""
