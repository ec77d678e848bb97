"""Protocol clients of a simulated cluster, written against the ports and the wire codec.

Each client is a node of the simulator, so its requests travel through the simulated network. The
history records requests and responses.

`client` is a client node, `work` starts all clients of a run.

Clients of every run: `administrator`, `partition_producers`, `shared_producers`,
`partition_consumers`, `group_clients`. Some runs have `churn`, `leader_lookups` or `topic_flushes`.

Churn is what administrators and clients change while faults happen. `churning` declares it,
`churn_kinds` registers all kinds.

Topics and records: `topic_churn`, `record_churn`, `untimed_churn`, `edit_churn`, `topic_mishaps`.
Clients: `client_churn`, `crowd_churn`, `reread_churn`, `view_churn`, `lookup_churn`,
`description_churn`. Groups: `offset_churn`, `recreated_offset_churn`.

Replicas: `leader_churn`, `move_churn`, `queue_churn`, `throttle_churn`, `directory_churn`,
`drain_churn`.
"""
