"""The log directory of each replica: chosen when it is created, changed by moves.

`log_dir_placement` chooses the directory of a new replica (D2).

Moves (D11): `directory_move` (one replica) and `directory_moves` (all of the broker), at the pace
of `move_pace`.
`planned_directory_moves` begins the moves of a plan: of `directory_drains` (D12) or
`directory_balance` (D15).
"""
