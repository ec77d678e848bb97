"""Mutants: brokers with one rule broken, which the checkers must catch.

The simulator takes a mutant by its importable name, `tests.support.mutants:NAME`: each mutant is an
attribute of this package. `python -m tests.support.mutants` searches for seeds that catch each
mutant; tests/sim/test_mutants.py replays the recorded ones. `line_mutants` has the other kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tests.support.mutants import (
    control,
    crowds,
    direct,
    directory_moves,
    disks,
    groups,
    isr,
    isr_changes,
    logs,
    moves,
    orders,
    planned_moves,
    recovery,
    removals,
    roles,
    serving,
    sessions,
    synced,
    throttles,
)
from tests.support.mutants.mutant import Mutant, MutantGoneError

from tidelog.sim.suggestions import nearest_first

__all__ = ["MUTANTS", "Mutant", "MutantGoneError", "applied", "importable"]

MUTANTS: Final[Mapping[str, Mutant]] = {
    name: mutant
    for part in (
        roles,
        isr,
        isr_changes,
        control,
        direct,
        recovery,
        logs,
        disks,
        groups,
        serving,
        moves,
        removals,
        orders,
        sessions,
        synced,
        throttles,
        directory_moves,
        planned_moves,
        crowds,
    )
    for name, mutant in part.CATALOGUE.mutants.items()
}


def __getattr__(name: str) -> Mutant:
    """Return the mutant of this name."""
    mutant = MUTANTS.get(name)
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
