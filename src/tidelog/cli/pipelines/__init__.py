"""The verbs of `tidelog pipeline`, a module each.

The verbs: `ingest` (with prove and compact), `copy`, `audit`, `analyze`, `plan`, `simulate`. What
they share: `running` (options, a Spark session, a bar of progress) and `showing` (the report).
"""
