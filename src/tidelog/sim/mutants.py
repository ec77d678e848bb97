"""Mutants: brokers with one rule broken, which the checkers must catch.

A mutant is a named replacement of one module attribute, in force while a run lasts. Where its
target is gone or its shape has changed, applying it fails: a mutant that changes nothing would
prove nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """`module.attribute` (the attribute may be dotted) becomes `make(original)`."""

    name: str
    module: str
    attribute: str
    make: Callable[[Any], Any]
    #: The profile under which it is looked for.
    profile: str = "default"


class MutantGoneError(LookupError):
    """The attribute that a mutant replaces is not there."""


MUTANTS: Final[Mapping[str, Mutant]] = {}


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The mutant is in force within; no name: nothing is."""
    if not name:
        yield
        return
    mutant = MUTANTS.get(name)
    if mutant is None:
        raise MutantGoneError(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")
    owner: Any = importlib.import_module(mutant.module)
    *path, last = mutant.attribute.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    if owner is None or last not in vars(owner):
        raise MutantGoneError(f"{mutant.module}.{mutant.attribute}: the target of {name} is gone")
    original = vars(owner)[last]
    setattr(owner, last, mutant.make(original))
    try:
        yield
    finally:
        setattr(owner, last, original)
