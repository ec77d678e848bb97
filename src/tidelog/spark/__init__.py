"""The log in Spark: `format("tidelog")`, sessions that find a JVM, pipelines.

Nothing is imported here: every Spark session of an environment loads `pyspark_tidelog`, which
imports from this package only when the format is used.
"""
