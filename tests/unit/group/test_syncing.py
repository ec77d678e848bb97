"""SyncGroup: one assignment a generation, in the log before anybody is told."""

from __future__ import annotations

import pytest
from tests.support.group.asking import REBALANCE_MS, SESSION_MS, protocols
from tests.support.group.harness import DELAY_MS, GroupHarness

from tidelog.core.errors import ErrorCode
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.leave_group import MemberIdentity


def two(**changes: object) -> tuple[GroupHarness, str, str]:
    """A group of two, the first one leading, that waits for its assignment."""
    harness = GroupHarness()
    leader, follower = harness.member(**changes), harness.member(**changes)
    harness.sleep(DELAY_MS * 2)
    assert harness.state() == "CompletingRebalance"
    return harness, leader, follower


def test_everybody_is_told_its_part_when_the_assignment_is_in_the_log() -> None:
    harness, leader, follower = two()
    harness.holds = True
    first = harness.sync(follower, 1)
    second = harness.sync(leader, 1, assignments=((leader, b"L"), (follower, b"F"), ("gone", b"G")))
    assert not {first, second} & set(harness.answers)
    assert harness.state() == "CompletingRebalance"
    harness.release()
    told = [harness.answers[ticket] for ticket in (first, second)]
    assert [answer.assignment for answer in told] == [b"F", b"L"]
    assert (told[0].protocol_type, told[0].protocol_name) == ("consumer", "range")
    (record,) = harness.log
    assert [member.assignment for member in record.value.members] == [b"L", b"F"]  # type: ignore[union-attr]  # the record is of a group


def test_whom_the_leader_forgot_has_nothing_to_do() -> None:
    harness, leader, follower = two()
    harness.sync(leader, 1)
    answer = harness.answers[harness.sync(follower, 1)]
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"")


def test_in_a_stable_group_a_sync_tells_the_assignment_again() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    harness.sleep(SESSION_MS - 1)
    assert harness.answers[harness.sync(member_id, 1)].assignment == b"of " + member_id.encode()
    harness.sleep(SESSION_MS - 1)
    assert harness.state() == "Stable"


def test_who_may_sync() -> None:
    harness, leader, _ = two()
    for member_id, generation_id, changes, error in (
        (leader, 1, {"group_id": "h"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, 0, {}, ErrorCode.ILLEGAL_GENERATION),
        (leader, 2, {}, ErrorCode.ILLEGAL_GENERATION),
        (leader, 1, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (leader, 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (leader, 1, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ):
        answer = harness.answers[harness.sync(member_id, generation_id, **changes)]
        assert answer.error_code == error
    ticket = harness.sync(leader, 1, protocol_type="consumer", protocol_name="range")
    assert harness.answers[ticket].error_code == ErrorCode.NONE


def test_during_a_rebalance_there_is_no_assignment() -> None:
    harness, leader, follower = two()
    waiting = harness.sync(follower, 1)
    harness.member()
    assert harness.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    answer = harness.answers[harness.sync(leader, 1)]
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_repeated_sync_of_the_leader_writes_no_second_assignment() -> None:
    harness, leader, _ = two()
    harness.holds = True
    first = harness.sync(leader, 1, assignments=((leader, b"one"),))
    second = harness.sync(leader, 1, assignments=((leader, b"two"),))
    assert harness.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(harness.held) == 1
    harness.release()
    assert harness.answers[second].assignment == b"one"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_an_assignment_that_cannot_be_written_makes_everybody_join_again(
    error: ErrorCode, told: ErrorCode
) -> None:
    harness, leader, follower = two()
    harness.holds = True
    tickets = [harness.sync(follower, 1), harness.sync(leader, 1)]
    harness.fail(error)
    assert [harness.answers[ticket].error_code for ticket in tickets] == [told, told]
    assert harness.state() == "PreparingRebalance"


def test_an_assignment_that_takes_too_long_is_void_even_if_it_is_written_later() -> None:
    harness, leader, follower = two()
    harness.holds = True
    tickets = [harness.sync(follower, 1), harness.sync(leader, 1)]
    harness.overdue()
    assert [harness.answers[ticket].error_code for ticket in tickets] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]
    harness.release()
    assert harness.state() == "PreparingRebalance"
    assert harness.reload().state() == "Stable"


def test_an_overdue_assignment_may_still_fail() -> None:
    harness, leader, _ = two()
    harness.holds = True
    harness.sync(leader, 1)
    harness.overdue()
    harness.fail()
    assert harness.state() == "PreparingRebalance"


def test_an_assignment_of_a_generation_that_is_over_is_void() -> None:
    harness, leader, follower = two()
    harness.holds = True
    ticket = harness.sync(leader, 1, assignments=((leader, b"old"),))
    harness.join(follower, protocols=protocols("range", metadata=b"u"))
    assert harness.answers[ticket].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.join(leader)
    assert harness.group().generation_id == 2
    harness.release()
    assert harness.state() == "CompletingRebalance"
    assert harness.group().members[leader].assignment == b""


def test_an_assignment_of_a_generation_that_is_over_may_fail() -> None:
    harness, leader, _ = two()
    harness.holds = True
    harness.sync(leader, 1)
    harness.member()
    harness.fail()
    assert (harness.state(), harness.group().generation_id) == ("PreparingRebalance", 1)


def test_assignments_that_fit_no_record_are_not_tried() -> None:
    harness, leader, _ = two()
    answer = harness.answers[harness.sync(leader, 1, assignments=((leader, bytes(2**20 + 1)),))]
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (harness.state(), harness.log) == ("PreparingRebalance", [])


def test_a_leader_that_never_assigns_is_dropped() -> None:
    harness, leader, follower = two(session_timeout_ms=REBALANCE_MS * 2)
    waiting = harness.sync(follower, 1)
    harness.sleep(REBALANCE_MS)
    assert harness.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(harness.group().members) == [follower]
    assert leader not in harness.group().members


def test_a_follower_that_never_asks_is_dropped_from_a_stable_group() -> None:
    harness, leader, follower = two(session_timeout_ms=REBALANCE_MS * 2)
    harness.sync(leader, 1)
    assert harness.state() == "Stable"
    harness.sleep(REBALANCE_MS)
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().members) == [leader]
    assert follower not in harness.group().members


def test_when_all_have_asked_nobody_is_waited_for() -> None:
    harness = GroupHarness()
    harness.stable(None, None)
    assert [name.kind for name in harness.timers] == [TimerKind.SESSION, TimerKind.SESSION]


def test_who_leaves_while_it_waits_is_answered() -> None:
    harness, _, follower = two()
    ticket = harness.sync(follower, 1)
    harness.leave(follower)
    assert harness.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_in_a_sync_does_not_run_out() -> None:
    harness, leader, follower = two()
    waiting = harness.sync(follower, 1)
    harness.sleep(SESSION_MS - 1)
    harness.heartbeat(leader, 1)
    harness.sleep(SESSION_MS - 1)
    assert follower in harness.group().members
    harness.sync(leader, 1)
    assert harness.answers[waiting].error_code == ErrorCode.NONE
    assert TimerName(TimerKind.SESSION, "g", follower) in harness.timers
    harness.heartbeat(leader, 1)
    harness.sleep(SESSION_MS)
    assert harness.leave(MemberIdentity(follower))[1] is ErrorCode.UNKNOWN_MEMBER_ID
