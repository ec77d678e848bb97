"""`readStream.format("tidelog")`: offsets, admission, changes of topics, lag, group commits.

This module imports nothing, because Spark loads the reader only for a query that streams.

`stream_reader` is the reader that Spark calls. `starts` decides where a query starts, and
`offset_json` is the form of its offsets. `stream_cluster` is the cluster as the stream sees it, and
`log_changes` detects new, deleted, recreated and truncated partitions. `arrivals` waits for
records, and `admission` bounds a micro-batch. `task_packing` makes the tasks of a micro-batch, and
`stream_tasks` runs them. `lag` and `group_commits` show a query's progress to other tools.
"""
