"""The context of one fault: the cluster, the fault's random stream, time, steps, possible targets.

Each fault gets its own context. To undo its effect, a fault passes callbacks to `later` and
`at_end`. This module is the same for all kinds of faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from typing import Final

from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster

#: A scenario yields the time in ms to wait before its next step.
Scenario = Generator[float, None, None]
#: A generator that waits for a condition. It yields the ms until its next check, gives up after a
#: number of checks, and returns whether the condition held in time.
Wait = Generator[float, None, bool]

#: The losses that a crash may ask the fault budget to allow; each entry is equally likely.
LOSSES: Final = (Loss.NONE, Loss.NONE, Loss.UNSYNCED, Loss.UNSYNCED, Loss.ALL_UNSYNCED)


def in_time(condition: Callable[[], bool], look_ms: float = 5.0, looks: int = 300) -> Wait:
    """Check a condition up to `looks` times, each `look_ms`; return whether it became true."""
    for _ in range(looks):
        if condition():
            return True
        yield look_ms
    return condition()


def later_in_time(condition: Callable[[], bool], look_ms: float, looks: int) -> Wait:
    """Wait for a condition as `in_time` does, but wait for `look_ms` before the first check."""
    yield look_ms
    return (yield from in_time(condition, look_ms, looks - 1))


def both_ways(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the links between the given pairs of hosts, in both directions."""
    return [link for source, target in pairs for link in ((source, target), (target, source))]


class RunFaults:
    """The state of a run's faults that all fault contexts share."""

    def __init__(self) -> None:
        #: Whether faults happen now.
        self.is_active = False
        #: Number of injected faults that found a target, by kind.
        self.counts: dict[str, int] = {}
        self._undo: list[Callable[[], None]] = []

    def at_end(self, undo: Callable[[], None]) -> None:
        """Register a callback that runs when the run's faults end."""
        self._undo.append(undo)

    def count(self, kind: str) -> None:
        """Count a fault that was injected, or a scenario that reached its essential step."""
        self.counts[kind] = self.counts.get(kind, 0) + 1


class FaultContext:
    """The context in which one fault acts."""

    __slots__ = ("_faults", "cluster", "draw", "hosts")

    def __init__(
        self, faults: RunFaults, cluster: SimCluster, hosts: list[str], draw: random.Random
    ) -> None:
        self._faults = faults
        self.cluster = cluster
        #: Hosts whose links faults may disturb: all brokers, and some clients.
        self.hosts = hosts
        self.draw = draw

    # Time

    @property
    def is_active(self) -> bool:
        """Whether faults happen now."""
        return self._faults.is_active

    def later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        """Call `callback` after a virtual time, even if the run's faults have ended by then."""
        self.cluster.simulator.scheduler.after(int(delay_ms * NS_PER_MS), None, callback)

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call `undo` when the run's faults end, even if the fault has already called it."""
        self._faults.at_end(undo)

    def until(self, delay_ms: float, undo: Callable[[], None]) -> None:
        """Call `undo` after `delay_ms`, and once more when the run's faults end."""
        self.later(delay_ms, undo)
        self.at_end(undo)

    def heal_later(self, delay_ms: float, heal: Callable[[], None], note: str) -> None:
        """Call `heal` after a virtual time, and add a line to the trace then."""

        def healed() -> None:
            heal()
            self.note(note)

        self.later(delay_ms, healed)

    def about(self, *times_ms: float) -> float:
        """Return one of the given times at random, shortened or extended by up to a half."""
        return self.draw.choice(times_ms) * self.draw.uniform(0.5, 1.5)

    def play(self, scenario: Scenario) -> None:
        """Run a scenario step by step, until it ends or the run's faults end."""
        if not self.is_active:
            return
        try:
            delay_ms = next(scenario)
        except StopIteration:
            return
        self.later(delay_ms, lambda: self.play(scenario))

    # Trace

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.cluster.simulator.note(-1, "fault", text)

    def count(self, kind: str) -> None:
        """Count a fault or scenario by its kind; see RunFaults."""
        self._faults.count(kind)

    # Steps of scenarios

    def cut(self, links: Iterable[tuple[str, str]]) -> None:
        """Cut links."""
        for link in links:
            self.cluster.simulator.network.cut(*link)

    def heal(self, links: Iterable[tuple[str, str]]) -> None:
        """Heal links."""
        for link in links:
            self.cluster.simulator.network.heal(*link)

    def push_out(self, leader: int, followers: Iterable[int]) -> None:
        """Cut the links on which followers fetch from the leader, so that they leave the ISR."""
        for source, target in self._links(leader, followers):
            self.cut([(source, target)])
            self.note(f"push {target} out: {source}>{target} cut")

    def take_back(self, leader: int, followers: Iterable[int]) -> None:
        """Heal the links that `push_out` has cut."""
        self.heal(self._links(leader, followers))

    def _links(self, leader: int, followers: Iterable[int]) -> list[tuple[str, str]]:
        brokers = self.cluster.brokers
        return [(brokers[leader].node.host, brokers[each].node.host) for each in followers]

    def is_member(self, key: LogKey, broker_id: int) -> bool:
        """Return whether a broker is in the published ISR; False if the partition is gone."""
        state = self.cluster.published.partitions.get(key)
        return state is not None and broker_id in state.isr

    def expire(self, broker: SimBroker | None) -> bool:
        """End a broker's session now, if the budget allows it."""
        store = None if broker is None else broker.store
        if broker is None or store is None or store.session_id is None:
            return False
        self.note(f"expire the session of broker {broker.node_id}")
        return self.cluster.store.expire(store.session_id)

    def until_back(
        self, broker: SimBroker, life: int, look_ms: float, looks: int, *, waits: bool
    ) -> Wait:
        """Wait until the broker runs again, in a later incarnation than `life`; with `waits`, wait
        also for a healthy cluster.
        """

        def is_back() -> bool:
            runs = broker.life is not None and broker.incarnation > life
            return runs and not (waits and self.cluster.health())

        return later_in_time(is_back, look_ms, looks)

    # Targets

    def any_broker(self) -> SimBroker | None:
        """Return a random running broker; if only one broker runs, return None in most calls."""
        up = [broker for broker in self.cluster.brokers.values() if broker.life is not None]
        if not up or (len(up) <= 1 and self.draw.random() < 0.8):
            return None
        return self.draw.choice(up)

    def leader(self) -> SimBroker | None:
        """Return the running leader of a random partition; None if there is none."""
        states = [
            state
            for state in self.cluster.published.partitions.values()
            if state.leader in self.cluster.brokers
            and self.cluster.brokers[state.leader].life is not None
        ]
        return self.cluster.brokers[self.draw.choice(states).leader] if states else None

    def others(self, *brokers: SimBroker) -> list[SimBroker]:
        """Return all brokers except the given brokers."""
        return [each for each in self.cluster.brokers.values() if each not in brokers]

    def healthy_partition(self) -> PublishedPartition | None:
        """Return a random partition whose replicas are all in sync; None if there is none."""
        states = [
            state
            for state in self.cluster.published.partitions.values()
            if len(state.isr) == len(self.cluster.brokers) and state.leader in state.isr
        ]
        return self.draw.choice(states) if states else None

    def any_disk(self, broker: SimBroker) -> SimDisk:
        """Return a random disk of a broker; use no random number if the broker has only one
        disk.
        """
        disks = broker.logs.disks
        return disks[0] if len(disks) == 1 else self.draw.choice(disks)

    @staticmethod
    def named(broker: SimBroker, disk: SimDisk) -> str:
        """Return the broker id as text, with the disk's log directory if the broker has several."""
        return f"{broker.node_id}" + (f" ({disk.root})" if len(broker.logs.disks) > 1 else "")

    def controller(self) -> SimBroker | None:
        """Return the broker that believes it is the active controller; None if there is none."""
        for broker in self.cluster.brokers.values():
            if broker.broker is not None and broker.broker.controller.is_active:
                return broker
        return None

    def crash(self, broker: SimBroker | None, reason: str) -> bool:
        """Kill a broker or cut its power; return whether it died."""
        if broker is None or self.any_broker() is None:
            return False
        return broker.crash(self.draw.choice(LOSSES), reason)
