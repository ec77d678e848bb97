"""Seeds of the simulator on Spark: violations with their seeds, and policies compared.

`search.simulate` is the pipeline. Runs are coarse tasks of several seconds; their results go into a
directory of Parquet files, so that a later search makes only the runs that are missing.
"""
