"""Coordinators: the partitions of internal topics that this broker coordinates, and their records.

`runtime` is the shell of every kind of coordinator. There decisions meet the log, the clock and the
connections; `core.coordinator_shard` says how a kind decides. Its parts: `shards` (which partitions
are led, and under which leader epoch), `led_partition` (timers, records to the log, outcomes back),
`loading` (the log to the decisions).

The one kind is `group_coordinators`, for `tidelog.group`: with `offset_records` (bytes) and
`recreated_topics` (offsets of topics that ended before a load).
"""
