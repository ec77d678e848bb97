"""Mutants: brokers with one rule broken, to prove that something notices.

A mutant replaces functions (`functions`) or changes one line (`lines`). Three things kill mutants:
an assertion of a test of the rule (`trials`), a recorded seed of the simulator (`kills`), or a
model's variant (tests/support/models/variants.py). `search` counts the seeds that kill each, and
`page` writes docs/internals/mutants.md.

The simulator takes a mutant by its importable name, `tests.support.mutants:NAME`: each mutant is an
attribute of this package. `python -m tests.support.mutants` lists, tries, searches and records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tests.support.mutants import functions as functions
from tests.support.mutants.lines import LineMutant, read_table
from tests.support.mutants.mutant import REPLACEMENTS, Mutant, MutantGoneError

from tidelog.sim.suggestions import nearest_first

__all__ = ["LINES", "MUTANTS", "LineMutant", "Mutant", "MutantGoneError", "applied", "importable"]

#: Mutants of one line, by name: the tests of their rules kill each.
LINES: Final[Mapping[str, LineMutant]] = read_table()
#: Mutants that a seed or a model kills, by name.
MUTANTS: Final[Mapping[str, Mutant | LineMutant]] = {
    **REPLACEMENTS,
    **{name: line for name, line in LINES.items() if line.defect},
}


def __getattr__(name: str) -> Mutant | LineMutant:
    """Return the mutant of this name."""
    mutant = MUTANTS.get(name) or LINES.get(name)
    if mutant is None:
        raise AttributeError(f"no mutant {name!r}; there are {nearest_first(name, MUTANTS)}")
    return mutant


def importable(name: str) -> str:
    """Return the name by which a job in any process finds a mutant."""
    return f"{__name__}:{name}"


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply the mutant within the context; apply none for an empty name."""
    if not name:
        yield
        return
    mutant = MUTANTS.get(name)
    if mutant is None:
        raise MutantGoneError(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")
    with mutant.in_force():
        yield
