"""Coordinators: the partitions of internal topics that this broker coordinates, and their records.

`runtime` is the shell, the part with I/O, that every kind of coordinator shares. `runtime` connects
the decisions with the log, the clock and the connections. `core.coordinator_shard` defines how a
kind of coordinator decides. `shards` has the partitions that this broker leads, each with its
leader epoch. `led_partition` sets timers, appends records to the log and reports the outcomes.
`loading` replays the log.

`group_coordinators` has the only kind of coordinator so far, that of consumer groups
(`tidelog.group`). `offset_records` encodes and decodes the records of `__consumer_offsets`, and
`recreated_topics` handles offsets of topics that ended before a load.

`metrics` has the metrics of groups. `group_readings` reads them, and `log_ends` knows the ends of
logs for the lag.
"""
