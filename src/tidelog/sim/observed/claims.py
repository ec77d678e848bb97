"""The claims of a broker about its replicas: roles, high watermarks and pending ISR changes.

A claim is the state of a replica in the memory of its broker; checkers judge whether it is
right.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.core.types import TopicPartition
from tidelog.replication import isr as isr_rules
from tidelog.sim.observed.published_state import Published
from tidelog.sim.observed.replica_logs import LogKey


class ReplicaClaim(NamedTuple):
    """What a broker states about one of its replicas."""

    key: LogKey
    name: TopicPartition
    is_leader: bool
    leader_epoch: int
    high_watermark: int
    #: (member, broker epoch) of each member in a leader's pending ISR changes; empty if there are
    #: none.
    in_flight: tuple[tuple[int, int], ...]
    #: Maximal ISR of a leader: the leader commits a record only when all these members have it.
    #: Empty for a follower.
    maximal_isr: tuple[int, ...]


def claim_of(partition: Partition, published: Published) -> ReplicaClaim:
    """Return the claim of the broker that hosts the replica `partition`."""
    leadership = partition.leadership
    in_flight: tuple[tuple[int, int], ...] = ()
    if leadership is not None and (leadership.isr.in_flight or leadership.isr.queued):
        queued = leadership.isr.queued
        in_flight = tuple(
            pair
            for change in (*leadership.isr.in_flight, *(() if queued is None else (queued,)))
            for pair in zip(change.isr, change.isr_epochs, strict=True)
        )
    maximal_isr = () if leadership is None else isr_rules.maximal_isr(leadership.isr)
    name = partition.topic_partition
    return ReplicaClaim(
        published.key(partition.topic_id, name.partition, partition.leader_epoch),
        name,
        leadership is not None,
        partition.leader_epoch,
        partition.high_watermark,
        in_flight,
        maximal_isr,
    )
