"""The cold start: a controller begins while no replica runs in its recorded incarnation (E8).

In a cold start all brokers have restarted, perhaps on an older copy of the store. Only a broker
that has seen a later state of the store notices, when it registers, that the store is an older
copy. The first election of a cold start therefore waits for the brokers of all replicas, up to
leader.recovery.wait.ms. A running cluster never waits: an ISR member, of any partition, that runs
in its recorded incarnation rules out a cold start. This module decides only whether the first
election must wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.controller.topics.changes import TopicFound
from tidelog.core import eligible_replicas
from tidelog.core.types import BrokerInfo, PartitionState


def assigned_in_cold_start(
    topics: Iterable[object], brokers: Mapping[int, BrokerInfo]
) -> frozenset[int]:
    """Return the brokers of all replicas; none if an ISR member still runs, or no topic exists."""
    assigned: set[int] = set()
    for found in topics:
        if not isinstance(found, TopicFound):
            continue
        for partition, state in found.states.items():
            if _goes_on(state, brokers):
                return frozenset()
            # A partition without a readable state gets no election, so its brokers are not awaited.
            assigned.update(found.topic.assignments.get(partition, ()))
    return frozenset(assigned)


def _goes_on(state: PartitionState, brokers: Mapping[int, BrokerInfo]) -> bool:
    """Return whether an ISR member is alive in the incarnation that the state names."""
    recorded = eligible_replicas.isr_epochs(state)
    return any(
        member in brokers and brokers[member].broker_epoch == epoch
        for member, epoch in zip(state.isr, recorded, strict=True)
    )
