"""Mutants that replace functions: attributes of modules, replaced by name while a run lasts.

A mutant without its target fails when it is applied, because a mutant that changes nothing would
prove nothing. The functions that make the replacements are named as their mutants, and their
docstrings describe the defects; the table in docs/internals/mutants.md is made of both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final


class MutantGoneError(LookupError):
    """The error of a missing attribute or line that a mutant replaces."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: each of `targets` becomes the replacement that `make` returns for the originals.

    A target is "module:attribute", whose attribute may be dotted. `make` returns one replacement,
    or for several targets a tuple of as many.
    """

    name: str
    #: The rule that is broken, by its id.
    rule: str
    #: The defect in one sentence.
    defect: str
    targets: tuple[str, ...]
    make: Callable[..., Any]
    #: The profile under which seeds search for it.
    profile: str = "default"
    #: What seeds of the swarm must have drawn (`sim.swarm.has_drawn`); empty if it does not matter.
    world: str = ""
    #: Why no seed shows it; then a model must. Empty for a mutant that a seed kills.
    why_no_seed: str = ""

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Put the replacements in place within the context."""
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


#: Mutants that replace functions, by name, in the order of their definitions.
REPLACEMENTS: Final[dict[str, Mutant]] = {}


def mutant(
    rule: str, *targets: str, profile: str = "default", world: str = "", why_no_seed: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the maker of a mutant of its name."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        name = make.__name__
        if name in REPLACEMENTS:
            raise ValueError(f"there are two mutants {name}")
        defect = " ".join((make.__doc__ or "").split())
        REPLACEMENTS[name] = Mutant(name, rule, defect, targets, make, profile, world, why_no_seed)
        return make

    return register


def _owner(mutant: Mutant, target: str) -> tuple[Any, str]:
    """Return the owner of the replaced attribute, a module or a class, and the attribute's name."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, attribute = path.split(".")
    for part in outer:
        owner = getattr(owner, part, None)
    if owner is None or attribute not in vars(owner):
        raise MutantGoneError(f"{target}: the target of {mutant.name} is gone")
    return owner, attribute
