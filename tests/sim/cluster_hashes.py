"""Runs seeds of whole clusters and prints `seed hash` for each: the other process of the test."""

from __future__ import annotations

import sys

from tidelog.sim.run import MIXED, run_seed

#: Faults end early: what follows enters the hash all the same, up to the last offset read.
SHORT = "until=1200"


def hash_of(seed: int) -> str:
    """Of a short run of the seed, under the profile that it has where they are mixed."""
    return run_seed(seed, MIXED, only=SHORT).trace_hash


def main() -> None:
    for text in sys.argv[1:]:
        print(text, hash_of(int(text)))  # noqa: T201


if __name__ == "__main__":
    main()
