"""Decisions of the coordinator of consumer groups (Kafka's classic protocol, as of 3.9).

This package is pure: no I/O, no clock (time is an argument), no logging, no randomness. A
`GroupPartition` coordinates the groups of one partition of `__consumer_offsets`. The broker loads a
`GroupPartition` from the log, passes requests to it, and carries out its effects
(`core.coordinator_shard`).

Each request that the broker passes on concerns one group (`asked`): the broker splits
DescribeGroups, DeleteGroups and batched OffsetFetch requests by group, and combines the answers.
For ListGroups, the broker combines the results of `list_groups()` of every partition, and responds
COORDINATOR_LOAD_IN_PROGRESS while a partition loads. The broker reports an append as overdue after
`offsets.commit.timeout.ms`, and calls `expire_offsets(now)` every
`offsets.retention.check.interval.ms`. The broker calls `topics_deleted(names, now)` and
`partitions_removed(partitions, now)` when it learns of a deleted topic or a removed partition.

A coordinator changes durable state (offsets, assignments, ids of static members, deletions) only
when the record of the change is committed, by the same code with which it loads records. As in
Kafka, joins under way are not recorded. If another broker becomes the coordinator, joins under way
are lost, and members join again.

Except `classic`, all modules of this package serve groups of every protocol. `asked`, `records`,
`timers` and `settings` define requests, records, timers and settings. `group` has the committed
offsets of a group, and the interface to its members. `sessions` has the sessions of members, and
`turn` collects the effects of one request or event. `offsets`, `forgetting` and `listing` serve
requests about offsets and about whole groups, and `settling` handles the outcome of an append.
`partition` has the coordinator of one partition. The coordinator uses the other modules, and passes
requests of members to the protocol of their group.

`classic` is the only protocol of membership so far. The next generation of Kafka's protocol
(KIP-848) will be a package beside `classic`, with its own kind of group.
"""
