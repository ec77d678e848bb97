"""Invariants of every run, most of them checked after every event.

No checker uses the code that it judges, except to ask a broker for its claims: what the broker
states about its replicas. `checker` has the base class of all checkers, and the part of a run that
they see.

Replication: `replication_checker` compares logs, claims, and the partition states in the metadata
store (published state, `sim/observed`). Further checkers of replication: `in_sync_checker`,
`synced_checker`, `fetch_wait_checker`. `data_losses` records which replicas have lost data.

Clients: `client_checker` compares responses with committed records; at the end of a run,
`history_checker` judges all operations of the clients. Further checkers of clients:
`group_checker`, `answer_checker`, `connection_checker`.

The controller and its commands: `command_checker`, `event_checker`, `reassignment_checker`.

Disks: `storage_checker` reads the files independently of the broker's code. Further checkers of
disks: `log_dir_checker`, `directory_move_checker`.
"""
