"""Mutants: brokers with one rule broken, which the checkers must catch.

`tidelog sim mutants` looks for seeds that catch each; those that were found are recorded and
replayed by tests/sim/test_mutants.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidelog.sim.mutants import (
    control,
    disks,
    groups,
    isr,
    logs,
    moves,
    orders,
    removals,
    roles,
    serving,
    sessions,
)
from tidelog.sim.mutants.mutant import Mutant, MutantGoneError, in_force

__all__ = ["MUTANTS", "Mutant", "MutantGoneError", "applied"]

MUTANTS: Final[Mapping[str, Mutant]] = {
    name: mutant
    for part in (
        roles,
        isr,
        control,
        logs,
        disks,
        groups,
        serving,
        moves,
        removals,
        orders,
        sessions,
    )
    for name, mutant in part.CATALOGUE.mutants.items()
}


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The mutant is in force within; no name: nothing is."""
    if not name:
        yield
        return
    mutant = MUTANTS.get(name)
    if mutant is None:
        raise MutantGoneError(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")
    with in_force(mutant):
        yield
