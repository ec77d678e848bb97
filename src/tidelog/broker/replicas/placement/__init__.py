"""The choice of the log directory of a new replica, and moves between log directories.

`log_dir_placement` chooses the directory of a new replica (D2).

`directory_move` moves one replica between directories, and `directory_moves` has all moves of the
broker; `move_pace` limits them (D11). `planned_directory_moves` starts the moves of a plan, which
`directory_drains` (D12) or `directory_balance` (D15) makes.
"""
