"""Reassignment plans from samples of load.

`planner` is the pipeline. Input: `load_samples`, `load_tables` and `cluster_model`. The decision:
`placement`, with the solver in `assignment`. Result: `moves` with their reasons, and
`balance_report`.
"""
