"""A group as its offsets see it: what groups of every protocol have and answer.

Here are the committed offsets, and the questions that offsets, deletion and expiry ask of the
members. Each protocol of membership is a subclass (`classic`). This module does not know how
requests are answered, and has no timers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.records import CommittedOffset, Record
from tidelog.group.sessions import MemberSession
from tidelog.wire.messages.describe_groups import DescribedGroup
from tidelog.wire.messages.list_groups import ListedGroup
from tidelog.wire.messages.offset_commit import OffsetCommitRequest


class Group(ABC):
    """State of one group; `offsets` holds the offsets that are committed and replicated."""

    __slots__ = ("group_id", "is_expiring", "offsets", "uncommitted")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        #: Number of commits that are being written, by partition.
        self.uncommitted: dict[TopicPartition, int] = {}
        #: Whether tombstones of expired offsets are being written.
        self.is_expiring = False

    # Members.

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of members, including clients that were only given an id."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members; clients may have been given an id."""

    @property
    @abstractmethod
    def is_dead(self) -> bool:
        """Whether the group's deletion is under way: it accepts no requests."""

    @property
    @abstractmethod
    def is_void(self) -> bool:
        """Whether nothing would be lost with the group, in memory or in the log."""

    @abstractmethod
    def session_of(self, member_id: str) -> tuple[MemberSession, int] | None:
        """Return a member's session and its timeout in ms, None where there is no such member."""

    # Offsets and the end of the group.

    @abstractmethod
    def commit_error(self, message: OffsetCommitRequest) -> ErrorCode:
        """Return the error of an OffsetCommit, NONE where the client may commit."""

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode:
        """Return the error of an OffsetDelete, NONE where offsets may be deleted."""

    @abstractmethod
    def keeps_offsets_of(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic, or may do so: its offsets stay."""

    @abstractmethod
    def unused_since_ms(self, key: TopicPartition, offset: CommittedOffset) -> int | None:
        """Return since when an offset is not used, wall clock; None while it is (KIP-211)."""

    @abstractmethod
    def begin_deletion(self) -> Mapping[str, MemberSession]:
        """Be dead; return the sessions of clients that were given an id, which end."""

    @abstractmethod
    def deletion_failed(self) -> None:
        """Be empty again, as the tombstones are not in the log."""

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Return the records that end the group, without those of its offsets."""

    # What is shown.

    @abstractmethod
    def described(self) -> DescribedGroup:
        """Return the group's part of a DescribeGroups response."""

    @abstractmethod
    def listed(self) -> ListedGroup:
        """Return the group's part of a ListGroups response."""

    # For the model checker.

    @abstractmethod
    def copy(self) -> Group:
        """Return an independent copy."""

    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
