"""The registry: every kind of fault and every scenario by name.

A kind is a function that injects one fault through its context, and returns whether it found a
target. Its name in the registry is the function's name. Its docstring is one line, shown to users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.sim.faults.context import FaultContext, Scenario

#: Injects one fault; returns False if it had no target or the budget refused it.
Inject = Callable[[FaultContext], bool]
#: Plays one scenario over and over.
Play = Callable[[FaultContext], Scenario]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault."""

    name: str
    #: The module of the kind: network, store, clocks, processes, disks.
    family: str
    #: The effect of the fault, in one line.
    description: str
    inject: Inject
    #: Whether the promise of an acknowledgement holds under this fault. Such a kind asks the
    #: cluster's fault budget before it loses data.
    is_in_budget: bool = True


KINDS: Final[dict[str, Kind]] = {}
SCENARIOS: Final[dict[str, Play]] = {}


def kind(inject: Inject) -> Inject:
    """Register a kind of fault under its function's name."""
    return _register(inject, is_in_budget=True)


def beyond_budget(inject: Inject) -> Inject:
    """Register a kind of fault that may break promises, for profiles beyond the budget only."""
    return _register(inject, is_in_budget=False)


def _register(inject: Inject, *, is_in_budget: bool) -> Inject:
    name = inject.__name__
    if name in KINDS:
        raise ValueError(f"there are two kinds of faults named {name!r}")
    family = inject.__module__.rpartition(".")[2]
    KINDS[name] = Kind(name, family, (inject.__doc__ or "").strip(), inject, is_in_budget)
    return inject


def scenario(play: Play) -> Play:
    """Register a scenario under its function's name."""
    name = play.__name__
    if name in SCENARIOS:
        raise ValueError(f"there are two scenarios named {name!r}")
    SCENARIOS[name] = play
    return play
