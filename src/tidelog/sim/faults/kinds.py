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
    #: Whether the kind needs brokers with several log directories.
    needs_log_dirs: bool = False


KINDS: Final[dict[str, Kind]] = {}
SCENARIOS: Final[dict[str, Play]] = {}


def kind(inject: Inject) -> Inject:
    """Register a kind of fault under its function's name."""
    return _register(inject, is_in_budget=True)


def kind_of_log_dirs(inject: Inject) -> Inject:
    """Register a kind of fault that needs brokers with several log directories."""
    return _register(inject, is_in_budget=True, needs_log_dirs=True)


def beyond_budget(inject: Inject) -> Inject:
    """Register a kind of fault that may break promises, for profiles beyond the budget only."""
    return _register(inject, is_in_budget=False)


def _register(inject: Inject, *, is_in_budget: bool, needs_log_dirs: bool = False) -> Inject:
    name = inject.__name__
    if name in KINDS:
        raise ValueError(f"there are two kinds of faults named {name!r}")
    family = inject.__module__.rpartition(".")[2]
    description = (inject.__doc__ or "").strip()
    KINDS[name] = Kind(name, family, description, inject, is_in_budget, needs_log_dirs)
    return inject


def scenario(play: Play) -> Play:
    """Register a scenario under its function's name."""
    name = play.__name__
    if name in SCENARIOS:
        raise ValueError(f"there are two scenarios named {name!r}")
    SCENARIOS[name] = play
    return play
