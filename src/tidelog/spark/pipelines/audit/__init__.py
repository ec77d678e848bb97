"""audit: checks of every batch of every replica, and comparisons of replicas.

`auditing` is the pipeline: list, scan, join, compare, repeat. `metadata` asks a running cluster
about its partitions.

`ranges` are the byte ranges that tasks scan, and `spark_tasks` runs the tasks on Spark.
`range_scan` reads a range with `batch_checks`, `index_checks` and `producer_checks`. `kept_results`
lets a stopped audit continue.

`joining` makes one result from the results of a replica's ranges, with `offset_checks` for
checkpoints and `interrupted_swaps` for compactions that a crash stopped. `comparing` compares
replicas, `start_checks` the offsets at which they begin, `identity_checks` owners and topic ids,
`detail` single records. `findings` and `reporting` are the report, and `invariants` states the
invariants of a healthy log directory.
"""
