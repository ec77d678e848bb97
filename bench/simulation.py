"""Speed of the simulator with all checkers on: delivered events per second of one core."""

from __future__ import annotations

import statistics
import time

from bench.rig import spread, table
from tidelog.sim.run import SeedRun

SEEDS = range(1000, 1020)


def run() -> list[str]:
    """The table of the simulator's speed over twenty seeds."""
    speeds = []
    ratios = []
    acknowledged = 0
    cpu_total = 0.0
    for seed in SEEDS:
        begin = time.process_time()
        result = SeedRun(seed).run()
        cpu = time.process_time() - begin
        cpu_total += cpu
        speeds.append(result.events / cpu)
        ratios.append(result.simulated_ns / 1e9 / cpu)
        acknowledged += result.counters["acknowledged records"]
        if result.violation:
            raise SystemExit(f"seed {seed}: {result.violation}")
    return [
        table(
            f"Simulation, all checkers on ({len(SEEDS)} seeds, one core)",
            [
                ("delivered events per CPU second", spread(speeds), ">= 10,000"),
                (
                    "acknowledged records per CPU minute",
                    f"{acknowledged / cpu_total * 60:,.0f}",
                    "",
                ),
                ("simulated over CPU time", f"{statistics.median(ratios):.1f}", ""),
            ],
            ("", "", "aim"),
        )
    ]
