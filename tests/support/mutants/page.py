"""The page of mutants, docs/internals/mutants.md: what each does, and what kills it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.support.models.directory_variants import DIRECTORY_VARIANTS
from tests.support.models.reassignment_variants import REASSIGNMENT_VARIANTS
from tests.support.models.variants import PENDING_VARIANTS, VARIANTS
from tests.support.mutants import LINES, MUTANTS
from tests.support.mutants.kills import Kill
from tests.support.mutants.lines import ROOT
from tests.support.rules import rule_ids

PAGE = ROOT / "docs" / "internals" / "mutants.md"

_HEAD = """\
# Mutants

A mutant is a broker with one rule broken, to prove that something notices. It changes one line of
the code ([tests/rules/mutants.toml](../../tests/rules/mutants.toml)) or replaces functions
([tests/support/mutants/functions](../../tests/support/mutants/functions)). Three things kill
mutants:

- The tests of the rule kill every mutant of one line, by an assertion; a crash does not count (ADR
  0043). This proves the tests. `make mutants` tries all, `make test` a sample.
- A seed of the simulator kills a mutant of a safety rule, which proves the checkers. `make test`
  replays the seed of this page with the mutant, and without it up to the same event, where no
  violation may appear, if both take no more than 14,000 events or the mutant is one of the main
  rules. `make soak` replays the others,
  and counts other seeds that kill each. In a checkout, `tidelog sim
  replay SEED --profile PROFILE --mutant tests.support.mutants:NAME` prints a kill step by step.
- A model kills what needs an interleaving that random faults hardly ever cause, such as a message
  that arrives again after its operation has ended. [Models](proof.md) go through every interleaving
  of the same production functions. The name in the table is that of the model's variant.

`python -m tests.support.mutants` tries, searches and records, and writes this page. [A mutant of
your own](../guide/simulation.md) needs no checkout. [Drawn mutants](drawn-mutants.md) are changes
that no one chose.

## By seeds and models

| rule | mutant | what it does | killed by | what is seen, or why no seed shows it |
|---|---|---|---|---|
"""
_TAIL = """
## By the tests of their rules

Mutants of one line, with those of the table above, by rule: {}.
"""


def variants(name: str) -> Iterator[str]:
    """Yield the variants of models in which a mutant is found broken all by itself."""
    for table in (VARIANTS, PENDING_VARIANTS, DIRECTORY_VARIANTS, REASSIGNMENT_VARIANTS):
        for variant in table.values():
            if variant.breaks and variant.names == [name]:
                yield variant.name


def render(kills: Mapping[str, Kill]) -> str:
    """Return the page."""
    rules = rule_ids()
    rows = []
    for name, mutant in sorted(MUTANTS.items(), key=lambda item: rules.index(item[1].rule)):
        kill = kills.get(name)
        killers = ["tests"] if name in LINES else []
        if kill is not None:
            only = f" --only {kill.only}" if kill.only else ""
            killers.append(f"seed {kill.seed}{only} of `{mutant.profile}`, {kill.events:,} events")
        killers += [f"model `{variant}`" for variant in variants(name)]
        seen = mutant.why_no_seed if kill is None else kill.violation.replace("|", "\\|")
        cells = (mutant.rule, f"`{name}`", mutant.defect, "; ".join(killers), seen)
        rows.append(f"| {' | '.join(cells)} |\n")
    counts = Counter(line.rule for line in LINES.values())
    by_rule = ", ".join(f"{rule} {counts[rule]}" for rule in rules if counts[rule])
    return "".join((_HEAD, *rows, _TAIL.format(by_rule)))


def write(kills: Mapping[str, Kill]) -> None:
    """Write the page."""
    PAGE.write_text(render(kills), encoding="utf-8")
