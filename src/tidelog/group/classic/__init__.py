"""Membership of Kafka's classic protocol (as of 3.9): JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

`classic_group` and `member` hold the state. `joining`, `syncing`, `membership` and `rebalancing`
implement the protocol. `waits` has the requests in which members wait, with their timers. The
committed offsets are outside this package (`tidelog.group.group`), but the group decides whether a
client may commit.
"""
