"""A group with its committed offsets, and the methods that every membership protocol defines.

The methods decide whether a client may commit or delete offsets, and whether offsets may expire.
Each membership protocol has a subclass (`classic`).
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
    """One group; `offsets` has only offsets whose records all in-sync replicas have."""

    __slots__ = ("group_id", "is_expiring", "offsets", "uncommitted")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        #: By partition: the number of commits of its offset whose records are being written.
        self.uncommitted: dict[TopicPartition, int] = {}
        #: Whether tombstones of expired offsets are being written.
        self.is_expiring = False

    # Members.

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of members, including clients that have only been given a member id."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members; clients with only a member id do not count."""

    @property
    @abstractmethod
    def is_dead(self) -> bool:
        """Whether the group's deletion is under way, so that the group accepts no requests."""

    @property
    @abstractmethod
    def is_void(self) -> bool:
        """Whether the group has no members, offsets or records, so that it can be dropped."""

    @abstractmethod
    def session_of(self, member_id: str) -> tuple[MemberSession, int] | None:
        """Return a member's session and its timeout in ms, None for an unknown member."""

    # Methods for commits and deletions of offsets, and for the deletion of the group.

    @abstractmethod
    def commit_error(self, message: OffsetCommitRequest) -> ErrorCode:
        """Return the error of an OffsetCommit, NONE if the client may commit."""

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode:
        """Return the error of an OffsetDelete, NONE if offsets may be deleted."""

    @abstractmethod
    def keeps_offsets_of(self, topic: str) -> bool:
        """Return whether a member subscribes, or may subscribe, to a topic.

        OffsetDelete may not delete the group's offsets of such a topic.
        """

    @abstractmethod
    def unused_since_ms(self, key: TopicPartition, offset: CommittedOffset) -> int | None:
        """Return since when an offset is unused, in wall-clock ms; None while used (KIP-211)."""

    @abstractmethod
    def begin_deletion(self) -> Mapping[str, MemberSession]:
        """Enter the state Dead; return the ended sessions of clients with only a member id."""

    @abstractmethod
    def deletion_failed(self) -> None:
        """Become empty again, because the group's tombstones could not be written."""

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Return the tombstones of the group, without the tombstones of its offsets."""

    # Descriptions for clients.

    @abstractmethod
    def described(self) -> DescribedGroup:
        """Return the group's part of a DescribeGroups response."""

    @abstractmethod
    def listed(self) -> ListedGroup:
        """Return the group's part of a ListGroups response."""

    # The following methods serve the model checker.

    @abstractmethod
    def copy(self) -> Group:
        """Return an independent copy."""

    @abstractmethod
    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
