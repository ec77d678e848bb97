"""Runs of the cluster simulator on Spark: violations with their seeds, comparisons of policies.

A run is determined by its seed, its profile (workload and faults) and its policy (settings of the
brokers).

`search` is the pipeline. `work` lists the missing runs, and `fan_out` runs them on Spark in tasks
of several seconds. `run_table` keeps the results as Parquet files, so that a later search makes
only the missing runs. `findings` is the report, and `paired` compares policies.
"""
