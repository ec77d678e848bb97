"""The registry: every kind of fault and every scenario by name.

A kind is a function that injects one fault through its context. A kind's function returns False if
it found no target, or if the fault budget refused the fault. The name of a kind in the registry is
the name of its function. The one-line docstring of a kind's function describes the kind of fault to
users.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.sim.disk import SimDisk
from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.sim_broker import SimBroker

#: A function that injects one fault; it returns False if the fault had no effect.
Inject = Callable[[FaultContext], bool]
#: A function that returns a scenario, which goes on until it ends or the run's faults end.
Play = Callable[[FaultContext], Scenario]
#: Name of the family of faults that need brokers with several log directories.
LOG_DIRS: Final = "log_dirs"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault. Acknowledged records must survive every kind of fault.

    A fault that would lose data first asks the cluster's fault budget.
    """

    name: str
    #: Name of the module that defines the kind of fault, such as `network` or `disks`.
    family: str
    #: The effect of the fault, in one line.
    description: str
    inject: Inject


KINDS: Final[dict[str, FaultKind]] = {}
SCENARIOS: Final[dict[str, Play]] = {}


def kind(inject: Callable[[FaultContext], bool | None]) -> Inject:
    """Register a kind of fault under its function's name."""

    @wraps(inject)
    def injects(context: FaultContext) -> bool:
        return inject(context) is not False

    name = inject.__name__
    if name in KINDS:
        raise ValueError(f"there are two kinds of faults named {name!r}")
    family = inject.__module__.rpartition(".")[2]
    KINDS[name] = FaultKind(name, family, (inject.__doc__ or "").strip(), injects)
    return injects


def kind_at_broker(inject: Callable[[FaultContext, SimBroker], bool | None]) -> Inject:
    """Register a kind of fault whose function gets a random running broker."""

    @wraps(inject)
    def at_broker(context: FaultContext) -> bool | None:
        broker = context.any_broker()
        return False if broker is None else inject(context, broker)

    return kind(at_broker)


def kind_at_disk(inject: Callable[[FaultContext, SimBroker, SimDisk], bool | None]) -> Inject:
    """Register a kind of fault whose function gets a random disk of a running broker."""

    @wraps(inject)
    def at_disk(context: FaultContext, broker: SimBroker) -> bool | None:
        return inject(context, broker, context.any_disk(broker))

    return kind_at_broker(at_disk)


def scenario(play: Play) -> Play:
    """Register a scenario under its function's name."""
    name = play.__name__
    if name in SCENARIOS:
        raise ValueError(f"there are two scenarios named {name!r}")
    SCENARIOS[name] = play
    return play


def scenario_of_rounds(from_ms: float, to_ms: float) -> Callable[[Play], Play]:
    """Register a scenario that is played repeatedly.

    `from_ms` and `to_ms` bound the random time before each repetition.
    """

    def register(play: Play) -> Play:
        @wraps(play)
        def rounds(context: FaultContext) -> Scenario:
            while True:
                yield context.draw.uniform(from_ms, to_ms)
                yield from play(context)

        return scenario(rounds)

    return register


def scenario_of_partition(
    from_ms: float, to_ms: float
) -> Callable[[Callable[[FaultContext, PublishedPartition], Scenario]], Play]:
    """Register a scenario that is played repeatedly, each time on a partition whose replicas are
    all in sync.
    """

    def register(play: Callable[[FaultContext, PublishedPartition], Scenario]) -> Play:
        @wraps(play)
        def at_partition(context: FaultContext) -> Scenario:
            state = context.healthy_partition()
            if state is not None:
                yield from play(context, state)

        return scenario_of_rounds(from_ms, to_ms)(at_partition)

    return register
