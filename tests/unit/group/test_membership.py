"""Heartbeat, LeaveGroup, sessions and their timers, and what groups show of themselves."""

from __future__ import annotations

import pytest
from tests.support.group.asking import REBALANCE_MS, SESSION_MS, G, heartbeating, joining, under
from tests.support.group.harness import DELAY_MS, GroupHarness

from tidelog.core.coordinator_shard import Reply
from tidelog.core.errors import ErrorCode
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.describe_groups import DescribedGroupMember
from tidelog.wire.messages.list_groups import ListedGroup


def test_heartbeats_keep_a_member() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    for _ in range(5):
        harness.sleep(SESSION_MS - 1)
        assert harness.heartbeat(member_id, 1) is ErrorCode.NONE
    harness.sleep(SESSION_MS)
    assert harness.state() == "Empty"
    assert harness.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_moves_a_deadline_and_sets_no_timer() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    name = TimerName(TimerKind.SESSION, G, member_id)
    armed_ms = harness.timers[name]
    heard_ms = harness.now_ms
    asked = under(99, heartbeating(member_id, 1))
    (effect,) = harness.core.ask(asked, harness.now)
    assert isinstance(effect, Reply)
    assert harness.timers[name] == armed_ms < heard_ms + SESSION_MS
    harness.sleep(armed_ms - heard_ms)
    assert harness.timers[name] == heard_ms + SESSION_MS


def test_a_shorter_session_sets_the_timer_earlier() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None, session_timeout_ms=SESSION_MS * 3)
    harness.join(member_id)
    name = TimerName(TimerKind.SESSION, G, member_id)
    assert harness.timers[name] == harness.now_ms + SESSION_MS


def test_timers_that_were_replaced_do_nothing() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    for name in (
        TimerName(TimerKind.SESSION, G, member_id),
        TimerName(TimerKind.SESSION, G, "nobody"),
        TimerName(TimerKind.JOIN, G),
        TimerName(TimerKind.SYNC, G),
        TimerName(TimerKind.JOIN, "nothing"),
    ):
        assert harness.core.timer_fired(name, 12345, harness.now) == ()
    assert harness.state() == "Stable"


def test_heartbeats_tell_of_rebalances() -> None:
    harness = GroupHarness()
    member_id = harness.member()
    assert harness.heartbeat(member_id, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.sleep(DELAY_MS)
    assert harness.heartbeat(member_id, 1) is ErrorCode.NONE
    assert harness.state() == "CompletingRebalance"
    harness.sync(member_id, 1)
    assert harness.heartbeat(member_id, 1) is ErrorCode.NONE


def test_whose_heartbeat_counts() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable("i")
    for asked, error in (
        ((member_id, 0), ErrorCode.ILLEGAL_GENERATION),
        (("nobody", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (("nobody", 1, "i"), ErrorCode.FENCED_INSTANCE_ID),
        ((member_id, 1, "j"), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member_id, 1, "i", "h"), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member_id, 1, "i", ""), ErrorCode.INVALID_GROUP_ID),
        ((member_id, 1, "i"), ErrorCode.NONE),
    ):
        assert harness.heartbeat(*asked) is error


def test_a_member_that_runs_out_makes_the_others_share_anew() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None)
    harness.sleep(SESSION_MS - 1)
    harness.heartbeat(second, 1)
    harness.sleep(1)
    assert harness.state() == "PreparingRebalance"
    assert harness.group().leader_id == second
    answer = harness.answers[harness.join(second)]
    assert [member.member_id for member in answer.members] == [second]
    assert first not in harness.group().members


def test_the_last_one_awaited_runs_out_and_the_rebalance_ends() -> None:
    harness = GroupHarness()
    first, _ = harness.stable(None, None)
    ticket = harness.join(first)
    assert ticket not in harness.answers
    harness.sleep(SESSION_MS)
    assert harness.answers[ticket].generation_id == 2


def test_a_member_that_waits_in_a_join_does_not_run_out() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None)
    ticket = harness.join(first)
    for _ in range(3):
        harness.sleep(SESSION_MS - 1)
        assert harness.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert ticket not in harness.answers
    harness.join(second)
    assert harness.answers[ticket].error_code == ErrorCode.NONE
    assert harness.heartbeat(first, 2) is ErrorCode.NONE


def test_several_leave_at_once_with_one_rebalance() -> None:
    harness = GroupHarness()
    ids = harness.stable(None, None, None)
    given = harness.answer(joining()).member_id
    errors = harness.leave(ids[1], "nobody", given, ids[2], ids[1])
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().members) == ids[:1]


def test_who_leaves_without_having_joined_begins_no_rebalance() -> None:
    harness = GroupHarness()
    first = harness.stable(None)[0]
    given = harness.answer(joining()).member_id
    ticket = harness.join(first)
    assert ticket not in harness.answers
    assert harness.leave(given) == [ErrorCode.NONE, ErrorCode.NONE]
    assert harness.answers[ticket].generation_id == 2


def test_the_last_one_that_leaves_makes_the_group_empty() -> None:
    harness = GroupHarness()
    harness.leave(*harness.stable(None))
    assert harness.state() == "Empty"
    assert (harness.group().generation_id, harness.group().leader_id) == (2, None)
    assert (harness.group().protocol_type, harness.group().protocol_name) == ("consumer", None)
    assert harness.timers == {}
    again = harness.reload()
    assert (again.state(), again.group().generation_id) == ("Empty", 2)


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_nobody_waits_for_the_record_of_an_empty_group(error: ErrorCode) -> None:
    harness = GroupHarness()
    ids = harness.stable(None)
    harness.holds = True
    harness.leave(*ids)
    harness.overdue(error)
    harness.fail(error)
    assert harness.state() == "Empty"
    assert harness.reload().state() == "Stable"


def test_leaving_a_group_that_is_not_there() -> None:
    harness = GroupHarness()
    assert harness.leave("nobody", group_id="h") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.leave("nobody", group_id="") == [ErrorCode.INVALID_GROUP_ID]


# What is shown.


def test_a_stable_group_shows_metadata_and_assignments() -> None:
    harness = GroupHarness()
    first, _ = harness.stable(None, "i")
    shown = harness.describe()
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert shown.members[0] == DescribedGroupMember(
        first, None, "c", "/h", b"t", b"of " + first.encode()
    )
    assert shown.members[1].group_instance_id == "i"


def test_before_that_it_does_not() -> None:
    harness = GroupHarness()
    member_id = harness.member()
    shown = harness.describe()
    assert (shown.error_code, shown.group_state, shown.protocol_data) == (
        0,
        "PreparingRebalance",
        "",
    )
    assert shown.members == [DescribedGroupMember(member_id, None, "c", "/h", b"", b"")]


def test_a_group_that_is_not_there_is_shown_dead() -> None:
    harness = GroupHarness()
    assert (harness.describe().error_code, harness.describe().group_state) == (
        ErrorCode.NONE,
        "Dead",
    )
    assert harness.describe(version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.describe("").group_state == "Dead"


def test_groups_are_listed_by_state_and_type() -> None:
    harness = GroupHarness()
    harness.stable(None)
    harness.commit_offset(5, group_id="offsets")
    everything = [
        ListedGroup("g", "consumer", "Stable", "classic"),
        ListedGroup("offsets", "", "Empty", "classic"),
    ]
    assert harness.core.list_groups() == everything
    assert harness.core.list_groups(["stable", "DEAD"]) == everything[:1]
    assert harness.core.list_groups(["Empty"], ["CLASSIC"]) == everything[1:]
    assert harness.core.list_groups(types=["consumer"]) == []


def test_rebalance_timeouts_are_the_longest_ones() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None, session_timeout_ms=REBALANCE_MS)
    harness.join(
        second, rebalance_timeout_ms=REBALANCE_MS * 2, protocols=joining().message.protocols
    )
    harness.join(first, rebalance_timeout_ms=1)
    assert harness.timers[TimerName(TimerKind.JOIN, G)] == harness.now_ms + REBALANCE_MS
