"""The page of mutants: what each removes and what kills it, into docs/internals/mutants.md.

`python -m tests.sim.mutant_table` writes the table from the code and from `kills.json`;
with `--search` it first looks for a seed that catches each mutant (or those that are named), among
200 of its profile, and keeps the one that does so after the fewest events and is sound without it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.models.variants import finding
from tests.support.mutants import MUTANTS, Mutant, importable
from tests.support.mutants.failures import not_running

from tidelog.sim.run import run_seed

KILLS = Path(__file__).with_name("kills.json")
TABLE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "mutants.md"
#: A mutant that so many seeds do not catch shows a hole in the faults or in the checkers.
SEEDS = range(200)
#: So many seeds after the first that catches the mutant may catch it earlier.
AFTER_FIRST = 11
_SHOWN_CHARS = 110

_HEAD = """\
# Mutants

A mutant is a broker with one rule removed, to prove that something notices. There are two kinds.
Mutants of the simulator replace functions of safety rules, and a seed or a model kills each: this
proves the checkers. [Line mutants](#killed-by-the-tests-of-their-rules) change one line of the code
for every rule, and an assertion of a test of that rule kills each: this proves the test. `python -m
tests.support.mutants` runs both kinds, `--by seeds` or `--by rules`.

## Killed by seeds

`make test` replays the seed of this page with the mutant, and without it up to the same event,
where no violation may appear. `make soak` searches other seeds and counts those that kill each. In
a checkout, `tidelog sim replay SEED --profile PROFILE --mutant tests.support.mutants:NAME` prints a
kill step by step. `python -m tests.sim.mutant_table` writes this page, with `--search` after a
search of up to 200 seeds each. [A mutant of your own](../guide/simulation.md) needs no checkout.

| mutant | rule | what it does | profile | seed | events | found by |
|---|---|---|---|---:|---:|---|
"""

_TAIL = """
## Found by models

These mutants need an interleaving that random faults hardly ever cause, such as a message that
arrives again after its operation has ended. [Models](proof.md) go through every interleaving of the
same production functions, and find each within seconds. The tests are
`tests/model/test_variants.py::test_the_verdict_on_a_variant[...]`.

| mutant | rule | what it does | why seeds do not show it | variant |
|---|---|---|---|---|
"""
_BOTH = """
Models find these mutants of the first table, too: {}.
"""
_LINES = """
## Killed by the tests of their rules

[tests/rules/mutants.toml](../../tests/rules/mutants.toml) has one line mutant or more for every
rule in force, with the place of the rule in the code. `make mutants` tries them all in a copy of
the sources, `make test` a sample. Only an assertion of a test counts, no crash (ADR 0043).
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
    seen, modelled, both = [], [], []
    for name, mutant in mutants.items():
        told = f"| `{name}` | {mutant.rule} | {mutant.removes} |"
        variants = ", ".join(f"`{variant}`" for variant in finding(name))
        if mutant.uncaught:
            modelled.append(f"{told} {mutant.uncaught} | {variants} |\n")
            continue
        kill = kills[name]
        violation = kill.violation.replace("|", "\\|")
        seen.append(f"{told} {mutant.profile} | {kill.seed} | {kill.events} | {violation} |\n")
        if variants:
            both.append(f"`{name}`")
    return "".join((_HEAD, *seen, _TAIL, *modelled, _BOTH.format(", ".join(both)), _LINES))


def search(name: str) -> Kill | None:
    """The earliest of the first kills among the seeds; None where there is none."""
    best: Kill | None = None
    first = 0
    for seed in SEEDS:
        if best is not None and seed > first + AFTER_FIRST:
            break
        profile = MUTANTS[name].profile
        limit = None if best is None else best.events
        result = run_seed(seed, profile, importable(name), limit_events=limit)
        if not_running(result.violation):
            raise SystemExit(f"{name} does not run: {result.violation}")
        if not result.violation or (best is not None and result.events >= best.events):
            continue
        if run_seed(seed, profile, limit_events=result.events).violation:
            continue
        if best is None:
            first = seed
        best = Kill(seed, result.events, _short(result.violation))
    return best


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
        if MUTANTS[name].uncaught:
            continue
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
