"""Coordinators: the partitions of internal topics that this broker decides for, and their records.

The decisions are `tidelog.group`'s; here they meet the log, the clock and the connections. Modules:
`groups` (which partitions, requests, timers), `appends` (records to the log, outcomes back),
`loading` (the log to the decisions), `offset_records` (bytes).
"""
