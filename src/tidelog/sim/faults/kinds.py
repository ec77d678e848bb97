"""The registry: every kind of fault and every scenario by name.

A kind is a function that injects one fault through its context, and says whether there was anything
to do it to. Its name in the registry is the function's; its docstring is one line for people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.sim.faults.context import FaultContext, Scenario

#: Injects one fault; False where nothing could be done (nobody to do it to, refused by the budget).
Inject = Callable[[FaultContext], bool]
#: Plays one scenario over and over.
Play = Callable[[FaultContext], Scenario]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault."""

    name: str
    #: The module that it stands in: network, store, clocks, processes, disks.
    family: str
    #: What it does, in one line.
    description: str
    inject: Inject
    #: Whether what an acknowledgement promises holds whatever it does; the cluster's fault budget
    #: is asked where it may take data.
    is_in_budget: bool = True


KINDS: Final[dict[str, Kind]] = {}
SCENARIOS: Final[dict[str, Play]] = {}


def kind(inject: Inject) -> Inject:
    """Register a kind of fault under its function's name."""
    return _register(inject, is_in_budget=True)


def beyond_budget(inject: Inject) -> Inject:
    """Register a kind of fault that may break promises: for profiles beyond the budget alone."""
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
