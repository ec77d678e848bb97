"""Decisions of the coordinator of consumer groups (Kafka's classic protocol, as of 3.9).

Pure: no I/O, no clock (time is an argument), no logging, no randomness. A `GroupPartition` is a
shard as `core.coordinator_shard` describes it: the broker loads it, asks it, and carries out its
effects. Beyond that:

1. A request is asked one group at a time (`asked`). For DescribeGroups, DeleteGroups and batched
   OffsetFetch the API asks group by group and joins the answers. ListGroups is `list_groups()` of
   every partition, with COORDINATOR_LOAD_IN_PROGRESS if one is still loading.
2. An append is overdue after `offsets.commit.timeout.ms`.
3. `expire_offsets(now)` is due every `offsets.retention.check.interval.ms`. The broker calls
   `topics_deleted(names, now)` and `partitions_removed(partitions, now)` when it learns of either.

State that another coordinator would have to know changes only when its record is committed, by the
same code as in a reload. Such state is offsets, assignments, ids of static members, deletions.
Joins under way are in no record, as in Kafka. They are lost with the coordinator, and members join
again.

Shared by groups of every protocol: `asked`, `records`, `timers` and `settings` are the values at
the border. `group` is what offsets see of a group, `sessions` and `turn` what its members need.
`offsets`, `forgetting` and `listing` serve requests about offsets and about whole groups,
`settling` what follows an append. `partition` puts it together, and passes the requests of members
on to their protocol.

Protocols of membership: `classic`. The next generation of Kafka's protocol (KIP-848) will be a
package beside it, with a group of its own kind; it is not there yet.
"""
