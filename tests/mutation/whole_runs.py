"""`python -m tests.mutation.whole_runs REQUEST`: seeds of the swarm, run in a copy of the checkout.

The request is a file of JSON: the report to write, the first seed, the CPU seconds after which no
further seed begins, and the events after which a run ends. The first violation ends the search. A
run that computes for too long ends the process; the file beside the report names its seed.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.mutation.by_tests import check_place

from tidelog.sim.profiles import SWARM
from tidelog.sim.run import run_seed

#: CPU seconds of a single run; a long one takes five.
RUN_CPU_S: Final = 120


def search(request: dict[str, Any], current: Path) -> dict[str, Any]:
    """Run the seeds of a request, and return the report."""
    tried = 0
    for seed in count(request["first"]):
        current.write_text(f"seed {seed}", encoding="utf-8")
        signal.setitimer(signal.ITIMER_PROF, RUN_CPU_S)
        result = run_seed(seed, SWARM, limit_events=request["only"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        tried += 1
        if result.violation or time.process_time() >= request["cpu_s"]:
            break
    return {
        "tried": tried,
        "seed": seed,
        "only": result.events,
        "place": f"{result.events:,} events",
        "violation": result.violation,
        "is_crash": False,
    }


def main(request: dict[str, Any]) -> None:
    """Run the seeds of a request, and write the report."""
    check_place()
    gc.collect()
    gc.freeze()
    report = Path(request["report"])
    report.write_text(json.dumps(search(request, report.with_suffix(".current"))))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
