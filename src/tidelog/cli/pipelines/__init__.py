"""The verbs of `tidelog pipeline`, one module for each verb.

The verbs: `ingest` (with compact), `prove`, `copy`, `audit`, `analyze`, `plan`, `simulate`. The
modules of verbs share `running` (options, a Spark session, a bar of progress), `places` (of
tables), `record_forms` (of rows) and `showing` (the report). `verdicts` has the results of `prove`.
"""
