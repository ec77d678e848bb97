"""Steps that several scenarios share: a partition in sync, followers pushed out, waits.

A wait yields the times until its next look, in ms, and gives up after a number of looks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from tidelog.sim.checkers.published_state import PublishedPartition
from tidelog.sim.checkers.replica_logs import LogKey
from tidelog.sim.faults.context import FaultContext

#: A wait for a condition; its result is whether the condition held in time.
Wait = Generator[float, None, bool]


def in_time(condition: Callable[[], bool], look_ms: float = 5.0, looks: int = 300) -> Wait:
    """Wait for a condition, not for ever; return whether it holds."""
    for _ in range(looks):
        if condition():
            return True
        yield look_ms
    return condition()


def healthy_partition(context: FaultContext) -> PublishedPartition | None:
    """Return some partition whose replicas are all in sync; None where there is none."""
    states = [
        state
        for state in context.cluster.published.partitions.values()
        if len(state.isr) == len(context.cluster.brokers) and state.leader in state.isr
    ]
    return context.draw.choice(states) if states else None


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
    for follower in followers:
        context.cluster.simulator.network.heal(
            brokers[leader].node.host, brokers[follower].node.host
        )


def is_member(context: FaultContext, key: LogKey, broker_id: int) -> bool:
    """Return whether a broker is in the published ISR; False where the partition is gone."""
    state = context.cluster.published.partitions.get(key)
    return state is not None and broker_id in state.isr
