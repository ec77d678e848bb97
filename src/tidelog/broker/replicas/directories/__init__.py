"""Checks of log directories at a start, and the handling of failed, full and slow directories.

At a start, `log_dir_survey` checks all directories before the broker opens them.
`duplicate_replicas` keeps one copy of a replica that is in two directories (D6).

`failed_directories`, `full_directories` and `slow_directories` handle directories that fail, fill
up or slow down. `unfit_directories` lists replicas that should not lead.

`relinquishing` asks the controller to elect other leaders. `offline_reports` reports offline
replicas to the controller (D4, D16), and `damaged_replicas` reports damaged replicas in the same
way (V68).
"""
