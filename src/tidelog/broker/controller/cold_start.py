"""A controller that begins while no replica runs in its recorded incarnation (E8).

All brokers have restarted then, perhaps on an older copy of the store. Only a
broker that had seen a later store finds that out, when it registers. So the first election waits
for the brokers of all replicas, leader.recovery.wait.ms at most. A cluster that runs never waits:
one member of one partition that goes on is enough. Decides nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.controller.topics.changes import TopicFound
from tidelog.core import eligible_replicas
from tidelog.core.types import BrokerInfo, PartitionState


def assigned_in_cold_start(
    topics: Iterable[object], brokers: Mapping[int, BrokerInfo]
) -> frozenset[int]:
    """Return the brokers of all replicas; none where a member goes on, or nothing is there."""
    assigned: set[int] = set()
    for found in topics:
        if not isinstance(found, TopicFound):
            continue
        for partition, state in found.states.items():
            if _goes_on(state, brokers):
                return frozenset()
            # A partition without a legible state is left alone: nothing is elected there.
            assigned.update(found.topic.assignments.get(partition, ()))
    return frozenset(assigned)


def _goes_on(state: PartitionState, brokers: Mapping[int, BrokerInfo]) -> bool:
    """Return whether an ISR member is alive in the incarnation that the state names."""
    recorded = eligible_replicas.isr_epochs(state)
    return any(
        member in brokers and brokers[member].broker_epoch == epoch
        for member, epoch in zip(state.isr, recorded, strict=True)
    )
