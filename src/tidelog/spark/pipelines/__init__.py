"""Pipelines on Spark: functions for the user's own session, and verbs of `tidelog pipeline`.

Pipelines of several modules: `copy`, `audit`, `analyze`, `plan`, `simulate`.

ingest: `ingest` writes the records at the offsets of `new_offsets` into a table. `landing` writes
the files of a run, by `direct_files` or by Spark; `parsing` has ready transforms. `lake_tables`
writes into Delta and Iceberg. `ingest_report` is the report. `compact` merges small files.

Modules of the table: `table` with its `manifests`. `table_access` reads the table, `table_files`
and `hadoop_files` are its file operations, `directory_lock` is its lock.

`continuity` proves that files have every offset once, with `counting` and `spans`; `sequence`
proves from a table alone that no number is missing.

All pipelines share `task_rows` (work as Spark tasks), `job_progress`, `report` with `figures` and
`html`.
"""
