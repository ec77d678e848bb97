"""audit: checks of every batch of every replica, and comparisons of replicas.

`auditing` is the pipeline: list, scan, join, compare, repeat. `metadata` asks a running cluster
about its partitions.

`ranges` are the byte ranges that tasks scan, and `spark_tasks` runs the tasks on Spark.
`range_scan` reads a range with `batch_checks`, `index_checks` and `producer_checks`. `kept_results`
lets a stopped audit continue.

`joining` makes one result from the results of a replica's ranges, with `offset_checks` for
checkpoints and `interrupted_swaps` for compactions that a crash stopped. `comparing` compares
replicas, and `detail` compares their single records. `start_checks` judges the offsets at which
replicas begin, and `identity_checks` judges owners and topic ids. `findings` and `reporting` are
the report, and `invariants` states the invariants of a healthy log directory.
"""
