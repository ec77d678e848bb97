"""SyncGroup: one assignment a generation, in the log before anybody is told."""

from __future__ import annotations

import pytest
from tests.support.group.harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Office,
    joining,
)

from tidelog.core.errors import ErrorCode
from tidelog.group.effects import TimerKind, TimerName
from tidelog.group.requests import MemberIdentity


def two(**changes: object) -> tuple[Office, str, str]:
    """A group of two, the first one leading, that waits for its assignment."""
    office = Office()
    leader, follower = office.member(**changes), office.member(**changes)
    office.sleep(DELAY_MS * 2)
    assert office.state() == "CompletingRebalance"
    return office, leader, follower


def test_everybody_is_told_its_part_when_the_assignment_is_in_the_log() -> None:
    office, leader, follower = two()
    office.holds = True
    first = office.sync(follower, 1)
    second = office.sync(leader, 1, assignments=((leader, b"L"), (follower, b"F"), ("gone", b"G")))
    assert not {first, second} & set(office.answers)
    assert office.state() == "CompletingRebalance"
    office.release()
    told = [office.answers[ticket] for ticket in (first, second)]
    assert [answer.assignment for answer in told] == [b"F", b"L"]
    assert (told[0].protocol_type, told[0].protocol_name) == ("consumer", "range")
    (record,) = office.log
    assert [member.assignment for member in record.value.members] == [b"L", b"F"]  # type: ignore[union-attr]


def test_whom_the_leader_forgot_has_nothing_to_do() -> None:
    office, leader, follower = two()
    office.sync(leader, 1)
    answer = office.answers[office.sync(follower, 1)]
    assert (answer.error, answer.assignment) == (ErrorCode.NONE, b"")


def test_in_a_stable_group_a_sync_tells_the_assignment_again() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    office.sleep(SESSION_MS - 1)
    assert office.answers[office.sync(member_id, 1)].assignment == b"of " + member_id.encode()
    office.sleep(SESSION_MS - 1)
    assert office.state() == "Stable"


def test_who_may_sync() -> None:
    office, leader, _ = two()
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
        answer = office.answers[office.sync(member_id, generation_id, **changes)]
        assert answer.error is error
    ticket = office.sync(leader, 1, protocol_type="consumer", protocol_name="range")
    assert office.answers[ticket].error is ErrorCode.NONE


def test_during_a_rebalance_there_is_no_assignment() -> None:
    office, leader, follower = two()
    waiting = office.sync(follower, 1)
    office.member()
    assert office.answers[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    answer = office.answers[office.sync(leader, 1)]
    assert answer.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_repeated_sync_of_the_leader_writes_no_second_assignment() -> None:
    office, leader, _ = two()
    office.holds = True
    first = office.sync(leader, 1, assignments=((leader, b"one"),))
    second = office.sync(leader, 1, assignments=((leader, b"two"),))
    assert office.answers[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(office.held) == 1
    office.release()
    assert office.answers[second].assignment == b"one"


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
    office, leader, follower = two()
    office.holds = True
    tickets = [office.sync(follower, 1), office.sync(leader, 1)]
    office.fail(error)
    assert [office.answers[ticket].error for ticket in tickets] == [told, told]
    assert office.state() == "PreparingRebalance"


def test_an_assignment_that_takes_too_long_is_void_even_if_it_is_written_later() -> None:
    office, leader, follower = two()
    office.holds = True
    tickets = [office.sync(follower, 1), office.sync(leader, 1)]
    office.overdue()
    assert [office.answers[ticket].error for ticket in tickets] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]
    office.release()
    assert office.state() == "PreparingRebalance"
    assert office.reload().state() == "Stable"


def test_an_overdue_assignment_may_still_fail() -> None:
    office, leader, _ = two()
    office.holds = True
    office.sync(leader, 1)
    office.overdue()
    office.fail()
    assert office.state() == "PreparingRebalance"


def test_an_assignment_of_a_generation_that_is_over_is_void() -> None:
    office, leader, follower = two()
    office.holds = True
    ticket = office.sync(leader, 1, assignments=((leader, b"old"),))
    office.join(follower, protocols=(joining().protocols[0]._replace(metadata=b"u"),))
    assert office.answers[ticket].error is ErrorCode.REBALANCE_IN_PROGRESS
    office.join(leader)
    assert office.group().generation_id == 2
    office.release()
    assert office.state() == "CompletingRebalance"
    assert office.group().members[leader].assignment == b""


def test_an_assignment_of_a_generation_that_is_over_may_fail() -> None:
    office, leader, _ = two()
    office.holds = True
    office.sync(leader, 1)
    office.member()
    office.fail()
    assert (office.state(), office.group().generation_id) == ("PreparingRebalance", 1)


def test_assignments_that_fit_no_record_are_not_tried() -> None:
    office, leader, _ = two()
    answer = office.answers[office.sync(leader, 1, assignments=((leader, bytes(2**20 + 1)),))]
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (office.state(), office.log) == ("PreparingRebalance", [])


def test_a_leader_that_never_assigns_is_dropped() -> None:
    office, leader, follower = two(session_timeout_ms=REBALANCE_MS * 2)
    waiting = office.sync(follower, 1)
    office.sleep(REBALANCE_MS)
    assert office.answers[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(office.group().members) == [follower]
    assert leader not in office.group().members


def test_a_follower_that_never_asks_is_dropped_from_a_stable_group() -> None:
    office, leader, follower = two(session_timeout_ms=REBALANCE_MS * 2)
    office.sync(leader, 1)
    assert office.state() == "Stable"
    office.sleep(REBALANCE_MS)
    assert office.state() == "PreparingRebalance"
    assert list(office.group().members) == [leader]
    assert follower not in office.group().members


def test_when_all_have_asked_nobody_is_waited_for() -> None:
    office = Office()
    office.stable(None, None)
    assert [name.kind for name in office.timers] == [TimerKind.SESSION, TimerKind.SESSION]


def test_who_leaves_while_it_waits_is_answered() -> None:
    office, _, follower = two()
    ticket = office.sync(follower, 1)
    office.leave(follower)
    assert office.answers[ticket].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_in_a_sync_does_not_run_out() -> None:
    office, leader, follower = two()
    waiting = office.sync(follower, 1)
    office.sleep(SESSION_MS - 1)
    office.heartbeat(leader, 1)
    office.sleep(SESSION_MS - 1)
    assert follower in office.group().members
    office.sync(leader, 1)
    assert office.answers[waiting].error is ErrorCode.NONE
    assert TimerName(TimerKind.SESSION, "g", follower) in office.timers
    office.heartbeat(leader, 1)
    office.sleep(SESSION_MS)
    assert office.leave(MemberIdentity(follower))[1] is ErrorCode.UNKNOWN_MEMBER_ID
