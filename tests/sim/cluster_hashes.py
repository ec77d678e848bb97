"""Runs seeds of whole clusters and prints `seed hash` for each: the other process of the test.

A word `beginning` before them, and it prints the hashes of the first blocks of a run's trace, as
far as `BEGINNING_EVENTS` go, for seed `SOUND_SEED` of the profiles with these numbers.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.sim.runs import beginning_of
from tests.support.mutants.kills import SOUND_SEED

from tidelog.sim.profiles import PROFILES
from tidelog.sim.run import MIXED, run_seed

#: Faults end early: what follows enters the hash all the same, up to the last offset read.
SHORT = "until=1200"
#: About a quarter of a run: elections, and faults of every kind that a profile has.
BEGINNING_EVENTS: Final = 4_000
BEGINNING: Final = "beginning"


def hash_of(seed: int) -> str:
    """Of a short run of the seed, under the profile that it has where they are mixed."""
    return run_seed(seed, MIXED, only=SHORT).trace_hash


def hashes_of_beginning(number: int) -> list[str]:
    """Of the first blocks of a run's trace, under the profile of this number."""
    profile = list(PROFILES)[number]
    return beginning_of(SOUND_SEED, profile, BEGINNING_EVENTS).block_hashes


def main() -> None:
    if sys.argv[1] == BEGINNING:
        for text in sys.argv[2:]:
            print(text, ",".join(hashes_of_beginning(int(text))))  # noqa: T201
    else:
        for text in sys.argv[1:]:
            print(text, hash_of(int(text)))  # noqa: T201


if __name__ == "__main__":
    main()
