"""audit: checks of every batch of every replica, and comparisons of replicas.

`auditing` is the pipeline: list, scan, join, compare, repeat. `metadata` asks a running cluster
about its partitions.

`ranges` are the byte ranges that tasks scan, and `spark_tasks` runs the tasks on Spark.
`range_scan` reads a range with `batch_checks` and `index_checks`. `kept_results` lets a stopped
audit continue.

`joining` makes one result from the results of a replica's ranges, `comparing` compares replicas,
`detail` compares single records. `findings` and `reporting` are the report.
"""
