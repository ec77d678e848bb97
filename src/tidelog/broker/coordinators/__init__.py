"""Coordinators: the partitions of internal topics that this broker coordinates, and their records.

`runtime` is the part with I/O, which every kind of coordinator shares: it connects a coordinator's
decisions with the log, the clock and the connections. A shard is the object that makes the
decisions for one partition; `core.coordinator_shard` defines its interface. `shards` has the
partitions that this broker leads, each with its leader epoch. `led_partition` sets timers, appends
records to the log and reports the outcomes. `loading` replays the log.

`group_coordinators` has the only kind of coordinator so far, that of consumer groups
(`tidelog.group`). `offset_records` encodes and decodes the records of `__consumer_offsets`, and
`recreated_topics` handles the offsets of topics that were deleted before the coordinator loaded its
partition.

`transaction_records` encodes and decodes the records of `__transaction_state`; no coordinator of
transactions (`tidelog.txn`) is connected yet.

`metrics` declares the metrics of groups, and `group_readings` reads their values. `log_ends` has
the log ends from which `group_readings` computes the lag.
"""
