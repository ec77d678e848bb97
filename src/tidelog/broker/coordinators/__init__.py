"""Coordinators: the partitions of internal topics that this broker coordinates, and their records.

`tidelog.group` decides; here the decisions meet the log, the clock and the connections. Modules:
`group_coordinators` (partitions, requests, timers), `appends` (records to the log, outcomes back),
`loading` (the log to the decisions), `offset_records` (bytes).
"""
