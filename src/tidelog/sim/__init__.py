"""The simulator: whole brokers, their store and clients in one process, under virtual time.

Everything is drawn from one integer seed, so that a run can be repeated event by event (DESIGN.md,
rule 5). Simulated brokers run the same code as real broker processes.

`run` plays a run, and `job` describes a run. `profiles` and `policies` bias a run; `seeds` has its
random streams. `phases` come at the end of a run, with `final_phase` as the last. `results`,
`outcomes` and `story` report a run.

The cluster: `sim_cluster` starts each `sim_broker` with `broker_settings`. `sim_store` and
`sim_store_server` are the metadata store. `client_workload` starts the clients of `workload`, which
write the records of `batches`.

The simulated machines: `simulator` with its virtual time (`loop`), its nodes (`node`, `process`)
and its `network`, in which `sim_connections` carries bytes and `sim_transport` carries frames.
Disks: `disk`, `file_content`, `files`, `lanes`, `log_dir_failure`. `sandbox` forbids real I/O,
`listeners` follow events, `trace` records events.

`faults` injects faults within the `fault_budget`.

`checkers` judge the cluster's state (`observed`) and the clients' requests (`client_history`).
`mutation` puts defects into brokers to prove that a checker notices each defect.

Searches over seeds: `known_seeds`, `search_coverage`, `shrink` with `reductions`. `suggestions`
proposes corrections of mistyped names.
"""
