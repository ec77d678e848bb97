"""Analysis of a cluster's history, from its events (`__cluster_events`).

`analysis` is the pipeline. `event_tables` are the input, `findings` the result, `presentation` the
report.

The analysis finds `summaries`, `partition_history`, `present_state`, `failover_phases`, `suspects`
(brokers that leave ISRs too often). `group_lag` has the lag of groups, from `lag_tables`.
"""
