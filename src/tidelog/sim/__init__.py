"""The simulator: whole brokers, their store and clients in one process, under virtual time.

One integer seed determines every random choice of a run, so that the run can be repeated event by
event (DESIGN.md, rule 5). Simulated brokers run the same code as real broker processes.

`run` makes one run, and `job` describes a run. `profiles` and `policies` decide which random
choices are likely, and `swarm` draws a profile from a seed; `seeds` has the random streams.
`phases` are parts of a run after the faults, `final_phase` the last of them. `results`, `outcomes`
and `story` report what happened in a run.

The cluster: `sim_cluster` starts each `sim_broker` with `broker_settings`. `sim_store` and
`sim_store_server` are the metadata store. `client_workload` starts the clients in `workload`;
`batches` writes and reads their records.

The simulated machines: `simulator` with its virtual time (`loop`), its nodes (`node`, `process`)
and its `network`, in which `sim_connections` carries bytes and `sim_transport` carries frames.
Disks: `disk`, `file_content`, `files`, `lanes`, `log_dir_failure`. `sandbox` forbids real I/O,
`listeners` calls back at events, `trace` records events.

`faults` injects faults within the `fault_budget`.

`checkers` check the cluster's state (`observed`) and the responses to clients (`client_history`).
`mutation` puts a known defect into the brokers, to prove that a checker notices it.

`small` has small worlds, which search one part of the brokers much faster than whole runs.

Searches over seeds: `known_seeds`, `search_coverage`, `shrink` with `reductions`. `suggestions`
proposes corrections of mistyped names.
"""
