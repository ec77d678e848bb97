"""Membership of Kafka's classic protocol (as of 3.9): JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

`classic_group` and `member` hold the state. `joining`, `syncing`, `membership` and `rebalancing`
are the protocol, `waits` are its waiting requests and their timers. Offsets are not here: each
commit asks the group (`tidelog.group.group`).
"""
