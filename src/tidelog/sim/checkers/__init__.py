"""Invariants of every run, checked independently of the cluster, most of them after every event.

No checker uses the code that it judges, except to ask a broker for its claims. `checker` has what
all of them share.

Replication: `replication_checker` compares what a run shows (`sim/observed`). Beside it:
`in_sync_checker`, `synced_checker`, `fetch_wait_checker`. `data_losses` states which replicas have
lost data.

Clients: `client_checker` compares responses with committed records, `history_checker` judges the
whole history. Also `group_checker`, `answer_checker`, `connection_checker`.

The controller and its commands: `command_checker`, `event_checker`, `reassignment_checker`.

Disks: `storage_checker` reads files on its own. Also `log_dir_checker`, `directory_move_checker`.
"""
