"""Analysis of what a cluster did, from its events (`__cluster_events`).

`analysis` is the pipeline. `event_tables` are the input, `findings` the result, `presentation` the
report.

What it finds: `summaries`, `partition_history`, `present_state`, `failover_phases`, `suspects`
(brokers that leave ISRs too often). Lag of groups: `group_lag`, from `lag_tables`.
"""
