"""Pipelines on Spark: functions for the user's own session, and verbs of `tidelog pipeline`."""
