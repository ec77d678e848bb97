"""`readStream.format("tidelog")`: offsets, admission, changes of topics, lag, group commits.

Nothing is imported here: Spark loads the reader only for a query that streams.

`stream_reader` is the reader that Spark drives. `starts` decides where a query starts,
`offset_json` is the form of its offsets. `stream_cluster` is the cluster as the stream sees it,
`log_changes` what became of its partitions. `arrivals` waits for records, `admission` bounds a
micro-batch. `task_packing` makes its tasks, `stream_tasks` are the tasks. `lag` and `group_commits`
show the progress to others.
"""
