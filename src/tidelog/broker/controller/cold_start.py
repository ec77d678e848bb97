"""The cold start: all brokers restarted after the partition states were written (E8).

A partition state records the incarnation (registration) of each ISR member. In a cold start no ISR
member runs in its recorded incarnation: all brokers have restarted, perhaps on an older copy of the
store. Only a broker that has seen a later state of the store notices, when it registers, that the
store is an older copy. The first election of a cold start therefore waits for the brokers of all
replicas, up to leader.recovery.wait.ms. A controller of a running cluster never waits: if one ISR
member of any partition runs in its recorded incarnation, the cluster is not in a cold start. This
module decides only whether the first election must wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.controller.topics.changes import TopicFound
from tidelog.core import eligible_replicas
from tidelog.core.types import BrokerInfo, PartitionState


def assigned_in_cold_start(
    topics: Iterable[object], brokers: Mapping[int, BrokerInfo]
) -> frozenset[int]:
    """Return the brokers of all replicas; none if this is no cold start, or no topic exists."""
    assigned: set[int] = set()
    for found in topics:
        if not isinstance(found, TopicFound):
            continue
        for partition, state in found.states.items():
            if _goes_on(state, brokers):
                return frozenset()
            # A partition without a readable state gets no election, so the controller does not wait
            # for its brokers.
            assigned.update(found.topic.assignments.get(partition, ()))
    return frozenset(assigned)


def _goes_on(state: PartitionState, brokers: Mapping[int, BrokerInfo]) -> bool:
    """Return whether an ISR member is alive in the incarnation that the state names."""
    recorded = eligible_replicas.isr_epochs(state)
    return any(
        member in brokers and brokers[member].broker_epoch == epoch
        for member, epoch in zip(state.isr, recorded, strict=True)
    )
