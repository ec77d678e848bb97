"""What a mutant is: attributes of modules, replaced by name while a run lasts.

Where a target is gone, applying the mutant fails: one that changes nothing would prove nothing.
The functions that make the replacements are named as their mutants, and their docstrings say what
is removed; the table in docs/internals/mutants.md is made of both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """Each of `targets` ("module:attribute", which may be dotted) becomes what `make` returns for
    the originals: one replacement, or for several targets a tuple of as many."""

    name: str
    #: The rule that is broken, by its id.
    rule: str
    #: What brokers do not do any more, or do wrong, in one sentence.
    removes: str
    targets: tuple[str, ...]
    make: Callable[..., Any]
    #: The profile under which it is looked for.
    profile: str = "default"
    #: Why seeds do not show it; then a model must. Empty for one that a seed catches.
    uncaught: str = ""

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The mutant's replacements are in place within."""
        owners = [_owner(self, target) for target in self.targets]
        originals = [vars(owner)[attribute] for owner, attribute in owners]
        made = self.make(*originals)
        replacements = (made,) if len(owners) == 1 else made
        with ExitStack() as undo:
            for (owner, attribute), original, replacement in zip(
                owners, originals, replacements, strict=True
            ):
                setattr(owner, attribute, replacement)
                undo.callback(setattr, owner, attribute, original)
            yield


class MutantGoneError(LookupError):
    """The attribute that a mutant replaces is not there."""


class Catalogue:
    """Mutants in the order in which they are written down."""

    def __init__(self) -> None:
        self.mutants: Final[dict[str, Mutant]] = {}

    def breaks(
        self, rule: str, *targets: str, profile: str = "default", uncaught: str = ""
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The decorated function makes the replacements of a mutant of its name."""

        def register(make: Callable[..., Any]) -> Callable[..., Any]:
            name = make.__name__
            if name in self.mutants:
                raise ValueError(f"there are two mutants {name}")
            removes = " ".join((make.__doc__ or "").split())
            self.mutants[name] = Mutant(name, rule, removes, targets, make, profile, uncaught)
            return make

        return register


def _owner(mutant: Mutant, target: str) -> tuple[Any, str]:
    """Whose attribute is replaced: a module or a class; and the attribute's name."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, attribute = path.split(".")
    for part in outer:
        owner = getattr(owner, part, None)
    if owner is None or attribute not in vars(owner):
        raise MutantGoneError(f"{target}: the target of {mutant.name} is gone")
    return owner, attribute
