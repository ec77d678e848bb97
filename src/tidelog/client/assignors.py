"""Assignors of a group's leader: range and cooperative-sticky, as in Kafka's consumers.

An assignor gets each member's subscription and owned partitions, and the number of partitions of
each topic. Equal input gives equal output. The assignors have Kafka's names, because a group may
mix clients. Sources: RangeAssignor, CooperativeStickyAssignor, KIP-429.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition

Shares = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The topics that a joining member subscribes to, and the partitions that it last owned.

    The member owned the partitions in the generation `generation`; -1 if that is unknown.
    """

    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: frozenset[TopicPartition] = field(default_factory=frozenset)
    generation: int = -1


class Assignor(Protocol):
    """A strategy that assigns partitions to the members of a group."""

    #: The protocol name that members agree on.
    name: str
    #: Whether members keep their partitions while they join, and revoke only moved partitions
    #: (KIP-429).
    is_cooperative: bool

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Shares:
        """Return each member's partitions. Topics missing in `partition_counts` do not exist."""
        ...


class RangeAssignor:
    """The assignor of ranges: each member gets a run of adjacent partitions of each topic."""

    name = "range"
    is_cooperative = False

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Shares:
        """Assign topic by topic.

        If topics have equally many partitions, a member gets the same partition numbers of each
        topic.
        """
        shares: Shares = {member: [] for member in members}
        ordered = sorted(members, key=lambda member: members[member].instance_id or member)
        for topic in sorted(partition_counts):
            subscribed = [member for member in ordered if topic in members[member].topics]
            if not subscribed:
                continue
            each, more = divmod(partition_counts[topic], len(subscribed))
            first = 0
            for index, member in enumerate(subscribed):
                end = first + each + (index < more)
                shares[member] += [TopicPartition(topic, number) for number in range(first, end)]
                first = end
        return shares


class CooperativeStickyAssignor:
    """The assignor that keeps partitions with their owners as far as shares stay balanced.

    The move of a partition takes two rebalances. In the first rebalance, the owner revokes the
    moved partition, and no member owns it. The former owner rejoins after the first rebalance, and
    the second rebalance gives the moved partition to another member.
    """

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Shares:
        """Return each member's partitions.

        If all members subscribe to the same topics, the numbers of partitions of two members differ
        by at most one.
        """
        owners = _owners(partition_counts, members)
        wanted = _sticky(partition_counts, members, owners)
        return {
            member: [tp for tp in share if owners.get(tp, member) == member]
            for member, share in wanted.items()
        }


ASSIGNORS: Mapping[str, Assignor] = {
    each.name: each for each in (RangeAssignor(), CooperativeStickyAssignor())
}


def _owners(
    partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> dict[TopicPartition, str]:
    """Return the owner of each partition that any member owns.

    If several members list a partition as owned, the member with the latest generation owns it.
    """
    owners: dict[TopicPartition, str] = {}
    for member in sorted(members):
        subscription = members[member]
        for tp in sorted(subscription.owned):
            if tp.topic not in subscription.topics:
                continue
            if not tp.partition < partition_counts.get(tp.topic, 0):
                continue
            rival = owners.get(tp)
            if rival is None or members[rival].generation < subscription.generation:
                owners[tp] = member
    return owners


def _sticky(
    partition_counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
    owners: Mapping[TopicPartition, str],
) -> Shares:
    """Return each member's partitions: at first the partitions that the member owns.

    Partitions without an owner go to the members with the fewest partitions. Then single partitions
    move until the members' numbers of partitions are balanced.
    """
    shares: Shares = {member: [] for member in sorted(members)}
    for tp in sorted(owners):
        shares[owners[tp]].append(tp)
    for topic in sorted(partition_counts):
        candidates = _subscribed(topic, members)
        for number in range(partition_counts[topic] if candidates else 0):
            tp = TopicPartition(topic, number)
            if tp not in owners:
                shares[_least(shares, candidates)].append(tp)
    while _move_one(shares, members):
        pass
    return {member: sorted(share) for member, share in shares.items()}


def _move_one(shares: Shares, members: Mapping[str, MemberSubscription]) -> bool:
    """Move one partition to a member that has at least two partitions fewer than its owner.

    Returns False if there is no such partition.
    """
    for giver in sorted(shares, key=lambda member: (-len(shares[member]), member)):
        for tp in reversed(shares[giver]):
            taker = _least(shares, _subscribed(tp.topic, members))
            if len(shares[giver]) - len(shares[taker]) > 1:
                shares[giver].remove(tp)
                shares[taker].append(tp)
                return True
    return False


def _subscribed(topic: str, members: Mapping[str, MemberSubscription]) -> Sequence[str]:
    return [member for member in sorted(members) if topic in members[member].topics]


def _least(shares: Shares, candidates: Sequence[str]) -> str:
    return min(candidates, key=lambda member: (len(shares[member]), member))
