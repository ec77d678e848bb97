"""Invariants of every run, checked independently of the cluster, most of them after every event.

No checker uses the code that it judges, except to ask a broker for its claims. `checker` has the
base class of all checkers, and their view of the run.

Replication: `replication_checker` compares logs, claims and published state (`sim/observed`).
Further checkers of replication: `in_sync_checker`, `synced_checker`, `fetch_wait_checker`.
`data_losses` states which replicas have lost data.

Clients: `client_checker` compares responses with committed records, `history_checker` judges the
whole history. Further checkers of clients: `group_checker`, `answer_checker`, `connection_checker`.

The controller and its commands: `command_checker`, `event_checker`, `reassignment_checker`.

Disks: `storage_checker` reads the files independently of the broker's code. Further checkers of
disks: `log_dir_checker`, `directory_move_checker`.
"""
