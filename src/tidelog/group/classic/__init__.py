"""Membership of Kafka's classic protocol (as of 3.9): JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

`classic_group` and `member` hold the state. `joining`, `syncing`, `membership` and `rebalancing`
implement the protocol, and `waits` has the requests in which members wait, with their timers.
Offsets are kept outside this package: the group decides whether a commit is allowed
(`tidelog.group.group`).
"""
