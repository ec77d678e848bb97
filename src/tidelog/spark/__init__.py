"""The log in Spark: `format("tidelog")`, sessions that find a JVM, pipelines.

Nothing is imported here: every Spark session of an environment loads `pyspark_tidelog`, which
imports from this package only when the format is used.

Begin with `source`, the source and the sink as Spark drives them. `session` makes a local Spark
session, for which `jvm` finds a Java. `sink` writes, `streaming` reads streams, `segments` reads
log directories without brokers.

Options: `options` with `option_names`, `option_values`, `client_options` and `topic_pattern`.

Planning on the driver: `planning`, `offset_bounds`, `pushdown` (filters), `splitting` (of large
ranges), `columns`.

Reading in a task: `reading` fetches, `decode` decodes with `rows`. Their forms are `_rows.c` and
`numpy_rows`. `record_fields` finds the fields of many records. `aborted` and `deduplication` drop
batches.

Writing: `record_encoding` makes records from Arrow columns, by the same extension.

Between Java and Python: `shipping`, `worker_errors`, `prompt_sockets`.

For users: `pipelines`, and `schemas` (JSON, Avro and Protobuf).
"""
