"""The log in Spark: `format("tidelog")`, sessions that find a JVM, pipelines.

This module imports nothing: every Spark session of an environment loads `pyspark_tidelog`, which
imports from this package only when the format is used.

The entry point is `source`, the source and the sink as Spark calls them. `session` starts a local
Spark session, for which `jvm` finds a Java. `sink` writes, `streaming` reads streams, and
`segments` reads log directories without brokers.

`options` parses the options, with `option_names`, `option_values`, `client_options` and
`topic_pattern`.

`planning` plans on the driver, with `offset_bounds`, `pushdown` (filters), `splitting` (of large
ranges) and `columns`. `plan_schema` makes the schema for Spark or for Sail.

`reading` fetches in a task, as much as `fetch_sizes` estimates. `decode` decodes with `rows`, whose
two implementations are `_rows.c` and `numpy_rows`. Both implementations return the types of
`row_columns`. `record_fields` finds the fields of many records. `deduplication` drops batches.

`record_encoding` makes records from Arrow columns, by the compiled extension.

`shipping` sends code to executors. `worker_errors`, `prompt_sockets` and `frozen_modules` adapt
Spark's Python workers: their error messages, TCP acknowledgements and garbage collections.

`pipelines` and `schemas` (JSON, Avro and Protobuf) have functions that users call. `lake` commits
to lake tables.
"""
