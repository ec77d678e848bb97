"""The coordinator of the groups of one partition of `__consumer_offsets`, for one leader epoch.

The coordinator loads its state under one leader epoch, and appends only under this leader epoch
(G1). To load, the broker replays the partition's records in order up to the log end; until then the
coordinator rejects requests. The package's docstring describes how a broker uses the coordinator.
The coordinator itself neither accesses the log nor encodes records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tidelog.core.coordinator_shard import CoordinatorPhase, Effects, Now, Reply
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_GROUP_ID_CHARS
from tidelog.core.types import TopicId, TopicPartition
from tidelog.group import forgetting, listing, offsets, settling
from tidelog.group.asked import Asked, refusal
from tidelog.group.classic import joining, membership, syncing
from tidelog.group.classic.classic_group import ClassicGroup, classic
from tidelog.group.forgetting import Ended
from tidelog.group.group import Group
from tidelog.group.records import OffsetRecord, PartitionIncarnation, Record
from tidelog.group.settings import GroupSettings
from tidelog.group.timers import TimerName
from tidelog.group.turn import Ledger, Turn
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.list_groups import ListedGroup
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest
from tidelog.wire.messages.offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: Requests that may have the group id "", because early clients committed offsets without a group
#: id.
_MAY_BE_NAMELESS = (
    OffsetCommitRequest,
    OffsetFetchRequestGroup,
    DescribeGroupsRequest,
    DeleteGroupsRequest,
)


def is_nameable(asked: Asked[Any]) -> bool:
    """Return whether the group id of a request has a valid length.

    Every broker responds INVALID_GROUP_ID to an invalid group id, even if it does not coordinate
    the group.
    """
    size = len(asked.group_id)
    return size <= MAX_GROUP_ID_CHARS and (size > 0 or isinstance(asked.message, _MAY_BE_NAMELESS))


class GroupPartition:
    """The groups of one partition."""

    def __init__(self, partition: int, leader_epoch: int, settings: GroupSettings) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.phase = CoordinatorPhase.LOADING
        self.groups: dict[str, Group] = {}
        self._ledger = Ledger()
        self._member_count = 0
        #: Topics and partitions that ended during the load; their offsets are deleted after the
        #: load.
        self._ended_while_loading = Ended()

    @property
    def size(self) -> int:
        """Number of groups that the partition holds."""
        return len(self.groups)

    # Loading (G1).

    def replay(self, record: Record) -> None:
        """Apply a record of the partition's log, in order, while the partition loads."""
        assert self.phase is CoordinatorPhase.LOADING, (
            "records are replayed before the partition is loaded"
        )
        group_id = record.key.group_id
        group = classic(self.groups.get(group_id))
        if group is None:
            if record.value is None:
                return
            group = self.groups[group_id] = ClassicGroup(group_id)
        if isinstance(record, OffsetRecord):
            offsets.apply(group, record)
        elif record.value is None:
            group.unload()
        else:
            group.load(record.value)
        if group.is_void:
            del self.groups[group_id]

    def incarnation_ended(
        self, partition: TopicPartition, incarnation: PartitionIncarnation
    ) -> None:
        """Note an ended incarnation of a partition, to delete its offsets after the load."""
        assert self.phase is CoordinatorPhase.LOADING, "later ends are published"
        self._ended_while_loading.incarnations.setdefault(partition, set()).add(incarnation)

    def loaded(self, now: Now) -> Effects:
        """End the load, as the replay has reached the log end; accept requests from now on.

        The session timeout of every member starts now. A group over `group.max.size` begins a
        rebalance. Offsets of topics and partitions that ended during the load are deleted.
        """
        assert self.phase is CoordinatorPhase.LOADING, "the partition is loaded already"
        self.phase = CoordinatorPhase.ACTIVE
        turn = self._turn(now)
        for group in self.groups.values():
            self._member_count += group.size
            membership.loaded(turn, group)
        gone, self._ended_while_loading = self._ended_while_loading, Ended()
        for group in self.groups.values():
            forgetting.ended(turn, group, gone)
        return tuple(turn.effects)

    def unload(self) -> Effects:
        """End the leadership: respond NOT_COORDINATOR to waiting requests, and cancel the timers.

        Results of appends that the broker reports after `unload` have no effect.
        """
        turn = self._turn(Now(0, 0))
        for group in self.groups.values():
            membership.moved_away(turn, group)
        for entry in self._ledger.unsettled():
            owed = settling.moved_away(entry)
            if owed is not None:
                turn.reply(*owed)
        self.phase = CoordinatorPhase.UNLOADED
        self.groups, self._ledger, self._member_count = {}, Ledger(), 0
        self._ended_while_loading = Ended()
        return tuple(turn.effects)

    # Requests.

    def ask(self, asked: Asked[Any], now: Now) -> Effects:
        """Handle a request for one group; the answer may come with a later call's effects."""
        error = self._refuses(asked)
        if error is not ErrorCode.NONE:
            return (Reply(asked.ticket, refusal(asked, error)),)
        if self.phase is CoordinatorPhase.LOADING:
            return (Reply(asked.ticket, _while_loading(asked)),)
        turn = self._turn(now)
        size = self._size(asked.group_id)
        match asked.message:
            case HeartbeatRequest():
                membership.heartbeat(turn, asked)
            case OffsetCommitRequest():
                offsets.commit(turn, asked)
            case OffsetFetchRequestGroup():
                offsets.fetch(turn, asked)
            case JoinGroupRequest():
                joining.join(turn, asked)
            case SyncGroupRequest():
                syncing.sync(turn, asked)
            case LeaveGroupRequest():
                membership.leave(turn, asked)
            case OffsetDeleteRequest():
                offsets.delete(turn, asked)
            case DescribeGroupsRequest():
                listing.describe(turn, asked)
            case _:
                assert isinstance(asked.message, DeleteGroupsRequest)
                forgetting.delete_group(turn, asked)
        return self._done(turn, asked.group_id, size)

    def _refuses(self, asked: Asked[Any]) -> ErrorCode:
        if not is_nameable(asked):
            return ErrorCode.INVALID_GROUP_ID
        return (
            ErrorCode.NOT_COORDINATOR if self.phase is CoordinatorPhase.UNLOADED else ErrorCode.NONE
        )

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups in any of these states and of any of these types.

        An empty filter matches all groups.
        """
        return listing.list_groups(self.groups, states, types)

    # Timers and outcomes.

    def timer_fired(self, name: TimerName, deadline_ms: int, now: Now) -> Effects:
        """Handle a timer that was set to `deadline_ms`; ignore a timer that has been set again."""
        group = self.groups.get(name.group_id)
        if group is None:
            return ()
        turn = self._turn(now)
        size = self._size(name.group_id)
        membership.timer_fired(turn, group, name, deadline_ms)
        return self._done(turn, name.group_id, size)

    def committed(self, number: int, now: Now) -> Effects:
        """Apply an append that the high watermark has passed; callers report appends in log order.

        Raises InvariantError if this append is already settled, or an earlier append is not settled
        yet.
        """
        if self.phase is CoordinatorPhase.UNLOADED:
            return ()
        turn = self._turn(now)
        size = self._size(self._ledger.look(number).group_id)
        return self._done(turn, settling.committed(turn, number), size)

    def failed(self, number: int, error: ErrorCode, now: Now) -> Effects:
        """Drop an append that was rejected: its records are not in the log."""
        if self.phase is CoordinatorPhase.UNLOADED:
            return ()
        turn = self._turn(now)
        size = self._size(self._ledger.look(number).group_id)
        return self._done(turn, settling.failed(turn, number, error), size)

    def timed_out(self, number: int, error: ErrorCode, now: Now) -> Effects:
        """Answer the request of an append that is in the log but was not replicated in time.

        The broker calls this method after `offsets.commit.timeout.ms`, or when the ISR falls below
        the minimum. The waiting request gets `error`, and the append may still commit or fail.
        """
        if self.phase is CoordinatorPhase.UNLOADED:
            return ()
        turn = self._turn(now)
        size = self._size(self._ledger.look(number).group_id)
        return self._done(turn, settling.timed_out(turn, number, error), size)

    # Expiry and deletion.

    def expire_offsets(self, now: Now) -> Effects:
        """Expire offsets; called every `offsets.retention.check.interval.ms` (KIP-211)."""
        turn = self._turn(now)
        if self.phase is CoordinatorPhase.ACTIVE:
            for group in self.groups.values():
                forgetting.expire(turn, group)
        return tuple(turn.effects)

    def topics_deleted(self, topics: Mapping[str, Collection[TopicId]], now: Now) -> Effects:
        """Delete the offsets of deleted topics with these ids, after the load if one is under way.

        Offsets that were committed for a later topic of the same name, under another id, stay.
        """
        gone = Ended()
        gone.add_topics(topics)
        return self._ended(gone, now)

    def partitions_removed(
        self, removed: Mapping[TopicPartition, PartitionIncarnation], now: Now
    ) -> Effects:
        """Delete the offsets of partitions that were removed from existing topics (V71)."""
        gone = Ended()
        gone.add_partitions(removed)
        return self._ended(gone, now)

    def _ended(self, gone: Ended, now: Now) -> Effects:
        turn = self._turn(now)
        if self.phase is CoordinatorPhase.LOADING:
            self._ended_while_loading.add_topics(gone.topics)
            self._ended_while_loading.add_partitions(gone.partitions)
        elif self.phase is CoordinatorPhase.ACTIVE:
            for group in self.groups.values():
                forgetting.ended(turn, group, gone)
        return tuple(turn.effects)

    # Internals.

    def _turn(self, now: Now) -> Turn:
        return Turn(
            now, self.settings, self.leader_epoch, self.groups, self._ledger, self._member_count
        )

    def _size(self, group_id: str) -> int:
        group = self.groups.get(group_id)
        return 0 if group is None else group.size

    def _done(self, turn: Turn, group_id: str, former_size: int) -> Effects:
        """End a turn: update the number of members, and drop the group if nothing of it remains."""
        self._member_count += self._size(group_id) - former_size
        assert self._member_count >= 0, "members of all groups are counted once"
        group = self.groups.get(group_id)
        if group is not None and group.is_void and not self._ledger.holds(group_id):
            del self.groups[group_id]
        return tuple(turn.effects)

    # The following methods serve the model checker.

    def copy(self) -> GroupPartition:
        """Return an independent copy."""
        other = GroupPartition(self.partition, self.leader_epoch, self.settings)
        other.phase = self.phase
        other.groups = {name: group.copy() for name, group in self.groups.items()}
        other._ledger = self._ledger.copy()
        other._member_count = self._member_count
        other._ended_while_loading = self._ended_while_loading.copy()
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable value, equal for coordinators that will make the same decisions.

        The model checker compares coordinators by this value. The order of the groups does not
        matter.
        """
        groups = tuple(self.groups[name].key() for name in sorted(self.groups))
        return (
            self.leader_epoch,
            self.phase,
            groups,
            self._ledger.key(),
            self._member_count,
            self._ended_while_loading.key(),
        )


def _while_loading(asked: Asked[Any]) -> Any:
    """Return the answer to a request while the partition loads.

    During the load, a heartbeat succeeds, so that the member stays in its group. A SyncGroup during
    the load makes the member rejoin, because its rebalance was lost with the former coordinator.
    """
    match asked.message:
        case HeartbeatRequest():
            return HeartbeatResponse()
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        case _:
            return refusal(asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
