"""Decisions of the coordinator of consumer groups (Kafka's classic protocol, as of 3.9).

Pure: no I/O, no clock (time is an argument), no logging, no randomness. A broker drives it so:

1. `GroupPartitions` knows which partitions of `__consumer_offsets` this broker coordinates. On
   becoming leader the broker calls `load(partition, leader_epoch)`, then `replay` with every record
   from the log start to the log end in order. By G1 that is the end, not the high watermark;
   control records and keys of other kinds are left out. It calls `loaded(now)` when the high
   watermark has reached that end. Otherwise a client could see uncommitted state, which the next
   failover might lose. On losing the leadership it calls `unload(partition, leader_epoch)` with the
   epoch that it led, and carries out the effects. `coordinator_of` is None: answer NOT_COORDINATOR.
2. A request is `ask(asked, now)`, one group at a time. For DescribeGroups, DeleteGroups and batched
   OffsetFetch the API asks group by group and joins the answers. Each ticket is answered by
   exactly one `Reply`, of this call or of a later one. A JoinGroup brings a fresh uuid. ListGroups
   is `list_groups` of every partition, with COORDINATOR_LOAD_IN_PROGRESS if one is still loading.
3. Effects are carried out in their order.
   `Reply`: answer the request.
   `SetTimer`, `CancelTimer`: keep one timer for each `TimerName`. When it fires, call
   `timer_fired(name, deadline_ms, now)` with the deadline to which it was set. It must not fire
   early by the clock of `now`.
   `Append`: append the records as one batch with acks=all, under the leader epoch named and no
   other, in the order of the effects. Then report exactly one outcome, by the append's number.
   `committed`: the high watermark has passed the batch; reported in the order of the log. `failed`:
   the batch was rejected; its records are not in the log. Before that, report `timed_out` at most
   once, for a batch that is in the log. Its causes are that the batch was not replicated within
   `offsets.commit.timeout.ms` (REQUEST_TIMED_OUT), or that the ISR is too small
   (NOT_ENOUGH_REPLICAS_AFTER_APPEND). Report `failed` after all effects of the call, so that
   effects never nest. After `unload` no report is needed.
4. `expire_offsets(now)` is due every `offsets.retention.check.interval.ms`. The broker calls
   `topics_deleted(names, now)` and `partitions_removed(partitions, now)` when it learns of either.

State that another coordinator would have to know changes only when its record is committed, by the
same code as in a reload. Such state is offsets, assignments, ids of static members, deletions.
Joins under way are in no record, as in Kafka. They are lost with the coordinator, and members join
again.

Modules: `requests`, `answers`, `records` and `effects` are the values at the border. `group` and
`member` hold the state. `joining`, `syncing`, `membership` and `rebalancing` are the protocol.
`offsets`, `forgetting` and `listing` serve the other requests. `settling` holds what follows an
append. `partition` puts it together.
"""
