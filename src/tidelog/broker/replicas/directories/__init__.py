"""Log directories at a start and in trouble, and the leaderships that they cost.

Start: `log_dir_survey` looks at all directories before any is opened, `duplicate_replicas` keeps
one of two copies (D6).

Trouble: `failed_directories`, `full_directories`, `slow_directories`. `unfit_directories` lists the
replicas that should lead nothing.

What the controller learns: `relinquishing` asks for other leaders. `offline_reports` sends offline
replicas (D4, D16); `damaged_replicas` sends damaged ones the same way (V68).
"""
