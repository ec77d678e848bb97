"""`python -m tests.mutation.small_worlds REQUEST`: seeds of all small worlds, in a copy.

The request is a file of JSON: the report to write, the first seed, the CPU seconds after which no
further seed begins, and the world to play if it is not all. The first violation ends the search, as
does an error of the code. A seed that computes for too long ends the process; the file beside the
report names it.
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

from tidelog.sim.small.small_world import WORLDS, SmallViolation, small_world

#: CPU seconds of a single seed of a world; a long one takes one.
_SEED_CPU_S: Final = 60


def search(request: dict[str, Any], current: Path) -> dict[str, Any]:
    """Play the seeds of a request, and return the report."""
    worlds = {name: small_world(name) for name in WORLDS if request["only"] in (None, name)}
    tried = 0
    for seed in count(request["first"]):
        for name, world in worlds.items():
            current.write_text(f"{name}, seed {seed}", encoding="utf-8")
            signal.setitimer(signal.ITIMER_PROF, _SEED_CPU_S)
            violations, crash = [], ""
            try:
                played = world.play(seed)
                tried += played.histories
                violations = played.violations
            except Exception as error:  # whatever a mutant raises
                crash = f"{type(error).__name__}: {error}"
                violations = [SmallViolation("", crash)]
            signal.setitimer(signal.ITIMER_PROF, 0)
            if violations:
                return {
                    "tried": tried,
                    "seed": seed,
                    "only": name,
                    "place": f"{name} {violations[0].path}".strip(),
                    "violation": violations[0].what,
                    "is_crash": bool(crash),
                }
        if time.process_time() >= request["cpu_s"]:
            break
    return {"tried": tried, "violation": ""}


def main(request: dict[str, Any]) -> None:
    """Play the seeds of a request, and write the report."""
    check_place()
    gc.collect()
    gc.freeze()
    report = Path(request["report"])
    report.write_text(json.dumps(search(request, report.with_suffix(".current"))))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
