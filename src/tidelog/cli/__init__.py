"""The command line `tidelog`. `main()` is the entry point, and loads the command library when
called.

Every command: `app` is the command tree, with errors and exit codes. `parameters` has arguments and
options, `help` the help pages, `completion` shell completion, and `spellings` the options of other
tools. `target` finds the cluster. `names`, `times` and `offsets` parse values of arguments and
options. `output`, `documents` and `waiting` write results. `reference` writes the reference page of
all commands.

Clusters and brokers: `clusters` with `systemd`, `brokers`, `stores`, `health`, `doctor`, `metrics`,
`events`, `configs`, `faults`, `console`, `top` with `live`.

Topics and partitions: `topics`, `describing`, `partitions`, `removing`.

Records and groups: `produce` with `record_input`, `consume` with `reading` and `record_output`,
`groups` with `resetting`.

Moves between brokers: `reassign`, `reassignment_files`, `planned_moves`, `emptying`, `move_queue`,
`move_watch` and `throttles`. The modules for moves share `move_execution` and `move_files`.

Log directories: `log_dirs`, `cordons`, `drains`, `balancing` and `strays`. The modules for log
directories share `directory_moves`. `dumps` shows one file.

Verification: `simulation` runs the simulator, with `seed_search` and `seed_workers`, and
`replay_page` writes runs as a page. `small_worlds` plays small worlds. `histories` checks recorded
histories of client operations.

Spark: `pipeline` collects the verbs of `pipelines`.
"""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line and exit with its code."""
    gc.disable()  # no garbage collections during imports, which leave no garbage
    from tidelog.cli.app import run

    run()
