"""Runs seeds of whole clusters and prints `seed hash` for each: the other process of the test."""

from __future__ import annotations

import sys

from tidelog.sim.run import run_seed


def main() -> None:
    for text in sys.argv[1:]:
        print(text, run_seed(int(text)).trace_hash)  # noqa: T201


if __name__ == "__main__":
    main()
