"""Seeds of the simulator on Spark: violations with their seeds, and policies compared.

`search` is the pipeline. `work` names the missing runs, `fan_out` gives them to Spark, in coarse
tasks of several seconds. `run_table` keeps the results as Parquet files, so that a later search
makes only the runs that are missing. `findings` is the report, `paired` compares policies.
"""
