"""audit: every batch of every replica checked, replicas compared, damage named to the byte.

`auditing` is the pipeline: it lists, scans, joins, compares, and looks again. `metadata` is what a
running cluster says about its partitions.

Scan: `ranges` are the work of tasks, `spark_tasks` the jobs. `range_scan` reads a range with
`batch_checks` and `index_checks`. `kept_results` lets a stopped audit go on.

Result: `joining` makes one result of a replica's ranges, `comparing` compares replicas, `detail`
looks closer. `findings` and `reporting` are the report.
"""
