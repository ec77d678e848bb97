"""Clients of a simulated cluster. They use the ports of `core.ports` and the messages of
`tidelog.wire`.

Each client is a node of the simulator, so its requests travel through the simulated network. The
run's history records their requests and responses.

`client` is a client node, `work` starts all clients of a run.

Clients of every run: `administrator`, `partition_producers`, `shared_producers`,
`partition_consumers`, `group_clients`.

Churn is changes that administrators and clients make while faults happen: they create topics, move
partitions, join groups, and so on. `churning` has the base class of a kind of churn; `churn_kinds`
imports the modules below, which register their kinds.

Topics and records: `topic_churn`, `record_churn`, `edit_churn`, `topic_mishaps`. Clients:
`client_churn`, `crowd_churn`, `lookup_churn`. Groups: `offset_churn`.

Replicas: `leader_churn`, `move_churn`, `queue_churn`, `directory_churn`.
"""
