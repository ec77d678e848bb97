"""Settings of groups for operators, and limits of the memory that clients can occupy.

The defaults are the same as in Kafka. The caller passes in the function that reads a consumer's
subscription from its metadata, because this package decodes no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import (
    MAX_GROUP_MEMBERS_PER_PARTITION,
    MAX_GROUPS_PER_PARTITION,
    MAX_OFFSETS_PER_GROUP,
)

DAY_MS = 24 * 60 * 60 * 1000


def no_subscription(_metadata: bytes) -> Sequence[str] | None:
    """Return None for any metadata, so that every group counts as subscribed to every topic."""
    return None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of the coordinators of one broker."""

    #: `group.min.session.timeout.ms`
    min_session_timeout_ms: int = 6_000
    #: `group.max.session.timeout.ms`
    max_session_timeout_ms: int = 30 * 60 * 1000
    #: `group.initial.rebalance.delay.ms`
    initial_rebalance_delay_ms: int = 3_000
    #: `group.max.size`
    max_size: int = 2**31 - 1
    #: Time after which a new member that waits in a JoinGroup is removed (Kafka's
    #: NewMemberJoinTimeoutMs). A new member sends no heartbeats while it waits, so the coordinator
    #: cannot see whether its client is gone; a live client retries its join.
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    #: `offset.metadata.max.bytes`; compared with the number of characters, as in Kafka
    offset_metadata_max_bytes: int = 4096
    #: `offsets.retention.minutes`
    offsets_retention_ms: int = 7 * DAY_MS
    max_groups: int = MAX_GROUPS_PER_PARTITION
    #: Limit of the members of all groups of a partition, including clients with only a member id.
    max_members: int = MAX_GROUP_MEMBERS_PER_PARTITION
    max_offsets_per_group: int = MAX_OFFSETS_PER_GROUP
    #: Returns the topics of a ConsumerProtocolSubscription, None for bytes of another format.
    subscription_topics: Callable[[bytes], Sequence[str] | None] = no_subscription
