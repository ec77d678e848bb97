"""States of a group that must never be: each is built here, and the coordinator objects."""

from __future__ import annotations

import pytest
from tests.support.group.asking import joining, protocols
from tests.support.group.harness import SETTINGS, GroupHarness, shards

from tidelog.core.coordinator_shard import Now
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group import offsets
from tidelog.group.asked import join_error
from tidelog.group.classic import syncing, waits
from tidelog.group.classic.classic_group import ClassicGroup, GroupState
from tidelog.group.classic.joining import static_member_stored
from tidelog.group.classic.member import Member
from tidelog.group.classic.waits import StoreEmpty, StoreStaticMember
from tidelog.group.records import GroupSnapshot, MemberSnapshot, OffsetKey, OffsetRecord
from tidelog.group.sessions import MemberSession
from tidelog.group.turn import Ledger, Turn, Unsettled
from tidelog.wire.messages.sync_group import SyncGroupRequest

KEY = TopicPartition("t", 0)


def member(member_id: str = "m", instance_id: str | None = None) -> Member:
    """A member that waits for nothing."""
    return Member(
        member_id, instance_id, "c", "h", 1_000, 1_000, protocols("range"), MemberSession()
    )


def a_group(*members: Member) -> ClassicGroup:
    """A group that prepares a rebalance."""
    group = ClassicGroup("g")
    group.protocol_type = "consumer"
    for each in members:
        group.add(each)
    group.move_to(GroupState.PREPARING_REBALANCE, 0)
    group.protocol_name = "range"
    return group


def a_turn(group: ClassicGroup) -> Turn:
    return Turn(Now(0, 0), SETTINGS, 7, {group.group_id: group}, Ledger(), 1)


class TestMembers:
    def test_a_member_id_is_given_once(self) -> None:
        group = a_group(member())
        with pytest.raises(AssertionError, match="a member id is given once"):
            group.add(member())

    def test_an_instance_has_one_member(self) -> None:
        group = a_group(member("s-1", "s"))
        with pytest.raises(AssertionError, match="an instance has one member"):
            group.add(member("s-2", "s"))

    def test_a_record_of_the_log_is_taken_as_it_is(self) -> None:
        stored = MemberSnapshot("m", None, "c", "h", 1_000, 1_000, b"", b"")
        group = ClassicGroup("g")
        group.load(GroupSnapshot("consumer", 3, "range", "m", 0, (stored, stored)))
        assert list(group.members) == ["m"] and group.generation_id == 3

    def test_only_members_are_removed(self) -> None:
        group = a_group(member())
        with pytest.raises(AssertionError, match="only members are removed"):
            group.remove(member())

    def test_requests_of_a_removed_member_were_answered(self) -> None:
        joined, synced = member("j"), member("s")
        group = a_group(joined, synced)
        joined.join_ticket = synced.sync_ticket = 1
        with pytest.raises(AssertionError, match="its join was answered"):
            group.remove(joined)
        with pytest.raises(AssertionError, match="its sync was answered"):
            group.remove(synced)

    def test_protocols_are_counted_for_members_only(self) -> None:
        group = a_group(member())
        group.speakers["range"] = 0
        with pytest.raises(AssertionError, match="taken out of the count"):
            group.remove(group.members["m"])

    def test_members_of_all_groups_are_counted(self) -> None:
        harness = GroupHarness()
        (member_id,) = harness.stable(None)
        harness.core._member_count = 0
        with pytest.raises(AssertionError, match="counted once"):
            harness.leave(member_id)


class TestStates:
    def test_a_generation_has_members(self) -> None:
        with pytest.raises(AssertionError, match="such a group has members"):
            a_group().move_to(GroupState.COMPLETING_REBALANCE, 0)

    def test_an_empty_group_has_none(self) -> None:
        with pytest.raises(AssertionError, match="such a group has none"):
            a_group(member()).move_to(GroupState.EMPTY, 0)

    def test_the_leader_of_a_generation_is_a_member(self) -> None:
        group = a_group(member())
        group.leader_id = "another"
        with pytest.raises(AssertionError, match="leader of a group is a member"):
            group.move_to(GroupState.COMPLETING_REBALANCE, 0)

    def test_the_members_of_a_generation_speak_a_protocol(self) -> None:
        group = a_group(member())
        group.protocol_name = None
        with pytest.raises(AssertionError, match="speak a protocol"):
            group.move_to(GroupState.COMPLETING_REBALANCE, 0)

    def test_members_that_wait_in_a_join_are_counted(self) -> None:
        group = a_group(member())
        group.awaiting_join = 1
        with pytest.raises(AssertionError, match="counted once"):
            group.move_to(GroupState.COMPLETING_REBALANCE, 0)
        group.awaiting_join, group.members["m"].join_ticket = 0, 1
        with pytest.raises(AssertionError, match="counted once"):
            waits.end_join(
                a_turn(group), group, group.members["m"], join_error(ErrorCode.NONE, "m")
            )

    def test_instances_and_members_name_each_other(self) -> None:
        group = a_group(member("s-1", "s"))
        group.static_ids["s"] = "s-2"
        with pytest.raises(AssertionError, match="an instance has one member id"):
            group.move_to(GroupState.COMPLETING_REBALANCE, 0)

    def test_only_members_are_to_sync(self) -> None:
        group = a_group(member())
        group.pending_sync["another"] = None
        with pytest.raises(AssertionError, match="only members are to sync"):
            group.move_to(GroupState.COMPLETING_REBALANCE, 0)


class TestGenerations:
    def test_each_is_assigned_once(self) -> None:
        group = a_group(member())
        group.generation_id, group.storing_generation = 3, 4
        message = SyncGroupRequest("g", 3, "m")
        with pytest.raises(AssertionError, match="assigned once"):
            syncing._store(a_turn(group), group, message)

    def test_they_only_grow(self) -> None:
        group = a_group(member())
        snapshot = GroupSnapshot("consumer", 1, "range", "m", 0, ())
        with pytest.raises(AssertionError, match="only grow"):
            syncing.assignment_stored(a_turn(group), group, snapshot)
        asked = joining(instance_id="s")
        purpose = StoreStaticMember(asked, 1, "s-1", "s-2")
        with pytest.raises(AssertionError, match="only grow"):
            static_member_stored(a_turn(group), group, purpose, False)


class TestAppends:
    @pytest.mark.rule("G1")
    def test_a_commit_under_way_is_counted_until_it_is_settled(self) -> None:
        group = ClassicGroup("g")
        record = OffsetRecord(OffsetKey("g", KEY), None)
        group.uncommitted[KEY] = 1
        offsets.settled(group, [record])
        with pytest.raises(AssertionError, match="each commit under way is counted"):
            offsets.settled(group, [record])

    @pytest.mark.rule("G1")
    def test_an_append_is_counted_until_it_is_settled(self) -> None:
        ledger = Ledger()
        number = ledger.enter(Unsettled("g", (), StoreEmpty()))
        ledger._by_group.clear()
        with pytest.raises(AssertionError, match="each append of a group is counted"):
            ledger.settle(number, in_order=True)

    @pytest.mark.rule("G1")
    def test_the_newest_leadership_is_loaded(self) -> None:
        partitions = shards(1)
        partitions.load(0, 3)
        partitions._epochs[0] = 4
        with pytest.raises(AssertionError, match="the newest leadership"):
            partitions.unload(0, 3)
