"""Decisions of the coordinator of consumer groups (Kafka's classic protocol, as of 3.9).

Pure: no I/O, no clock (time is an argument), no logging, no randomness. What a broker does to
drive it:

1. `GroupPartitions` knows which partitions of `__consumer_offsets` this broker coordinates. On
   becoming leader: `load(partition, leader_epoch)`, then `replay` of every record from the log
   start to the log end in order (G1: the end, not the high watermark; control records and keys of
   other kinds are left out), then `loaded(now)` when the high watermark has reached that end: what
   is not committed could be told to a client and be gone with the next failover. On losing it:
   `unload(partition, leader_epoch)` with the epoch that was led, its effects carried out. None from
   `coordinator_of`: answer NOT_COORDINATOR.
2. A request is `ask(asked, now)`, one group at a time: DescribeGroups, DeleteGroups and batched
   OffsetFetch are asked group by group and put together by the API. Each ticket is answered by
   exactly one `Reply`, of this call or of a later one. A JoinGroup brings a fresh uuid. ListGroups
   is `list_groups` of every partition, with COORDINATOR_LOAD_IN_PROGRESS if one is still loading.
3. Effects are carried out in their order.
   `Reply`: answer the request.
   `SetTimer`, `CancelTimer`: keep one timer for each `TimerName`; when it fires, call
   `timer_fired(name, deadline_ms, now)` with the deadline that it was set to. It must not fire
   early by the clock of `now`.
   `Append`: append the records as one batch with acks=all, under the leader epoch named and no
   other, in the order of the effects. Then report, by the append's number, exactly one of
   `committed` (the high watermark has passed the batch; in the order of the log) and `failed` (it
   was refused; the records are not in the log). Before that, at most once, `timed_out`: the batch
   is in the log and was not replicated within `offsets.commit.timeout.ms` (REQUEST_TIMED_OUT) or
   the ISR is too small (NOT_ENOUGH_REPLICAS_AFTER_APPEND). Report `failed` after the effects of
   the call have all been carried out, so that effects never nest. After `unload` nothing needs to
   be reported.
4. `expire_offsets(now)` every `offsets.retention.check.interval.ms`; `topics_deleted(names, now)`
   and `partitions_removed(partitions, now)` when the broker learns of it.

State that another coordinator would have to know changes only when its record is committed, by the
same code as in a reload: offsets, assignments, the ids of static members, deletions. Joins under
way are in no record, as in Kafka: they are lost with the coordinator and members join again.

Modules: `requests`, `answers`, `records`, `effects` are the values at the border; `group` and
`member` the state; `joining`, `syncing`, `membership`, `rebalancing` the protocol; `offsets`,
`forgetting`, `listing` the rest; `settling` what follows an append; `partition` puts it together.
"""
