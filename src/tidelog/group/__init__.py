"""Decisions of the coordinator of consumer groups (Kafka's classic protocol, as of 3.9).

This package is pure: no I/O, no clock (time is an argument), no logging, no randomness. A
`GroupPartition` is a shard as `core.coordinator_shard` describes it: the broker loads the
partition, passes requests to it, and carries out its effects.

The broker passes requests one group at a time (`asked`): it splits DescribeGroups, DeleteGroups and
batched OffsetFetch by group, and joins the answers. For ListGroups, the broker joins
`list_groups()` of every partition, with COORDINATOR_LOAD_IN_PROGRESS while a partition loads. The
broker reports an append as overdue after `offsets.commit.timeout.ms`, and calls
`expire_offsets(now)` every `offsets.retention.check.interval.ms`. The broker calls
`topics_deleted(names, now)` and `partitions_removed(partitions, now)` when it learns of a deleted
topic or a removed partition.

A coordinator changes durable state (offsets, assignments, ids of static members, deletions) only
when the record of the change is committed, by the same code as in a reload. No record holds joins
under way, as in Kafka. If another broker becomes the coordinator, joins under way are lost, and
members join again.

Except `classic`, all modules of this package serve groups of every protocol. `asked`, `records`,
`timers` and `settings` define requests, records, timers and settings. `group` is the interface
between a group and its committed offsets; `sessions` and `turn` serve the members of groups.
`offsets`, `forgetting` and `listing` serve requests about offsets and about whole groups, and
`settling` handles the outcome of an append. `partition` is the coordinator of one partition, which
uses the other modules, and passes requests of members to the protocol of their group.

`classic` is the only protocol of membership so far. The next generation of Kafka's protocol
(KIP-848) will be a package beside `classic`, with its own kind of group.
"""
