"""The context of one fault: the cluster, the fault's own draws, time, and whom it may strike.

Each fault gets a context of its own. Kinds keep what they need until they heal in closures
(`later`, `at_end`). Nothing here knows one kind from another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Final, Protocol

from tidelog.sim.disk import Loss
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster

#: A scenario yields how many ms to wait.
Scenario = Generator[float, None, None]

#: What a crash wants to take, as likely as it stands here.
LOSSES: Final = (Loss.NONE, Loss.NONE, Loss.UNSYNCED, Loss.UNSYNCED, Loss.ALL_UNSYNCED)


class RunFaults(Protocol):
    """The faults of a whole run, of which a context has one."""

    #: Whether faults happen now.
    is_active: bool

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call back when the faults of the run end."""

    def count(self, kind: str) -> None:
        """Something was done."""


class FaultContext:
    """What one fault acts on and through."""

    __slots__ = ("_faults", "cluster", "draw", "hosts")

    def __init__(
        self, faults: RunFaults, cluster: SimCluster, hosts: list[str], draw: random.Random
    ) -> None:
        self._faults = faults
        self.cluster = cluster
        #: Whose links may be struck: brokers, and some clients.
        self.hosts = hosts
        self.draw = draw

    # Time

    @property
    def is_active(self) -> bool:
        """Whether faults happen now."""
        return self._faults.is_active

    def later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        """Call back after so much virtual time, whether faults still happen then or not."""
        self.cluster.simulator.scheduler.after(int(delay_ms * NS_PER_MS), None, callback)

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call back when the faults of the run end; what it undoes may be undone already."""
        self._faults.at_end(undo)

    def play(self, scenario: Scenario) -> None:
        """Run a scenario step by step while faults happen."""
        if not self.is_active:
            return
        try:
            delay_ms = next(scenario)
        except StopIteration:
            return
        self.later(delay_ms, lambda: self.play(scenario))

    # What is told

    def note(self, text: str) -> None:
        """Put a line into the trace."""
        self.cluster.simulator.note(-1, "fault", text)

    def count(self, kind: str) -> None:
        """Count something played."""
        self._faults.count(kind)

    # Whom to strike

    def any_broker(self) -> SimBroker | None:
        """A broker that may fall: seldom one of the last."""
        up = [broker for broker in self.cluster.brokers.values() if broker.life is not None]
        if not up or (len(up) <= 1 and self.draw.random() < 0.8):
            return None
        return self.draw.choice(up)

    def leader(self) -> SimBroker | None:
        """The leader of some partition."""
        states = [
            state
            for state in self.cluster.published.partitions.values()
            if state.leader in self.cluster.brokers
            and self.cluster.brokers[state.leader].life is not None
        ]
        return self.cluster.brokers[self.draw.choice(states).leader] if states else None

    def controller(self) -> SimBroker | None:
        """The broker whose controller is in office by its own account."""
        for broker in self.cluster.brokers.values():
            if broker.broker is not None and broker.broker.controller.is_active:
                return broker
        return None

    def crash(self, broker: SimBroker | None, reason: str) -> bool:
        """Kill a broker, or cut its power."""
        if broker is None or self.any_broker() is None:
            return False
        return broker.crash(self.draw.choice(LOSSES), reason)
