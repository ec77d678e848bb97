"""Pipelines on Spark: functions for the user's own session, and commands `tidelog pipeline ...`.

Pipelines with packages of their own: `copy`, `audit`, `analyze`, `plan`, `simulate`.

ingest: `ingest` writes a topic's records into a table, from the offsets that `new_offsets` finds.
`landing` stages the files of a run, which the tasks of `writing` write; `parsing` and `debezium`
have ready transforms. `upserts` keeps only the latest row of each key (`latest_rows`), which
`upsert_proof` proves by a replay of the topic. `ingest_report` is the report. `compact` merges
small files, and `file_upkeep` does so while a topic is followed. `landed` reads and proves a table;
`column_proof` proves tables of other tools; `offset_faults` finds missing and doubled offsets.
`content_proof` compares rows with the log, in the tasks of `content_blocks`.

`continuity` proves that files have every offset once, with `counting` and `spans`; `sequence`
proves from a table alone that no sequence number is missing.

All pipelines share `task_rows` (work as Spark tasks), `job_progress`, `report` with `figures` and
`html`. `directory_lock` is the lock of a directory of results.
"""
