"""Analysis of a cluster's history, from its events (`__cluster_events`).

`analysis` is the pipeline. `event_tables` are the input, `findings` the result, `presentation` the
report.

The parts of the analysis are `summaries`, `partition_history`, `present_state`, `failover_phases`
and `suspects` (brokers that leave ISRs too often). `group_lag` has the lag of groups, from
`lag_tables`.
"""
