"""Heartbeat, LeaveGroup, sessions and their timers, and what groups show of themselves."""

from __future__ import annotations

import pytest
from tests.support.group.harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    G,
    Office,
    joining,
)

from tidelog.core.errors import ErrorCode
from tidelog.group.effects import Reply, TimerKind, TimerName
from tidelog.group.requests import HeartbeatAsked


def test_heartbeats_keep_a_member() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    for _ in range(5):
        office.sleep(SESSION_MS - 1)
        assert office.heartbeat(member_id, 1) is ErrorCode.NONE
    office.sleep(SESSION_MS)
    assert office.state() == "Empty"
    assert office.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_moves_a_deadline_and_sets_no_timer() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    name = TimerName(TimerKind.SESSION, G, member_id)
    armed_ms = office.timers[name]
    heard_ms = office.now_ms
    asked = HeartbeatAsked(99, G, 1, member_id)
    (effect,) = office.core.ask(asked, office.now)
    assert isinstance(effect, Reply)
    assert office.timers[name] == armed_ms < heard_ms + SESSION_MS
    office.sleep(armed_ms - heard_ms)
    assert office.timers[name] == heard_ms + SESSION_MS


def test_a_shorter_session_sets_the_timer_earlier() -> None:
    office = Office()
    (member_id,) = office.stable(None, session_timeout_ms=SESSION_MS * 3)
    office.join(member_id)
    name = TimerName(TimerKind.SESSION, G, member_id)
    assert office.timers[name] == office.now_ms + SESSION_MS


def test_timers_that_were_replaced_do_nothing() -> None:
    office = Office()
    (member_id,) = office.stable(None)
    for name in (
        TimerName(TimerKind.SESSION, G, member_id),
        TimerName(TimerKind.SESSION, G, "nobody"),
        TimerName(TimerKind.JOIN, G),
        TimerName(TimerKind.SYNC, G),
        TimerName(TimerKind.JOIN, "nothing"),
    ):
        assert office.core.timer_fired(name, 12345, office.now) == ()
    assert office.state() == "Stable"


def test_heartbeats_tell_of_rebalances() -> None:
    office = Office()
    member_id = office.member()
    assert office.heartbeat(member_id, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    office.sleep(DELAY_MS)
    assert office.heartbeat(member_id, 1) is ErrorCode.NONE
    assert office.state() == "CompletingRebalance"
    office.sync(member_id, 1)
    assert office.heartbeat(member_id, 1) is ErrorCode.NONE


def test_whose_heartbeat_counts() -> None:
    office = Office()
    (member_id,) = office.stable("i")
    for asked, error in (
        ((member_id, 0), ErrorCode.ILLEGAL_GENERATION),
        (("nobody", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (("nobody", 1, "i"), ErrorCode.FENCED_INSTANCE_ID),
        ((member_id, 1, "j"), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member_id, 1, "i", "h"), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member_id, 1, "i", ""), ErrorCode.INVALID_GROUP_ID),
        ((member_id, 1, "i"), ErrorCode.NONE),
    ):
        assert office.heartbeat(*asked) is error  # type: ignore[arg-type]


def test_a_member_that_runs_out_makes_the_others_share_anew() -> None:
    office = Office()
    first, second = office.stable(None, None)
    office.sleep(SESSION_MS - 1)
    office.heartbeat(second, 1)
    office.sleep(1)
    assert office.state() == "PreparingRebalance"
    assert office.group().leader_id == second
    answer = office.answers[office.join(second)]
    assert [member.member_id for member in answer.members] == [second]
    assert first not in office.group().members


def test_the_last_one_awaited_runs_out_and_the_rebalance_ends() -> None:
    office = Office()
    first, _ = office.stable(None, None)
    ticket = office.join(first)
    assert ticket not in office.answers
    office.sleep(SESSION_MS)
    assert office.answers[ticket].generation_id == 2


def test_a_member_that_waits_in_a_join_does_not_run_out() -> None:
    office = Office()
    first, second = office.stable(None, None)
    ticket = office.join(first)
    for _ in range(3):
        office.sleep(SESSION_MS - 1)
        assert office.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert ticket not in office.answers
    office.join(second)
    assert office.answers[ticket].error is ErrorCode.NONE
    assert office.heartbeat(first, 2) is ErrorCode.NONE


def test_several_leave_at_once_with_one_rebalance() -> None:
    office = Office()
    ids = office.stable(None, None, None)
    given = office.answer(joining()).member_id
    errors = office.leave(ids[1], "nobody", given, ids[2], ids[1])
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert office.state() == "PreparingRebalance"
    assert list(office.group().members) == ids[:1]


def test_who_leaves_without_having_joined_begins_no_rebalance() -> None:
    office = Office()
    first = office.stable(None)[0]
    given = office.answer(joining()).member_id
    ticket = office.join(first)
    assert ticket not in office.answers
    assert office.leave(given) == [ErrorCode.NONE, ErrorCode.NONE]
    assert office.answers[ticket].generation_id == 2


def test_the_last_one_that_leaves_makes_the_group_empty() -> None:
    office = Office()
    office.leave(*office.stable(None))
    assert office.state() == "Empty"
    assert (office.group().generation_id, office.group().leader_id) == (2, None)
    assert (office.group().protocol_type, office.group().protocol_name) == ("consumer", None)
    assert office.timers == {}
    again = office.reload()
    assert (again.state(), again.group().generation_id) == ("Empty", 2)


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_nobody_waits_for_the_record_of_an_empty_group(error: ErrorCode) -> None:
    office = Office()
    ids = office.stable(None)
    office.holds = True
    office.leave(*ids)
    office.overdue(error)
    office.fail(error)
    assert office.state() == "Empty"
    assert office.reload().state() == "Stable"


def test_leaving_a_group_that_is_not_there() -> None:
    office = Office()
    assert office.leave("nobody", group_id="h") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert office.leave("nobody", group_id="") == [ErrorCode.INVALID_GROUP_ID]


# What is shown.


def test_a_stable_group_shows_metadata_and_assignments() -> None:
    office = Office()
    first, _ = office.stable(None, "i")
    shown = office.describe()
    assert (shown.state, shown.protocol_type, shown.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert shown.members[0] == (first, None, "c", "/h", b"t", b"of " + first.encode())
    assert shown.members[1].instance_id == "i"


def test_before_that_it_does_not() -> None:
    office = Office()
    member_id = office.member()
    shown = office.describe()
    assert (shown.error, shown.state, shown.protocol_name) == (0, "PreparingRebalance", "")
    assert shown.members == ((member_id, None, "c", "/h", b"", b""),)


def test_a_group_that_is_not_there_is_shown_dead() -> None:
    office = Office()
    assert (office.describe().error, office.describe().state) == (ErrorCode.NONE, "Dead")
    assert office.describe(version=6).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert office.describe("").state == "Dead"


def test_groups_are_listed_by_state_and_type() -> None:
    office = Office()
    office.stable(None)
    office.commit_offset(5, group_id="offsets")
    everything = (("g", "consumer", "Stable"), ("offsets", "", "Empty"))
    assert office.core.list_groups() == everything
    assert office.core.list_groups(["stable", "DEAD"]) == everything[:1]
    assert office.core.list_groups(["Empty"], ["CLASSIC"]) == everything[1:]
    assert office.core.list_groups(types=["consumer"]) == ()


def test_rebalance_timeouts_are_the_longest_ones() -> None:
    office = Office()
    first, second = office.stable(None, None, session_timeout_ms=REBALANCE_MS)
    office.join(second, rebalance_timeout_ms=REBALANCE_MS * 2, protocols=joining().protocols)
    office.join(first, rebalance_timeout_ms=1)
    assert office.timers[TimerName(TimerKind.JOIN, G)] == office.now_ms + REBALANCE_MS
