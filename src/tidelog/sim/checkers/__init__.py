"""Invariants of every run, checked independently of the cluster, most of them after every event.

No checker uses the code that it judges, except to ask a broker for its claims. `checker` has what
all of them share.

Replication: `replication_checker` compares what a run shows (`sim/observed`). Beside it:
`isr_view_checker`, `in_sync_checker`, `synced_checker`, `fetch_wait_checker`. `data_losses` states
which replicas have lost data.

Clients: `client_checker` compares responses with committed records, `history_checker` judges the
whole history. Also `group_checker`, `leader_wait_checker`, `connection_checker`, `unread_checker`.

The controller and its commands: `command_checker`, `controlled_shutdown_checker`, `event_checker`,
`answer_checker`, `redirected_move_checker`, `throttle_checker`.

Disks: `storage_checker` reads files on its own. Also `damage_checker`, `log_dir_checker`,
`directory_move_checker`, `planned_move_checker`.
"""
