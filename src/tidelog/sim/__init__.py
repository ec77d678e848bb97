"""The simulator: whole brokers, their store and clients in one process, under virtual time.

Everything is drawn from one integer seed, so that a run can be repeated event by event (DESIGN.md,
rule 5). The brokers are the very composition that real processes start.

A run: `run` plays it, `job` describes it. `profiles` and `policies` bias it, `seeds` has its random
streams. `phases` and `final_phase` end it. `results`, `outcomes` and `story` report it.

The cluster: `sim_cluster` starts each `sim_broker` with `broker_settings`. `sim_store` and
`sim_store_server` are the metadata store. `client_workload` starts the clients of `workload`,
`batches` are their records.

The machine: `simulator` with its virtual time (`loop`), its nodes (`node`, `process`) and its
`network` with `sim_connections`. Disks: `disk`, `file_content`, `files`, `lanes`,
`log_dir_failure`. `sandbox` bars the real outside, `listeners` follow events, `trace`
records them.

Faults: `faults`, within the `fault_budget`.

Checks: `observed` is what a run shows, `client_history` what clients saw; `checkers` judge both.
`mutation` puts defects into brokers to prove that a checker notices.

Searches over seeds: `known_seeds`, `search_coverage`, `shrink` with `reductions`. `suggestions` are
for mistyped names.
"""
