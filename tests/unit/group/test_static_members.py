"""Static members (KIP-345, KIP-814): they keep their place under a new id."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.group.harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    G,
    Office,
    joining,
    protocols,
)

from tidelog.core.errors import ErrorCode
from tidelog.group.requests import MemberIdentity, Protocol


def test_a_follower_that_returns_keeps_its_assignment_without_a_rebalance() -> None:
    office = Office()
    leader, follower = office.stable("a", "b")
    answer = office.answer(joining(instance_id="b", uuid="new"))
    assert (answer.error, answer.member_id, answer.generation_id) == (0, "b-new", 1)
    assert (answer.leader_id, answer.skip_assignment, answer.members) == (leader, False, ())
    assert office.state() == "Stable"
    synced = office.answers[office.sync("b-new", 1, instance_id="b")]
    assert synced.assignment == b"of " + follower.encode()
    assert office.heartbeat(follower, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
    assert office.heartbeat("b-new", 1, "b") is ErrorCode.NONE
    assert list(office.group().members) == [leader, "b-new"]
    assert office.heartbeat("b-new", 1, "b") is ErrorCode.NONE
    assert office.reload().heartbeat("b-new", 1, "b") is ErrorCode.NONE


def test_a_leader_that_returns_need_not_assign() -> None:
    office = Office()
    office.stable("a", "b")
    answer = office.answer(joining(instance_id="a", uuid="new"))
    assert (answer.leader_id, answer.skip_assignment) == ("a-new", True)
    assert [member.member_id for member in answer.members] == ["a-new", "b-u2"]
    assert office.reload().group().leader_id == "a-new"


def test_before_version_9_a_leader_that_returns_is_told_that_another_one_leads() -> None:
    office = Office()
    leader, _ = office.stable("a", "b")
    answer = office.answer(joining(instance_id="a", uuid="new", version=8))
    assert (answer.leader_id, answer.skip_assignment, answer.members) == (leader, False, ())
    assert office.group().leader_id == "a-new"


def test_nothing_is_answered_nor_changed_before_the_new_id_is_in_the_log() -> None:
    office = Office()
    _, follower = office.stable("a", "b")
    office.holds = True
    ticket = office.join(instance_id="b")
    assert ticket not in office.answers
    assert office.heartbeat(follower, 1, "b") is ErrorCode.NONE
    office.commit()
    assert office.answers[ticket].error is ErrorCode.NONE
    assert office.heartbeat(follower, 1, "b") is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_if_it_cannot_be_written_the_old_id_stays(error: ErrorCode, told: ErrorCode) -> None:
    office = Office()
    _, follower = office.stable("a", "b")
    office.holds = True
    ticket = office.join(instance_id="b")
    office.fail(error)
    assert (office.answers[ticket].error, office.answers[ticket].member_id) == (told, "")
    assert office.heartbeat(follower, 1, "b") is ErrorCode.NONE


def test_ids_change_one_after_the_other_so_that_the_log_holds_no_mixture() -> None:
    office = Office()
    office.stable("a", "b")
    office.holds = True
    first, second = office.join(instance_id="a"), office.join(instance_id="b")
    assert len(office.held) == 1
    office.commit()
    assert first in office.answers
    assert second not in office.answers
    office.release()
    assert office.answers[second].error is ErrorCode.NONE
    ids = {office.answers[ticket].member_id for ticket in (first, second)}
    assert set(office.reload().group().members) == ids


def test_of_two_that_wait_for_one_instance_the_first_is_fenced() -> None:
    office = Office()
    office.stable("a", "b")
    office.holds = True
    office.join(instance_id="a")
    first, second = office.join(instance_id="b"), office.join(instance_id="b")
    assert office.answers[first].error is ErrorCode.FENCED_INSTANCE_ID
    office.release()
    assert office.answers[second].error is ErrorCode.NONE


def test_while_the_outcome_is_open_nobody_is_kept_waiting() -> None:
    office = Office()
    _, follower = office.stable("a", "b")
    office.holds = True
    tickets = [office.join(instance_id="b"), office.join(instance_id="a")]
    office.overdue()
    office.overdue()
    assert [office.answers[ticket].error for ticket in tickets] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]
    third = office.join(instance_id="a")
    assert office.answers[third].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.commit()
    assert office.heartbeat(follower, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
    office.release()
    assert office.answer(joining(instance_id="a")).error is ErrorCode.NONE


def test_an_overdue_write_that_fails_after_all_changes_nothing() -> None:
    office = Office()
    _, follower = office.stable("a", "b")
    office.holds = True
    office.join(instance_id="b")
    office.overdue()
    office.fail()
    assert office.heartbeat(follower, 1, "b") is ErrorCode.NONE


def test_if_the_group_went_on_meanwhile_the_join_is_decided_anew() -> None:
    office = Office()
    leader, _ = office.stable("a", "b")
    office.holds = True
    ticket = office.join(instance_id="b")
    office.join(leader, instance_id="a")
    assert office.state() == "PreparingRebalance"
    office.release()
    answer = office.answers[ticket]
    assert (answer.error, answer.generation_id) == (ErrorCode.NONE, 2)
    assert list(office.group().members) == [leader, answer.member_id]


def test_if_the_group_went_on_the_later_join_of_an_instance_fences_the_earlier_ones() -> None:
    office = Office()
    leader, _ = office.stable("a", "b")
    office.holds = True
    written, waiting = office.join(instance_id="b"), office.join(instance_id="b")
    office.join(leader, instance_id="a")
    latest = office.join(instance_id="b")
    assert office.answers[waiting].error is ErrorCode.FENCED_INSTANCE_ID
    office.release()
    assert office.answers[written].error is ErrorCode.FENCED_INSTANCE_ID
    assert office.answers[latest].generation_id == 2
    assert list(office.group().members) == [leader, office.answers[latest].member_id]


def test_if_the_old_member_left_meanwhile_the_join_is_decided_anew() -> None:
    office = Office()
    leader, follower = office.stable("a", "b")
    office.holds = True
    ticket = office.join(instance_id="b")
    office.leave(MemberIdentity(follower, "b"))
    office.join(leader, instance_id="a")
    office.release()
    assert office.state() == "PreparingRebalance"
    office.join(leader, instance_id="a")
    assert office.answers[ticket].generation_id == 3


def test_if_the_group_went_on_an_overdue_join_is_not_decided_anew() -> None:
    office = Office()
    leader, follower = office.stable("a", "b")
    office.holds = True
    office.join(instance_id="b")
    office.overdue()
    office.join(leader, instance_id="a")
    office.release()
    assert list(office.group().members) == [leader, follower]


def test_a_member_that_never_asked_for_its_assignment_is_still_awaited_under_its_new_id() -> None:
    office = Office()
    first, second = office.join(instance_id="a"), office.join(instance_id="b")
    office.sleep(DELAY_MS * 2)
    leader, silent = (office.answers[ticket].member_id for ticket in (first, second))
    office.sync(leader, 1, instance_id="a")
    assert list(office.group().pending_sync) == [silent]
    new = office.answer(joining(instance_id="b", uuid="new")).member_id
    assert list(office.group().pending_sync) == [new]


def test_other_topics_make_a_rebalance() -> None:
    office = Office()
    leader, _ = office.stable("a", "b")
    ticket = office.join(instance_id="b", protocols=protocols("range", metadata=b"u"))
    assert office.state() == "PreparingRebalance"
    office.join(leader, instance_id="a")
    assert office.answers[ticket].generation_id == 2


def test_metadata_that_cannot_be_read_or_is_of_no_consumer_makes_none() -> None:
    office = Office()
    office.stable("a")
    office.answer(joining(instance_id="a", protocols=protocols("range", metadata=b"?")))
    assert office.state() == "Stable"
    office = Office()
    office.stable("a", protocol_type="connect")
    changed = protocols("range", metadata=b"other")
    office.answer(joining(instance_id="a", protocol_type="connect", protocols=changed))
    assert office.state() == "Stable"


def test_another_protocol_makes_a_rebalance() -> None:
    office = Office()
    both = protocols("range", "sticky")
    first, second = (office.join(instance_id=each, protocols=both) for each in "ab")
    office.sleep(DELAY_MS * 2)
    office.sync(office.answers[first].member_id, 1, instance_id="a")
    office.sync(office.answers[second].member_id, 1, instance_id="b")
    assert office.state() == "Stable"
    only = (Protocol("sticky", b"t"),)
    office.join(instance_id="b", protocols=only)
    assert office.state() == "PreparingRebalance"
    office.join(office.answers[first].member_id, instance_id="a", protocols=both)
    assert office.group().protocol_name == "sticky"


def test_one_that_returns_while_members_join_joins_with_them() -> None:
    office = Office()
    first = office.join(instance_id="a")
    second = office.join(instance_id="a")
    assert office.answers[first].error is ErrorCode.FENCED_INSTANCE_ID
    office.sleep(DELAY_MS)
    answer = office.answers[second]
    assert (answer.error, answer.leader_id) == (ErrorCode.NONE, answer.member_id)
    assert len(answer.members) == 1


def test_one_that_returns_while_the_assignment_is_made_begins_a_rebalance() -> None:
    office = Office()
    first, second = office.join(instance_id="a"), office.join(instance_id="b")
    office.sleep(DELAY_MS * 2)
    leader, follower = (office.answers[ticket].member_id for ticket in (first, second))
    syncing = office.sync(follower, 1, instance_id="b")
    third = office.join(instance_id="b")
    assert office.answers[syncing].error is ErrorCode.FENCED_INSTANCE_ID
    office.join(leader, instance_id="a")
    assert office.answers[third].generation_id == 2


def test_static_members_that_do_not_join_again_stay_until_their_session_ends() -> None:
    office = Office()
    leader, absent = office.stable("a", "b", session_timeout_ms=REBALANCE_MS * 3)
    ticket = office.join(leader, instance_id="a", session_timeout_ms=REBALANCE_MS * 3)
    office.sleep(REBALANCE_MS)
    assert office.answers[ticket].generation_id == 2
    assert absent in office.group().members


def test_a_static_leader_that_does_not_join_again_leads_no_longer() -> None:
    office = Office()
    absent, follower = office.stable("a", "b", session_timeout_ms=REBALANCE_MS * 3)
    other = protocols("range", metadata=b"u")
    ticket = office.join(
        follower, instance_id="b", session_timeout_ms=REBALANCE_MS * 3, protocols=other
    )
    office.sleep(REBALANCE_MS)
    answer = office.answers[ticket]
    assert answer.leader_id == follower
    assert [member.member_id for member in answer.members] == [absent, follower]


def test_a_rebalance_that_no_static_member_joins_waits_for_their_sessions() -> None:
    office = Office()
    absent = office.stable("a", session_timeout_ms=REBALANCE_MS * 3)[0]
    new = office.member()
    office.leave(new)
    office.sleep(REBALANCE_MS * 2)
    assert (office.state(), office.group().generation_id) == ("PreparingRebalance", 1)
    assert list(office.group().members) == [absent]
    office.sleep(REBALANCE_MS * 2)
    assert (office.state(), office.group().generation_id) == ("Empty", 2)


def test_administrators_remove_static_members_by_their_instance() -> None:
    office = Office()
    office.stable("a", "b")
    assert office.leave(MemberIdentity("", "b"), MemberIdentity("", "nobody")) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert office.state() == "PreparingRebalance"
    assert list(office.group().static_ids) == ["a"]


def test_a_member_cannot_leave_for_an_instance_that_has_another_id() -> None:
    office = Office()
    office.stable("a")
    assert office.leave(MemberIdentity("nobody", "a"))[1] is ErrorCode.FENCED_INSTANCE_ID


def test_a_return_during_the_write_of_a_group_that_died_is_sent_away() -> None:
    office = Office()
    member_id = office.stable("a")[0]
    office.holds = True
    ticket = office.join(instance_id="a")
    office.leave(MemberIdentity(member_id, "a"))
    assert office.state() == "Empty"
    office.delete()
    office.commit()
    assert office.answers[ticket].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.release()
    assert G not in office.core.groups


def test_a_member_under_its_new_id_must_be_heard_of_too() -> None:
    office = Office()
    office.stable("a")
    new = office.answer(joining(instance_id="a", uuid="new")).member_id
    office.sleep(SESSION_MS - 1)
    assert office.heartbeat(new, 1, "a") is ErrorCode.NONE
    office.sleep(SESSION_MS)
    assert office.state() == "Empty"
    assert replace(office.log[-1].value, members=()) == office.log[-1].value  # type: ignore[type-var]
