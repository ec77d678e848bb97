"""DeleteGroups, offsets that expire (KIP-211), and offsets of deleted topics.

The coordinator drops state from memory only after its tombstones are written. During its deletion a
group is Dead and accepts no requests; if its tombstones cannot be written, the group accepts
requests again. A large group is deleted in several appends, each small enough for the log, with the
group's own tombstone last. A coordinator that loads the group between two appends of its deletion
finds only the remaining offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_TOMBSTONES_PER_APPEND
from tidelog.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.group import offsets
from tidelog.group.asked import Asked
from tidelog.group.group import Group
from tidelog.group.records import (
    NO_TIMESTAMP,
    UNKNOWN_INCARNATION,
    CommittedOffset,
    PartitionIncarnation,
    Record,
)
from tidelog.group.turn import DeleteGroup, ForgetOffsets, Turn
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest


def delete_group(turn: Turn, asked: Asked[DeleteGroupsRequest]) -> None:
    """Handle a DeleteGroups request for one group."""
    group = turn.groups.get(asked.group_id)
    if group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif group.is_dead:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif not group.is_empty:
        error = ErrorCode.NON_EMPTY_GROUP
    else:
        for member_id, session in group.begin_deletion().items():
            turn.disarm(group, member_id, session)
        delete_step(turn, group, asked.ticket)
        return
    turn.reply(asked.ticket, DeletableGroupResult(asked.group_id, error))


def delete_step(turn: Turn, group: Group, ticket: int | None) -> None:
    """Write the next tombstones of a group; the last append includes the group's own tombstone."""
    keys = list(dict.fromkeys((*group.offsets, *group.uncommitted)))
    records: list[Record] = [
        offsets.tombstone(group, key) for key in keys[:MAX_TOMBSTONES_PER_APPEND]
    ]
    is_last = len(keys) <= MAX_TOMBSTONES_PER_APPEND
    if is_last:
        records.extend(group.tombstones())
    turn.append(group, records, DeleteGroup(ticket, is_last))


def group_deleted(turn: Turn, group: Group, purpose: DeleteGroup, is_overdue: bool) -> None:
    """Continue a group's deletion after one append of its tombstones is in the log."""
    if not purpose.is_last:
        delete_step(turn, group, None if is_overdue else purpose.ticket)
        return
    del turn.groups[group.group_id]
    if purpose.ticket is not None and not is_overdue:
        turn.reply(purpose.ticket, DeletableGroupResult(group.group_id, ErrorCode.NONE))


def group_not_deleted(
    turn: Turn, group: Group, purpose: DeleteGroup, error: ErrorCode, is_overdue: bool
) -> None:
    """Keep a group whose tombstones could not be written."""
    group.deletion_failed()
    if purpose.ticket is not None and not is_overdue:
        turn.reply(purpose.ticket, DeletableGroupResult(group.group_id, error))


# Expiry.


def expire(turn: Turn, group: Group) -> None:
    """Delete offsets whose retention is over, and the group if no other offsets remain."""
    if group.is_dead or group.is_expiring:
        return
    expired = [
        key
        for key, offset in group.offsets.items()
        if key not in group.uncommitted and _is_expired(turn, group, key, offset)
    ]
    is_over = (
        group.is_empty
        and len(expired) == len(group.offsets)
        and not group.size
        and not turn.ledger.holds(group.group_id)
    )
    if is_over:
        group.begin_deletion()
        delete_step(turn, group, None)
    elif expired:
        group.is_expiring = True
        forget(turn, group, expired[:MAX_TOMBSTONES_PER_APPEND], are_expired=True)


def _is_expired(turn: Turn, group: Group, key: TopicPartition, offset: CommittedOffset) -> bool:
    """Return whether an offset's retention is over (KIP-211)."""
    since_ms = group.unused_since_ms(key, offset)
    if since_ms is None:
        return False
    if offset.expire_timestamp_ms != NO_TIMESTAMP:
        return turn.now.wall_ms >= offset.expire_timestamp_ms
    return turn.now.wall_ms - since_ms >= turn.settings.offsets_retention_ms


@dataclass(slots=True)
class Ended:
    """Topics and partitions that no longer exist and whose offsets must be deleted."""

    #: Ids of deleted topics, by name.
    topics: dict[str, set[TopicId]] = field(default_factory=dict)
    #: Partitions that were removed from their topics, with the incarnation that the removal ended
    #: (V71).
    partitions: dict[TopicPartition, PartitionIncarnation] = field(default_factory=dict)
    #: By partition, incarnations that have ended and for which offsets were committed; they ended
    #: before or during the load, without a notice to this coordinator.
    incarnations: dict[TopicPartition, set[PartitionIncarnation]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether no deleted topic, removed partition or ended incarnation is noted."""
        return not (self.topics or self.partitions or self.incarnations)

    def add_topics(self, topics: Mapping[str, Collection[TopicId]]) -> None:
        """Add deleted topics."""
        for name, ids in topics.items():
            self.topics.setdefault(name, set()).update(ids)

    def add_partitions(self, partitions: Mapping[TopicPartition, PartitionIncarnation]) -> None:
        """Add removed partitions."""
        self.partitions.update(partitions)

    def copy(self) -> Ended:
        """Return an independent copy."""
        return Ended(
            {name: set(ids) for name, ids in self.topics.items()},
            dict(self.partitions),
            {partition: set(ended) for partition, ended in self.incarnations.items()},
        )

    def key(self) -> tuple[object, ...]:
        """Return the deleted topics and removed partitions as a hashable value."""
        topics = tuple((name, tuple(sorted(ids))) for name, ids in sorted(self.topics.items()))
        incarnations = tuple(
            (partition, tuple(sorted(ended)))
            for partition, ended in sorted(self.incarnations.items())
        )
        return (topics, tuple(sorted(self.partitions.items())), incarnations)

    def holds(self, key: TopicPartition, incarnation: PartitionIncarnation) -> bool:
        """Return whether a partition has ended in this incarnation.

        An unknown incarnation counts as ended if a topic of this name was deleted, or if the
        partition was removed.
        """
        if incarnation in self.incarnations.get(key, ()):
            return True
        ids = self.topics.get(key.topic)
        if ids is not None and (
            incarnation.topic_id == ZERO_TOPIC_ID or incarnation.topic_id in ids
        ):
            return True
        removed = self.partitions.get(key)
        return removed is not None and incarnation.ended_with(removed)


def ended(turn: Turn, group: Group, gone: Ended) -> None:
    """Delete the offsets of topics and partitions that no longer exist (V71).

    If a new topic has the same name, offsets that were committed for the new topic stay.
    """
    if gone.is_empty:
        return
    keys = [key for key, offset in group.offsets.items() if gone.holds(key, offset.incarnation)]
    # Commits under way may name ended partitions, because the coordinator accepted them before it
    # learned that these partitions no longer exist.
    under_way = [key for key in group.uncommitted if gone.holds(key, UNKNOWN_INCARNATION)]
    _forget_all(turn, group, list(dict.fromkeys((*keys, *under_way))))


def _forget_all(turn: Turn, group: Group, keys: Sequence[TopicPartition]) -> None:
    for start in range(0, len(keys), MAX_TOMBSTONES_PER_APPEND):
        forget(turn, group, keys[start : start + MAX_TOMBSTONES_PER_APPEND], are_expired=False)


def forget(turn: Turn, group: Group, keys: Iterable[TopicPartition], *, are_expired: bool) -> None:
    """Write tombstones of offsets; no request waits for the append."""
    records = [offsets.tombstone(group, key) for key in keys]
    turn.append(group, records, ForgetOffsets(are_expired))
