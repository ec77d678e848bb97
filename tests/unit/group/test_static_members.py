"""Static members (KIP-345, KIP-814): they keep their place under a new id."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.group.asking import REBALANCE_MS, SESSION_MS, G, joining, protocols
from tests.support.group.harness import DELAY_MS, GroupHarness

from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import MemberIdentity


def test_a_follower_that_returns_keeps_its_assignment_without_a_rebalance() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable("a", "b")
    answer = harness.answer(joining(instance_id="b", uuid="new"))
    assert (answer.error_code, answer.member_id, answer.generation_id) == (0, "b-new", 1)
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader, False, [])
    assert harness.state() == "Stable"
    synced = harness.answers[harness.sync("b-new", 1, instance_id="b")]
    assert synced.assignment == b"of " + follower.encode()
    assert harness.heartbeat(follower, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat("b-new", 1, "b") is ErrorCode.NONE
    assert list(harness.group().members) == [leader, "b-new"]
    assert harness.heartbeat("b-new", 1, "b") is ErrorCode.NONE
    assert harness.reload().heartbeat("b-new", 1, "b") is ErrorCode.NONE


def test_a_leader_that_returns_need_not_assign() -> None:
    harness = GroupHarness()
    harness.stable("a", "b")
    answer = harness.answer(joining(instance_id="a", uuid="new"))
    assert (answer.leader, answer.skip_assignment) == ("a-new", True)
    assert [member.member_id for member in answer.members] == ["a-new", "b-u2"]
    assert harness.reload().group().leader_id == "a-new"


def test_before_version_9_a_leader_that_returns_is_told_that_another_one_leads() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable("a", "b")
    answer = harness.answer(joining(instance_id="a", uuid="new", version=8))
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader, False, [])
    assert harness.group().leader_id == "a-new"


def test_nothing_is_answered_nor_changed_before_the_new_id_is_in_the_log() -> None:
    harness = GroupHarness()
    _, follower = harness.stable("a", "b")
    harness.holds = True
    ticket = harness.join(instance_id="b")
    assert ticket not in harness.answers
    assert harness.heartbeat(follower, 1, "b") is ErrorCode.NONE
    harness.commit()
    assert harness.answers[ticket].error_code == ErrorCode.NONE
    assert harness.heartbeat(follower, 1, "b") is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_if_it_cannot_be_written_the_old_id_stays(error: ErrorCode, told: ErrorCode) -> None:
    harness = GroupHarness()
    _, follower = harness.stable("a", "b")
    harness.holds = True
    ticket = harness.join(instance_id="b")
    harness.fail(error)
    assert (harness.answers[ticket].error_code, harness.answers[ticket].member_id) == (told, "")
    assert harness.heartbeat(follower, 1, "b") is ErrorCode.NONE


def test_ids_change_one_after_the_other_so_that_the_log_holds_no_mixture() -> None:
    harness = GroupHarness()
    harness.stable("a", "b")
    harness.holds = True
    first, second = harness.join(instance_id="a"), harness.join(instance_id="b")
    assert len(harness.held) == 1
    harness.commit()
    assert first in harness.answers
    assert second not in harness.answers
    harness.release()
    assert harness.answers[second].error_code == ErrorCode.NONE
    ids = {harness.answers[ticket].member_id for ticket in (first, second)}
    assert set(harness.reload().group().members) == ids


def test_of_two_that_wait_for_one_instance_the_first_is_fenced() -> None:
    harness = GroupHarness()
    harness.stable("a", "b")
    harness.holds = True
    harness.join(instance_id="a")
    first, second = harness.join(instance_id="b"), harness.join(instance_id="b")
    assert harness.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    harness.release()
    assert harness.answers[second].error_code == ErrorCode.NONE


def test_while_the_outcome_is_open_nobody_is_kept_waiting() -> None:
    harness = GroupHarness()
    _, follower = harness.stable("a", "b")
    harness.holds = True
    tickets = [harness.join(instance_id="b"), harness.join(instance_id="a")]
    harness.overdue()
    harness.overdue()
    assert [harness.answers[ticket].error_code for ticket in tickets] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]
    third = harness.join(instance_id="a")
    assert harness.answers[third].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.commit()
    assert harness.heartbeat(follower, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
    harness.release()
    assert harness.answer(joining(instance_id="a")).error_code == ErrorCode.NONE


def test_an_overdue_write_that_fails_after_all_changes_nothing() -> None:
    harness = GroupHarness()
    _, follower = harness.stable("a", "b")
    harness.holds = True
    harness.join(instance_id="b")
    harness.overdue()
    harness.fail()
    assert harness.heartbeat(follower, 1, "b") is ErrorCode.NONE


def test_if_the_group_went_on_meanwhile_the_join_is_decided_anew() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable("a", "b")
    harness.holds = True
    ticket = harness.join(instance_id="b")
    harness.join(leader, instance_id="a")
    assert harness.state() == "PreparingRebalance"
    harness.release()
    answer = harness.answers[ticket]
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 2)
    assert list(harness.group().members) == [leader, answer.member_id]


def test_if_the_group_went_on_the_later_join_of_an_instance_fences_the_earlier_ones() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable("a", "b")
    harness.holds = True
    written, waiting = harness.join(instance_id="b"), harness.join(instance_id="b")
    harness.join(leader, instance_id="a")
    latest = harness.join(instance_id="b")
    assert harness.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    harness.release()
    assert harness.answers[written].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert harness.answers[latest].generation_id == 2
    assert list(harness.group().members) == [leader, harness.answers[latest].member_id]


def test_if_the_old_member_left_meanwhile_the_join_is_decided_anew() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable("a", "b")
    harness.holds = True
    ticket = harness.join(instance_id="b")
    harness.leave(MemberIdentity(follower, "b"))
    harness.join(leader, instance_id="a")
    harness.release()
    assert harness.state() == "PreparingRebalance"
    harness.join(leader, instance_id="a")
    assert harness.answers[ticket].generation_id == 3


def test_if_the_group_went_on_an_overdue_join_is_not_decided_anew() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable("a", "b")
    harness.holds = True
    harness.join(instance_id="b")
    harness.overdue()
    harness.join(leader, instance_id="a")
    harness.release()
    assert list(harness.group().members) == [leader, follower]


def test_a_member_that_never_asked_for_its_assignment_is_still_awaited_under_its_new_id() -> None:
    harness = GroupHarness()
    first, second = harness.join(instance_id="a"), harness.join(instance_id="b")
    harness.sleep(DELAY_MS * 2)
    leader, silent = (harness.answers[ticket].member_id for ticket in (first, second))
    harness.sync(leader, 1, instance_id="a")
    assert list(harness.group().pending_sync) == [silent]
    new = harness.answer(joining(instance_id="b", uuid="new")).member_id
    assert list(harness.group().pending_sync) == [new]


def test_other_topics_make_a_rebalance() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable("a", "b")
    ticket = harness.join(instance_id="b", protocols=protocols("range", metadata=b"u"))
    assert harness.state() == "PreparingRebalance"
    harness.join(leader, instance_id="a")
    assert harness.answers[ticket].generation_id == 2


def test_metadata_that_cannot_be_read_or_is_of_no_consumer_makes_none() -> None:
    harness = GroupHarness()
    harness.stable("a")
    harness.answer(joining(instance_id="a", protocols=protocols("range", metadata=b"?")))
    assert harness.state() == "Stable"
    harness = GroupHarness()
    harness.stable("a", protocol_type="connect")
    changed = protocols("range", metadata=b"other")
    harness.answer(joining(instance_id="a", protocol_type="connect", protocols=changed))
    assert harness.state() == "Stable"


def test_another_protocol_makes_a_rebalance() -> None:
    harness = GroupHarness()
    both = protocols("range", "sticky")
    first, second = (harness.join(instance_id=each, protocols=both) for each in "ab")
    harness.sleep(DELAY_MS * 2)
    harness.sync(harness.answers[first].member_id, 1, instance_id="a")
    harness.sync(harness.answers[second].member_id, 1, instance_id="b")
    assert harness.state() == "Stable"
    only = [JoinGroupRequestProtocol("sticky", b"t")]
    harness.join(instance_id="b", protocols=only)
    assert harness.state() == "PreparingRebalance"
    harness.join(harness.answers[first].member_id, instance_id="a", protocols=both)
    assert harness.group().protocol_name == "sticky"


def test_one_that_returns_while_members_join_joins_with_them() -> None:
    harness = GroupHarness()
    first = harness.join(instance_id="a")
    second = harness.join(instance_id="a")
    assert harness.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    harness.sleep(DELAY_MS)
    answer = harness.answers[second]
    assert (answer.error_code, answer.leader) == (ErrorCode.NONE, answer.member_id)
    assert len(answer.members) == 1


def test_one_that_returns_while_the_assignment_is_made_begins_a_rebalance() -> None:
    harness = GroupHarness()
    first, second = harness.join(instance_id="a"), harness.join(instance_id="b")
    harness.sleep(DELAY_MS * 2)
    leader, follower = (harness.answers[ticket].member_id for ticket in (first, second))
    syncing = harness.sync(follower, 1, instance_id="b")
    third = harness.join(instance_id="b")
    assert harness.answers[syncing].error_code == ErrorCode.FENCED_INSTANCE_ID
    harness.join(leader, instance_id="a")
    assert harness.answers[third].generation_id == 2


def test_static_members_that_do_not_join_again_stay_until_their_session_ends() -> None:
    harness = GroupHarness()
    leader, absent = harness.stable("a", "b", session_timeout_ms=REBALANCE_MS * 3)
    ticket = harness.join(leader, instance_id="a", session_timeout_ms=REBALANCE_MS * 3)
    harness.sleep(REBALANCE_MS)
    assert harness.answers[ticket].generation_id == 2
    assert absent in harness.group().members


def test_a_static_leader_that_does_not_join_again_leads_no_longer() -> None:
    harness = GroupHarness()
    absent, follower = harness.stable("a", "b", session_timeout_ms=REBALANCE_MS * 3)
    other = protocols("range", metadata=b"u")
    ticket = harness.join(
        follower, instance_id="b", session_timeout_ms=REBALANCE_MS * 3, protocols=other
    )
    harness.sleep(REBALANCE_MS)
    answer = harness.answers[ticket]
    assert answer.leader == follower
    assert [member.member_id for member in answer.members] == [absent, follower]


def test_a_rebalance_that_no_static_member_joins_waits_for_their_sessions() -> None:
    harness = GroupHarness()
    absent = harness.stable("a", session_timeout_ms=REBALANCE_MS * 3)[0]
    new = harness.member()
    harness.leave(new)
    harness.sleep(REBALANCE_MS * 2)
    assert (harness.state(), harness.group().generation_id) == ("PreparingRebalance", 1)
    assert list(harness.group().members) == [absent]
    harness.sleep(REBALANCE_MS * 2)
    assert (harness.state(), harness.group().generation_id) == ("Empty", 2)


def test_administrators_remove_static_members_by_their_instance() -> None:
    harness = GroupHarness()
    harness.stable("a", "b")
    assert harness.leave(MemberIdentity("", "b"), MemberIdentity("", "nobody")) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert harness.state() == "PreparingRebalance"
    assert list(harness.group().static_ids) == ["a"]


def test_a_member_cannot_leave_for_an_instance_that_has_another_id() -> None:
    harness = GroupHarness()
    harness.stable("a")
    assert harness.leave(MemberIdentity("nobody", "a"))[1] is ErrorCode.FENCED_INSTANCE_ID


def test_a_return_during_the_write_of_a_group_that_died_is_sent_away() -> None:
    harness = GroupHarness()
    member_id = harness.stable("a")[0]
    harness.holds = True
    ticket = harness.join(instance_id="a")
    harness.leave(MemberIdentity(member_id, "a"))
    assert harness.state() == "Empty"
    harness.delete()
    harness.commit()
    assert harness.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.release()
    assert G not in harness.core.groups


def test_a_member_under_its_new_id_must_be_heard_of_too() -> None:
    harness = GroupHarness()
    harness.stable("a")
    new = harness.answer(joining(instance_id="a", uuid="new")).member_id
    harness.sleep(SESSION_MS - 1)
    assert harness.heartbeat(new, 1, "a") is ErrorCode.NONE
    harness.sleep(SESSION_MS)
    assert harness.state() == "Empty"
    assert replace(harness.log[-1].value, members=()) == harness.log[-1].value  # type: ignore[type-var]  # the last record is of a group
