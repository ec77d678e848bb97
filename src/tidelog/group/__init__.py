"""Decisions of the coordinator of consumer groups (Kafka's classic protocol, as of 3.9).

Pure: no I/O, no clock (time is an argument), no logging, no randomness. A `GroupPartition` is a
shard as `core.coordinator_shard` describes it: the broker loads it, asks it, and carries out its
effects. Beyond that:

1. A request is asked one group at a time. For DescribeGroups, DeleteGroups and batched OffsetFetch
   the API asks group by group and joins the answers. A JoinGroup brings a fresh uuid. ListGroups is
   `list_groups` of every partition, with COORDINATOR_LOAD_IN_PROGRESS if one is still loading.
2. An append is overdue after `offsets.commit.timeout.ms`.
3. `expire_offsets(now)` is due every `offsets.retention.check.interval.ms`. The broker calls
   `topics_deleted(names, now)` and `partitions_removed(partitions, now)` when it learns of either.

State that another coordinator would have to know changes only when its record is committed, by the
same code as in a reload. Such state is offsets, assignments, ids of static members, deletions.
Joins under way are in no record, as in Kafka. They are lost with the coordinator, and members join
again.

Modules: `asked`, `records` and `timers` are the values at the border. `group` and
`member` hold the state. `joining`, `syncing`, `membership` and `rebalancing` are the protocol.
`offsets`, `forgetting` and `listing` serve the other requests. `settling` holds what follows an
append. `partition` puts it together.
"""
