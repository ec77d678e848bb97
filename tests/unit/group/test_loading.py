"""Loading, unloading, outcomes out of order, copies: one coordinator under one leader epoch."""

from __future__ import annotations

import pytest
from tests.support.group.asking import (
    SESSION_MS,
    Committed,
    G,
    committing,
    deleting,
    deleting_offsets,
    describing,
    errors_of,
    fetching,
    heartbeating,
    joining,
    leaving,
    syncing,
    under,
)
from tests.support.group.harness import DELAY_MS, SETTINGS, GroupHarness, shards

from tidelog.core.coordinator_shard import CoordinatorAppend, CoordinatorPhase, Now, Reply
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.types import TopicPartition
from tidelog.group.partition import GroupPartition
from tidelog.group.records import (
    CommittedOffset,
    GroupKey,
    GroupRecord,
    GroupSnapshot,
    MemberSnapshot,
    OffsetKey,
    OffsetRecord,
    PartitionIncarnation,
)
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest

T0 = TopicPartition("t", 0)
ID = b"I" * 16
NOW = Now(0, 0)
EVERY_REQUEST = (
    joining(),
    syncing("m", 1),
    heartbeating("m", 1),
    leaving(),
    committing(Committed(T0, 1)),
    fetching(),
    deleting_offsets(T0),
    describing(),
    deleting(),
)


def offset(value: int | None, group_id: str = G) -> OffsetRecord:
    stored = None if value is None else CommittedOffset(value)
    return OffsetRecord(OffsetKey(group_id, T0), stored)


def group_record(*members: str, generation_id: int = 3) -> GroupRecord:
    stored = tuple(
        MemberSnapshot(each, None, "c", "/h", SESSION_MS, SESSION_MS, b"t", b"of " + each.encode())
        for each in members
    )
    protocol, leader = ("range", members[0]) if members else (None, None)
    snapshot = GroupSnapshot("consumer", generation_id, protocol, leader, 0, stored)
    return GroupRecord(GroupKey(G), snapshot)


GONE = GroupRecord(GroupKey(G), None)


def test_a_reload_finds_members_assignments_and_offsets() -> None:
    harness = GroupHarness()
    ids = harness.stable(None, "i")
    harness.commit_offset(5, member_id=ids[0], generation_id=1)
    again = harness.reload()
    assert again.describe() == harness.describe()
    assert again.offset() == 5
    assert again.group().subscribed_topics == {"t"}
    assert again.answers[again.sync(ids[1], 1, instance_id="i")].assignment.endswith(b"i-u3")


def test_loaded_members_must_be_heard_of_within_their_session() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None)
    again = harness.reload()
    assert sorted(name.member_id for name in again.timers) == sorted([first, second])
    again.sleep(SESSION_MS - 1)
    again.heartbeat(first, 1)
    again.sleep(1)
    assert list(again.group().members) == [first]


def test_the_last_record_of_a_key_counts() -> None:
    harness = GroupHarness(
        log=[offset(1), group_record("a"), offset(2), group_record("b"), offset(3)]
    )
    assert list(harness.group().members) == ["b"]
    assert harness.offset() == 3
    assert harness.group().speakers == {"range": 1}


def test_tombstones_take_back() -> None:
    assert GroupHarness(log=[offset(1), offset(None)]).core.groups == {}
    assert GroupHarness(log=[offset(None), GONE]).core.groups == {}
    assert GroupHarness(log=[group_record("a"), GONE]).core.groups == {}


def test_offsets_outlive_the_record_of_their_group() -> None:
    harness = GroupHarness(log=[offset(1), group_record("a"), GONE])
    assert (harness.state(), harness.offset()) == ("Empty", 1)
    assert harness.group().protocol_type is None
    assert harness.timers == {}


def test_a_group_that_was_deleted_may_come_back() -> None:
    harness = GroupHarness(log=[group_record("a"), GONE, group_record("b", generation_id=1)])
    assert list(harness.group().members) == ["b"]


def test_a_record_without_a_protocol_is_loaded() -> None:
    record = group_record("a")
    assert record.value is not None
    snapshot = GroupSnapshot("", 1, None, "nobody", -1, record.value.members)
    harness = GroupHarness(log=[GroupRecord(GroupKey(G), snapshot)])
    assert harness.group().protocol_type is None
    assert harness.answer(joining("a")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.sleep(SESSION_MS)
    assert harness.state() == "Empty"


def test_members_of_a_consumer_group_without_a_protocol_subscribe_to_anything() -> None:
    record = group_record("a")
    assert record.value is not None
    snapshot = GroupSnapshot("consumer", 1, None, "a", -1, record.value.members)
    harness = GroupHarness(log=[GroupRecord(GroupKey(G), snapshot)])
    assert harness.group().is_subscribed("whatever")


def test_requests_wait_until_the_partition_is_loaded() -> None:
    core = GroupPartition(0, 7, SETTINGS)
    for asked in EVERY_REQUEST:
        (effect,) = core.ask(asked, NOW)
        assert isinstance(effect, Reply)
        expected = {
            SyncGroupRequest: ErrorCode.REBALANCE_IN_PROGRESS,
            HeartbeatRequest: ErrorCode.NONE,
        }.get(type(asked.message), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert errors_of(effect.answer) == [expected]
    assert core.expire_offsets(NOW) == core.topics_deleted({"x": (ID,)}, NOW) == ()
    assert core.list_groups() == []


@pytest.mark.parametrize("is_topic", [True, False])
def test_what_ends_while_a_partition_is_loaded_is_forgotten_when_it_is(is_topic: bool) -> None:
    core = GroupPartition(0, 7, SETTINGS)
    core.replay(offset(5))
    if is_topic:
        effects = core.topics_deleted({"t": (ID,)}, NOW)
    else:
        effects = core.partitions_removed({T0: PartitionIncarnation(ID, 3)}, NOW)
    assert effects == ()
    assert core.copy().key() == core.key() != GroupPartition(0, 7, SETTINGS).key()
    # Read after the event: it was committed before.
    core.replay(offset(6, "h"))
    appended = [effect for effect in core.loaded(NOW) if isinstance(effect, CoordinatorAppend)]
    records = [record for append in appended for record in append.records]
    assert records == [offset(None), offset(None, "h")]
    for append in appended:
        core.committed(append.number, NOW)
    assert core.groups == {}
    assert core.partitions_removed({T0: PartitionIncarnation(ID, 3)}, NOW) == ()


def test_records_are_replayed_only_while_loading() -> None:
    harness = GroupHarness()
    with pytest.raises(AssertionError):
        harness.core.replay(offset(1))
    with pytest.raises(AssertionError):
        harness.core.loaded(NOW)


def test_who_waits_is_sent_away_when_the_leadership_ends() -> None:
    harness = GroupHarness()
    leader, static = harness.stable(None, "i")
    harness.commit_offset(1, group_id="k")
    harness.holds = True
    waiting = [
        harness.commit_offset(5, member_id=leader, generation_id=1),
        harness.join(instance_id="i"),
        harness.join(instance_id="i"),
    ]
    harness.join(instance_id="i")
    harness.run(harness.core.ask(under(50, deleting_offsets(T0, group_id="k")), harness.now))
    harness.run(harness.core.ask(under(51, deleting("k")), harness.now))
    waiting += [harness.join(leader), harness.join(group_id="h", instance_id="x")]
    given = harness.join(group_id="h")
    harness.run(harness.core.unload())
    for ticket in (*waiting, 50, 51):
        expected = (
            ErrorCode.FENCED_INSTANCE_ID if ticket == waiting[2] else ErrorCode.NOT_COORDINATOR
        )
        assert errors_of(harness.answers[ticket]) == [expected]
    assert errors_of(harness.answers[given]) == [ErrorCode.MEMBER_ID_REQUIRED]
    assert harness.timers == {}
    assert static not in harness.core.groups
    for asked in EVERY_REQUEST:
        (effect,) = harness.core.ask(asked, harness.now)
        assert isinstance(effect, Reply)
        assert errors_of(effect.answer) == [ErrorCode.NOT_COORDINATOR]


def test_who_waits_for_its_assignment_is_sent_away_too() -> None:
    harness = GroupHarness()
    members = [harness.member(), harness.member()]
    harness.sleep(DELAY_MS * 2)
    tickets = [harness.sync(member_id, 1) for member_id in members[1:]]
    harness.holds = True
    tickets.append(harness.sync(members[0], 1))
    harness.run(harness.core.unload())
    assert [harness.answers[ticket].error_code for ticket in tickets] == [
        ErrorCode.NOT_COORDINATOR
    ] * 2
    assert harness.timers == {}


def test_what_is_overdue_or_unasked_is_answered_no_second_time() -> None:
    harness = GroupHarness()
    harness.commit_offset(1, group_id="k")
    harness.now_ms += SETTINGS.offsets_retention_ms
    harness.holds = True
    harness.run(harness.core.expire_offsets(harness.now))
    harness.release()
    harness.holds = True
    ticket = harness.commit_offset(5)
    harness.overdue()
    assert harness.run(harness.core.unload()) is None  # type: ignore[func-returns-value]  # or raises
    assert harness.committed_error(ticket) is ErrorCode.REQUEST_TIMED_OUT


def test_a_group_that_expires_owes_nobody_an_answer() -> None:
    harness = GroupHarness()
    harness.commit_offset(1)
    harness.now_ms += SETTINGS.offsets_retention_ms
    harness.holds = True
    harness.run(harness.core.expire_offsets(harness.now))
    assert harness.state() == "Dead"
    harness.overdue()
    assert harness.core.unload() == ()


def test_a_group_that_cannot_expire_lives_on() -> None:
    harness = GroupHarness()
    harness.commit_offset(1)
    harness.now_ms += SETTINGS.offsets_retention_ms
    harness.holds = True
    harness.run(harness.core.expire_offsets(harness.now))
    harness.fail()
    assert (harness.state(), harness.offset()) == ("Empty", 1)


def test_outcomes_that_come_after_the_end_do_nothing() -> None:
    harness = GroupHarness()
    harness.holds = True
    harness.commit_offset(5)
    core = harness.core
    core.unload()
    assert core.phase is CoordinatorPhase.UNLOADED
    assert core.committed(0, NOW) == ()
    assert core.failed(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, NOW) == ()
    assert core.timed_out(0, ErrorCode.REQUEST_TIMED_OUT, NOW) == ()
    assert core.timer_fired(TimerName(TimerKind.SESSION, G, "m"), 0, NOW) == ()
    assert core.topics_deleted({"t": (ID,)}, NOW) == core.expire_offsets(NOW) == ()


def test_appends_are_settled_once_and_committed_in_order() -> None:
    harness = GroupHarness()
    harness.holds = True
    harness.commit_offset(5)
    harness.commit_offset(6)
    with pytest.raises(InvariantError, match="before an earlier one"):
        harness.core.copy().committed(1, harness.now)
    harness.release()
    with pytest.raises(InvariantError, match="settled already"):
        harness.core.committed(0, harness.now)


# Copies.


def busy() -> GroupHarness:
    """A coordinator with something of everything."""
    harness = GroupHarness()
    harness.stable(None, "i")
    harness.join(group_id="h", instance_id="x")
    harness.join(group_id="h")
    harness.commit_offset(7, group_id="k")
    harness.holds = True
    harness.commit_offset(8, group_id="k")
    harness.join(instance_id="i")
    return harness


def test_a_copy_is_equal_and_independent() -> None:
    harness = busy()
    before = harness.core.key()
    other = harness.core.copy()
    assert other.key() == before
    assert isinstance(before.__hash__(), int)
    harness.release()
    harness.sleep(DELAY_MS)
    assert other.key() == before != harness.core.key()


def test_a_copy_goes_on_alike() -> None:
    harness = busy()
    other = harness.core.copy()
    for core in (harness.core, other):
        core.committed(next(iter(harness.held)), harness.now)
        core.ask(under(99, joining(group_id="h", uuid="z")), harness.now)
        core.timer_fired(TimerName(TimerKind.JOIN, "h"), 9000, harness.now)
    assert harness.core.key() == other.key()


# Several partitions.


def test_each_partition_is_loaded_under_its_own_epoch() -> None:
    partitions = shards(50)
    assert partitions.coordinator_of(G) is None
    core, effects = partitions.load(partitions.partition_of(G), 3)
    assert effects == ()
    assert partitions.coordinator_of(G) is core
    assert partitions.loaded() == (core,)
    assert partitions.coordinator_of("h") is None


def test_nobody_is_coordinated_before_the_number_of_partitions_is_known() -> None:
    partitions = shards()
    core, _ = partitions.load(0, 3)
    assert partitions.coordinator_of(G) is None
    partitions.partition_count = 1
    assert partitions.coordinator_of(G) is core


def test_a_partition_is_given_up_under_the_epoch_that_was_led() -> None:
    partitions = shards(1)
    assert partitions.unload(0, 3) is None
    old, _ = partitions.load(0, 3)
    assert partitions.load(0, 3) == (None, ())
    new, _ = partitions.load(0, 4)
    assert old is not None
    assert old.phase is CoordinatorPhase.UNLOADED
    assert partitions.unload(0, 3) is None
    assert partitions.loaded() == (new,)
    assert partitions.unload(0, 4) == ()
    assert partitions.loaded() == ()


def test_a_new_topic_counts_its_epochs_anew() -> None:
    partitions = shards(1)
    partitions.load(0, 7)
    partitions.unload(0, 7)
    assert partitions.load(0, 2) == (None, ())
    partitions.forget(0)
    core, _ = partitions.load(0, 2)
    assert core is not None and core.leader_epoch == 2
    with pytest.raises(AssertionError, match="unloaded before it goes"):
        partitions.forget(0)
