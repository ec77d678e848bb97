"""The log: partitions, segments, indexes, checkpoints, recovery: Kafka's files through lanes.

`log_directory` opens a directory (`recovery`), makes its replicas (`replica_directories`), lets
them leave (`replica_departures`, `stray_replicas`) and closes it. `partition_log` is the log of one
replica: state in `log_state`, operations in `append_validation`, `append_queue`, `log_reads`,
`flush`, `retention`, `truncation` and `log_cleaner`. The logs of one directory share
`directory_state`. Below are files and formats: `segment`, `index`, `scan`, `segment_files`,
`segment_reads`, `producer_state`, `checkpoints`, `directory_files`, `names`.

Every file operation is an operation on a lane (`core.ports.Lane`); nothing here reads a clock but
through its port, knows the wire protocol, or decides about replication. Imports have no circle.
"""
