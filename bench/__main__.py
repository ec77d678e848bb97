"""`python -m bench [part ...]`: the table of the docs. Parts: throughput failover simulation."""

from __future__ import annotations

import argparse
import os
import platform

from bench import failover, simulation, throughput
from bench.rig import MIB


def main() -> None:
    """Run the parts asked for, print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["throughput", "failover", "simulation"])
    parser.add_argument("--rounds", type=int, default=5, help="runs per figure (default 5)")
    parser.add_argument("--mib", type=int, default=512, help="MiB per run (default 512)")
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}; "
        f"command: python -m bench {' '.join(options.parts)} --rounds {options.rounds} "
        f"--mib {options.mib}\n"
    )
    for part in options.parts:
        match part:
            case "throughput":
                tables = throughput.run(options.rounds, options.mib * MIB)
            case "failover":
                tables = failover.run(options.rounds)
            case "simulation":
                tables = simulation.run()
            case _:
                parser.error(f"unknown part {part!r}; throughput, failover, simulation exist")
        for text in tables:
            print(text, flush=True)


if __name__ == "__main__":
    main()
