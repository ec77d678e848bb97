"""The table of mutants: what each removes and which seed caught it, into docs/internals/mutants.md.

`python -m tests.sim.mutant_table` writes the table from the code and from `kills.json`;
with `--search` it first looks for a seed that catches each mutant (or those that are named), among
200 of its profile, and keeps the one that does so after the fewest events.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.sim.mutants import MUTANTS, Mutant
from tidelog.sim.run import run_seed

KILLS = Path(__file__).with_name("kills.json")
TABLE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "mutants.md"
#: A mutant that so many seeds do not catch shows a hole in the faults or in the checkers.
SEEDS = range(200)
#: A search goes on until so many seeds have caught the mutant.
ENOUGH = 4
_SHOWN_CHARS = 110

_HEAD = """\
# Mutants

Brokers with one safety rule taken out, each of which the simulator catches. `make test` replays
the seed that is named here, and seeds beside it where the code has changed and that one does not
catch it any more; `make soak` searches anew (`tidelog sim mutants`). A seed without the mutant
shows nothing. `tidelog sim replay SEED --mutant NAME` tells a kill step by step; `python -m
tests.sim.mutant_table` writes this page, with `--search` after a search of up to 200 seeds each.

| mutant | rule | what it does | profile | seed | events | found by |
|---|---|---|---|---:|---:|---|
"""

_TAIL = """
Not caught yet: another rule stands behind the one that is taken out, or the faults that would show
it do not come together. Each is a hole in the faults or the checkers until one of both is shown.

"""


class Kill(NamedTuple):
    """A seed that catches a mutant, after how many events, and what was seen."""

    seed: int
    events: int
    violation: str


def load() -> dict[str, Kill]:
    """The recorded kills, by mutant."""
    recorded = json.loads(KILLS.read_text(encoding="utf-8")) if KILLS.exists() else {}
    return {name: Kill(*row) for name, row in recorded.items()}


def render(mutants: Mapping[str, Mutant], kills: Mapping[str, Kill]) -> str:
    """The page."""
    rows, uncaught = [], []
    for name, mutant in mutants.items():
        if mutant.uncaught:
            told = f"{mutant.removes} Looked for under {mutant.profile}: {mutant.uncaught}."
            uncaught.append(f"- `{name}` ({mutant.rule}): {told}\n")
            continue
        kill = kills[name]
        seen = kill.violation.replace("|", "\\|")
        rows.append(
            f"| `{name}` | {mutant.rule} | {mutant.removes} | {mutant.profile} | {kill.seed}"
            f" | {kill.events} | {seen} |\n"
        )
    return _HEAD + "".join(rows) + _TAIL + "".join(uncaught)


def search(name: str) -> Kill | None:
    """The earliest of the first kills among the seeds; None where there is none."""
    kills: list[Kill] = []
    for seed in SEEDS:
        result = run_seed(seed, MUTANTS[name].profile, name)
        if result.violation:
            kills.append(Kill(seed, result.events, _short(result.violation)))
        if len(kills) == ENOUGH:
            break
    return min(kills, key=lambda kill: kill.events, default=None)


def _short(violation: str) -> str:
    """The first line without its time, cut to what fits a table."""
    text = re.sub(r"^[\d.]+ s: ", "", violation.partition("\n")[0])
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3].rstrip() + "..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    kills = load()
    for name in arguments.names or MUTANTS if arguments.search else ():
        kill = search(name)
        print(name, kill or "SURVIVED", flush=True)  # noqa: T201
        kills.pop(name, None)
        if kill is not None:
            kills[name] = kill
        kept = {one: list(kills[one]) for one in MUTANTS if one in kills}
        KILLS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    known = {name: one for name, one in MUTANTS.items() if one.uncaught or name in kills}
    TABLE.write_text(render(known, kills), encoding="utf-8")


if __name__ == "__main__":
    main()
