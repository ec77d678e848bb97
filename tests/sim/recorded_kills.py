"""Replays recorded kills (kills.json) and prints `mutant events` for each that is caught.

`python -m tests.sim.recorded_kills MAX_EVENTS` replays those recorded with at most so
many events: what another Python runs in `make test`.
"""

from __future__ import annotations

import sys

from tests.sim.mutant_table import load
from tests.support.mutants import MUTANTS, importable

from tidelog.sim.run import run_seed


def main() -> None:
    limit = int(sys.argv[1])
    for name, kill in load().items():
        if kill.events <= limit:
            result = run_seed(kill.seed, MUTANTS[name].profile, importable(name))
            print(name, result.events if result.violation else "survived")  # noqa: T201


if __name__ == "__main__":
    main()
