"""Steps that several scenarios share: links cut and healed, followers pushed out, waits.

A wait yields the times until its next look, in ms, and gives up after a number of looks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from tidelog.sim.faults.context import FaultContext
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker

#: A wait for a condition; its result is whether the condition held in time.
Wait = Generator[float, None, bool]


def in_time(condition: Callable[[], bool], look_ms: float = 5.0, looks: int = 300) -> Wait:
    """Wait for a condition, not for ever; return whether it holds."""
    for _ in range(looks):
        if condition():
            return True
        yield look_ms
    return condition()


def later_in_time(condition: Callable[[], bool], look_ms: float, looks: int) -> Wait:
    """Wait for a condition as `in_time`; the first look is after an interval."""
    yield look_ms
    return (yield from in_time(condition, look_ms, looks - 1))


def until_back(
    context: FaultContext, broker: SimBroker, life: int, look_ms: float, looks: int, *, waits: bool
) -> Wait:
    """Wait until a broker runs again after its incarnation `life`; with `waits`, until health."""

    def is_back() -> bool:
        runs = broker.life is not None and broker.incarnation > life
        return runs and not (waits and context.cluster.health())

    return later_in_time(is_back, look_ms, looks)


def both_ways(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the links between these pairs of hosts, in both directions."""
    return [link for source, target in pairs for link in ((source, target), (target, source))]


def cut(context: FaultContext, links: Iterable[tuple[str, str]]) -> None:
    """Cut links."""
    for link in links:
        context.cluster.simulator.network.cut(*link)


def heal(context: FaultContext, links: Iterable[tuple[str, str]]) -> None:
    """Heal links."""
    for link in links:
        context.cluster.simulator.network.heal(*link)


def push_out(context: FaultContext, leader: int, followers: Iterable[int]) -> None:
    """Keep followers from fetching from the leader."""
    brokers = context.cluster.brokers
    for follower in followers:
        source, target = brokers[leader].node.host, brokers[follower].node.host
        context.cluster.simulator.network.cut(source, target)
        context.note(f"push {target} out: {source}>{target} cut")


def take_back(context: FaultContext, leader: int, followers: Iterable[int]) -> None:
    """Let followers fetch from the leader again."""
    brokers = context.cluster.brokers
    heal(context, ((brokers[leader].node.host, brokers[each].node.host) for each in followers))


def is_member(context: FaultContext, key: LogKey, broker_id: int) -> bool:
    """Return whether a broker is in the published ISR; False where the partition is gone."""
    state = context.cluster.published.partitions.get(key)
    return state is not None and broker_id in state.isr
