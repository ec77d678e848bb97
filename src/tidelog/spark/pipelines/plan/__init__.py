"""Reassignment plans from samples of load.

`planner` is the pipeline. `load_samples`, `load_tables` and `cluster_model` make the input of a
plan. `placement` chooses brokers, with the solver in `assignment`. `moves` and `balance_report`
make the files and the report of a plan.
"""
