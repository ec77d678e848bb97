"""What an operator may set of groups, and the bounds on what clients can make grow.

Defaults are Kafka's. How a consumer's subscription is read from its metadata is given from
outside: the bytes are the wire's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.core.limits import (
    MAX_GROUP_MEMBERS_PER_PARTITION,
    MAX_GROUPS_PER_PARTITION,
    MAX_OFFSETS_PER_GROUP,
)

DAY_MS = 24 * 60 * 60 * 1000


def no_subscription(_metadata: bytes) -> Sequence[str] | None:
    """Reads no metadata at all: every group counts as subscribed to every topic."""
    return None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of the coordinators of one broker."""

    #: `group.min.session.timeout.ms`, `group.max.session.timeout.ms`
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * 60 * 1000
    #: `group.initial.rebalance.delay.ms`
    initial_rebalance_delay_ms: int = 3_000
    #: `group.max.size`
    max_size: int = 2**31 - 1
    #: A new member that waits in a join is dropped after this long: it knows no member id yet,
    #: cannot send heartbeats, and tries again if it lives (Kafka's NewMemberJoinTimeoutMs).
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    #: `offset.metadata.max.bytes`; compared with the number of characters, as Kafka does
    offset_metadata_max_bytes: int = 4096
    #: `offsets.retention.minutes`
    offsets_retention_ms: int = 7 * DAY_MS
    max_groups: int = MAX_GROUPS_PER_PARTITION
    #: Members of all groups of a partition, those included that were only given an id.
    max_members: int = MAX_GROUP_MEMBERS_PER_PARTITION
    max_offsets_per_group: int = MAX_OFFSETS_PER_GROUP
    #: The topics of a ConsumerProtocolSubscription, None where the bytes are not one.
    subscription_topics: Callable[[bytes], Sequence[str] | None] = no_subscription
