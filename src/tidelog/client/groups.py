"""Administration of groups: list, describe and delete them; read, set and delete their offsets.

Every broker lists the groups that it coordinates; all other requests go to the group's coordinator.
Offsets are committed with generation -1, which a coordinator accepts only while the group has no
members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.client.cluster import BrokerNode
from tidelog.client.coordinators import Coordinators
from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, expect, topics_of
from tidelog.client.steps import Operation, always
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.core.types import TopicPartition
from tidelog.wire.data.consumer_protocol import ASSIGNMENT, CONSUMER_PROTOCOL_TYPE
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.wire.registry import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)

#: The state of a group that does not exist.
DEAD: Final = "Dead"
#: The state of a group that has no members.
EMPTY: Final = "Empty"
#: From this version on, OffsetFetch names many groups.
_GROUPS_VERSION: Final = 8
#: From this version on OffsetFetch can return all offsets of a group.
_ALL_OFFSETS_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group; `coordinator` is a broker's id."""

    group: str
    #: The group's state; empty if the broker sends none.
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member; `assignment` is None if it is unreadable, or the member is no consumer."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group; `assignor` is the protocol that its members agreed on, empty without members."""

    name: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerNode
    members: tuple[MemberDescription, ...]


class FetchedOffset(NamedTuple):
    """A committed offset, the next to read; `leader_epoch` is -1 if the broker sent none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupAdmin:
    """Operations on groups by clients that are not members."""

    def __init__(self, router: ClusterRouter, coordinators: Coordinators) -> None:
        self._router = router
        self._coordinators = coordinators

    def list_groups(
        self, brokers: Collection[int] | None = None, loading: set[int] | None = None
    ) -> Operation[list[GroupListing]]:
        """Return the groups that these brokers (or all brokers) coordinate, sorted by name.

        A broker that still loads a part of its groups lists only the others. With `loading`, the
        call returns the incomplete list, and adds the ids of such brokers to `loading`. Without it,
        the call waits until all groups are loaded. Raises KafkaError.
        """
        loads = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        tolerated = () if loading is None else (loads,)

        def attempt(patience: Patience) -> Operation[list[GroupListing]]:
            found: dict[str, GroupListing] = {}
            for node in (yield from self._router.all_brokers(patience)):
                if brokers is not None and node.broker_id not in brokers:
                    continue
                response = yield from ask(
                    node,
                    LIST_GROUPS,
                    ListGroupsRequest(),
                    patience,
                    ListGroupsResponse,
                    tolerated=tolerated,
                )
                if loading is not None and response.error_code == loads:
                    loading.add(node.broker_id)
                for each in response.groups:
                    found[each.group_id] = GroupListing(
                        each.group_id, each.group_state, each.protocol_type, node.broker_id
                    )
            return [found[name] for name in sorted(found)]

        return self._router.repeat("listing groups", attempt)

    def describe(self, group: str) -> Operation[GroupDescription]:
        """Return state and members of a group; the state of a missing group is Dead."""
        message = DescribeGroupsRequest(groups=[group])

        def attempt(patience: Patience) -> Operation[GroupDescription]:
            answer = yield from self._coordinators.ask(
                group, DESCRIBE_GROUPS, always(message), patience
            )
            for each in expect(answer, DescribeGroupsResponse).groups:
                if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # Kafka 4: a missing group
                    each.error_code, each.group_state = 0, DEAD
                self._coordinators.check(group, each.error_code)
                node = yield from self._coordinators.find(group, patience)
                return _description(each, node)
            raise _unanswered(group)

        return self._router.repeat(f"describing group {group!r}", attempt)

    def delete(self, group: str) -> Operation[None]:
        """Delete an empty group with its offsets. Raises KafkaError."""
        message = DeleteGroupsRequest(groups_names=[group])

        def attempt(patience: Patience) -> Operation[None]:
            answer = yield from self._coordinators.ask(
                group, DELETE_GROUPS, always(message), patience
            )
            for each in expect(answer, DeleteGroupsResponse).results:
                self._coordinators.check(group, each.error_code)
                return
            raise _unanswered(group)

        return self._router.repeat(f"deleting group {group!r}", attempt)

    # -- offsets --------------------------------------------------------------------------------

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> Operation[dict[TopicPartition, FetchedOffset]]:
        """Return a group's committed offsets, for these partitions or for all."""
        wanted = None if partitions is None else list(partitions)

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, FetchedOffset]]:
            answer = yield from self._coordinators.ask(
                group, OFFSET_FETCH, lambda version: _offset_fetch(group, wanted, version), patience
            )
            response = expect(answer, OffsetFetchResponse)
            found: Any = response
            if answer.version >= _GROUPS_VERSION:
                found = response.groups[0] if response.groups else None
                if found is None:
                    raise _unanswered(group)
            self._coordinators.check(group, found.error_code)
            offsets: dict[TopicPartition, FetchedOffset] = {}
            for topic in found.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    self._coordinators.check(group, each.error_code, f"group {group!r}, {tp}")
                    if each.committed_offset >= 0:
                        offsets[tp] = FetchedOffset(
                            each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                        )
            return dict(sorted(offsets.items()))

        return self._router.repeat(f"reading the offsets of group {group!r}", attempt)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, FetchedOffset],
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> Operation[None]:
        """Commit offsets as a member, or without a member id for a group without members.

        Raises KafkaError with the partition; the error is UNKNOWN_MEMBER_ID if `member_id` is empty
        and the group has members.
        """
        message = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=topics_of(
                offsets,
                OffsetCommitRequestTopic,
                lambda tp: OffsetCommitRequestPartition(tp.partition, *offsets[tp]),
            ),
        )

        def attempt(patience: Patience) -> Operation[None]:
            answer = yield from self._coordinators.ask(
                group, OFFSET_COMMIT, always(message), patience
            )
            for topic in expect(answer, OffsetCommitResponse).topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    self._coordinators.check(group, each.error_code, f"group {group!r}, {tp}")

        return self._router.repeat(f"committing offsets of group {group!r}", attempt)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Operation[None]:
        """Delete a group's committed offsets for these partitions. Raises KafkaError."""
        topics = topics_of(
            partitions,
            OffsetDeleteRequestTopic,
            lambda tp: OffsetDeleteRequestPartition(tp.partition),
        )
        message = OffsetDeleteRequest(group, topics)

        def attempt(patience: Patience) -> Operation[None]:
            answer = yield from self._coordinators.ask(
                group, OFFSET_DELETE, always(message), patience
            )
            response = expect(answer, OffsetDeleteResponse)
            self._coordinators.check(group, response.error_code)
            for topic in response.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    self._coordinators.check(group, each.error_code, f"group {group!r}, {tp}")

        return self._router.repeat(f"deleting offsets of group {group!r}", attempt)


def _offset_fetch(
    group: str, partitions: Sequence[TopicPartition] | None, version: int
) -> OffsetFetchRequest:
    if partitions is None and version < _ALL_OFFSETS_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetFetch {version} cannot ask for all offsets of a group; version"
            f" {_ALL_OFFSETS_VERSION} or later is needed",
        )
    if version >= _GROUPS_VERSION:
        topics = None if partitions is None else topics_of(partitions, OffsetFetchRequestTopics)
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    old = None if partitions is None else topics_of(partitions, OffsetFetchRequestTopic)
    return OffsetFetchRequest(group_id=group, topics=old)


def _description(answer: DescribedGroup, coordinator: BrokerNode) -> GroupDescription:
    is_consumer = answer.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = [_member(each, is_consumer) for each in answer.members]
    return GroupDescription(
        name=answer.group_id,
        state=answer.group_state,
        protocol_type=answer.protocol_type,
        assignor=answer.protocol_data,
        coordinator=coordinator,
        members=tuple(sorted(members, key=lambda each: each.member_id)),
    )


def _member(answer: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
    assignment: tuple[TopicPartition, ...] | None = None
    if is_consumer:
        try:
            assignment = read_assignment(answer.member_assignment)
        except ProtocolError:
            assignment = None  # an assignment of unknown format
    return MemberDescription(
        answer.member_id, answer.group_instance_id, answer.client_id, answer.client_host, assignment
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in a consumer's assignment, none for empty data.

    Raises ProtocolError.
    """
    if not data:
        return ()
    assignment = ASSIGNMENT.decode(data)
    return tuple(
        sorted(
            TopicPartition(each.topic, number)
            for each in assignment.assigned_partitions
            for number in each.partitions
        )
    )


def _unanswered(group: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"the coordinator did not answer for group {group!r}"
    )
