"""JoinGroup: ids, protocols, sizes, the rebalance that follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.group.asking import REBALANCE_MS, SESSION_MS, G, joining, protocols
from tests.support.group.harness import DELAY_MS, SETTINGS, GroupHarness

from tidelog.core import limits
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.group.classic.classic_group import GroupState
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember


def test_a_new_dynamic_member_is_given_an_id_first() -> None:
    harness = GroupHarness()
    given = harness.answer(joining(uuid="1"))
    assert (given.error_code, given.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    assert harness.state() == "Empty"
    ticket = harness.join("c-1")
    assert ticket not in harness.answers
    harness.sleep(DELAY_MS)
    answer = harness.answers[ticket]
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, "c-1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert answer.members == [JoinGroupResponseMember("c-1", None, b"t")]


@pytest.mark.parametrize("changes", [{"version": 3}, {"instance_id": "i"}])
def test_older_clients_and_static_members_join_at_once(changes: dict[str, Any]) -> None:
    harness = GroupHarness()
    ticket = harness.join(**changes)
    harness.sleep(DELAY_MS)
    assert harness.answers[ticket].error_code == ErrorCode.NONE
    assert harness.answers[ticket].member_id in ("c-u1", "i-u1")


def test_the_client_id_in_a_member_id_is_cut() -> None:
    answer = GroupHarness().answer(replace(joining(uuid="1"), client_id="x" * 5000))
    assert answer.member_id == "x" * limits.MAX_CLIENT_ID_CHARS_IN_MEMBER_ID + "-1"


def test_who_does_not_come_back_with_its_id_is_forgotten() -> None:
    harness = GroupHarness()
    given = harness.answer(joining())
    harness.sleep(SESSION_MS)
    assert harness.core.groups == {}
    assert harness.answer(joining(given.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.core.groups == {}


def test_session_timeouts_have_bounds() -> None:
    harness = GroupHarness()
    for session_timeout_ms in (5_999, 1_800_001):
        answer = harness.answer(joining(session_timeout_ms=session_timeout_ms))
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert harness.core.groups == {}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i" * 250}, ErrorCode.INVALID_REQUEST),
        ({"protocols": protocols("a", "b", "a")}, ErrorCode.INVALID_REQUEST),
        ({"protocols": protocols(*map(str, range(101)))}, ErrorCode.POLICY_VIOLATION),
        (
            {"protocols": [JoinGroupRequestProtocol("a", bytes(1 + 2**20))]},
            ErrorCode.POLICY_VIOLATION,
        ),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 1001}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_requests_that_make_no_sense_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    harness = GroupHarness()
    assert harness.answer(joining(**changes)).error_code == error
    assert harness.core.groups == {}


def test_a_member_must_speak_a_protocol_of_all_others() -> None:
    harness = GroupHarness()
    harness.member(protocols=protocols("a", "b"))
    harness.member(protocols=protocols("b", "c"))
    for changes in (
        {"protocols": protocols("a")},
        {"protocols": protocols("c", "d")},
        {"protocol_type": "connect", "protocols": protocols("b")},
    ):
        answer = harness.answer(joining(**changes))
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.member(protocols=protocols("d", "b"))
    harness.sleep(DELAY_MS * 2)
    assert harness.group().protocol_name == "b"


def test_the_protocol_with_the_most_votes_is_chosen_the_first_of_equal_ones() -> None:
    harness = GroupHarness()
    harness.member(protocols=protocols("a", "b", "c"))
    harness.member(protocols=protocols("b", "a"))
    harness.sleep(DELAY_MS * 3)
    assert harness.group().protocol_name == "a"
    harness = GroupHarness()
    for names in ("abc", "ba", "ba"):
        harness.member(protocols=protocols(*names))
    harness.sleep(DELAY_MS * 3)
    assert harness.group().protocol_name == "b"


def test_the_first_rebalance_waits_for_newcomers_as_long_as_they_come() -> None:
    harness = GroupHarness()
    harness.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    first = harness.last_join
    harness.sleep(DELAY_MS - 1)
    harness.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    harness.sleep(DELAY_MS)
    assert first not in harness.answers
    harness.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    harness.sleep(1)
    assert first not in harness.answers
    harness.sleep(999)
    assert first not in harness.answers
    harness.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    harness.sleep(1)
    assert harness.now_ms == DELAY_MS * 2 + 1000
    assert len(harness.answers[first].members) == 4


def test_without_a_newcomer_the_first_rebalance_is_not_extended() -> None:
    harness = GroupHarness()
    harness.member()
    harness.sleep(DELAY_MS)
    assert harness.answers[harness.last_join].error_code == ErrorCode.NONE


def test_a_group_that_was_empty_for_a_while_waits_once() -> None:
    """Only the first members of all make it wait for more (Kafka's newMemberAdded)."""
    harness = GroupHarness()
    (member_id,) = harness.stable(None)
    harness.leave(member_id)
    assert harness.state() == "Empty"
    harness.member()
    harness.sleep(DELAY_MS - 1)
    harness.member()
    assert harness.state() == "PreparingRebalance"
    harness.sleep(1)
    assert harness.state() == "CompletingRebalance"


def test_the_first_rebalance_of_nobody_ends_empty() -> None:
    harness = GroupHarness()
    member_id = harness.member()
    assert harness.leave(member_id) == [ErrorCode.NONE, ErrorCode.NONE]
    assert harness.answers[harness.last_join].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.state() == "PreparingRebalance"
    harness.sleep(DELAY_MS)
    assert (harness.state(), harness.group().generation_id) == ("Empty", 1)
    assert harness.log[-1].value.members == ()  # type: ignore[union-attr]  # the last record is of a group
    assert harness.timers == {}


def test_a_newcomer_makes_everybody_join_again_and_the_leader_stays() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None)
    third = harness.member()
    waiting = harness.last_join
    assert harness.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [harness.join(second), harness.join(first)]
    leader = harness.answers[tickets[1]]
    assert (leader.leader, leader.generation_id) == (first, 2)
    assert [member.member_id for member in leader.members] == [first, second, third]
    assert harness.answers[tickets[0]].members == harness.answers[waiting].members == []


def test_who_does_not_join_again_is_dropped_and_another_one_leads() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None, session_timeout_ms=REBALANCE_MS * 2)
    third = harness.member()
    waiting = harness.last_join
    harness.sleep(REBALANCE_MS - 1)
    assert waiting not in harness.answers
    harness.sleep(1)
    assert harness.answers[waiting].leader == third
    assert list(harness.group().members) == [third]
    assert harness.heartbeat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert TimerName(TimerKind.SESSION, G, first) not in harness.timers


def test_a_repeated_join_supersedes_the_first() -> None:
    harness = GroupHarness()
    member_id = harness.member()
    first = harness.last_join
    second = harness.join(member_id)
    assert harness.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.sleep(DELAY_MS)
    assert harness.answers[second].error_code == ErrorCode.NONE


def test_members_that_join_unchanged_are_told_of_the_generation() -> None:
    harness = GroupHarness()
    first = harness.member()
    second = harness.member()
    harness.sleep(DELAY_MS * 2)
    assert harness.state() == "CompletingRebalance"
    again = harness.answer(joining(first))
    assert (again.generation_id, len(again.members)) == (1, 2)
    again = harness.answer(joining(second))
    assert (again.generation_id, again.members) == (1, [])
    harness.join(second, protocols=protocols("range", metadata=b"other"))
    assert harness.state() == "PreparingRebalance"


def test_in_a_stable_group_a_follower_may_join_unchanged_but_a_leader_rebalances() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None)
    assert harness.answer(joining(second)).generation_id == 1
    assert harness.state() == "Stable"
    harness.join(first)
    assert harness.state() == "PreparingRebalance"
    harness.join(second)
    assert harness.state() == "CompletingRebalance"


def test_in_a_stable_group_other_metadata_rebalances() -> None:
    harness = GroupHarness()
    first, second = harness.stable(None, None)
    harness.join(second, protocols=protocols("range", metadata=b"t,u"))
    harness.join(first)
    assert harness.group().subscribed_topics == {"t", "u"}


def test_only_members_come_with_an_id() -> None:
    harness = GroupHarness()
    harness.stable("i")
    for member_id, instance_id, error in (
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("nobody", "j", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        answer = harness.answer(joining(member_id, instance_id=instance_id))
        assert (answer.error_code, answer.member_id) == (error, member_id)


def test_a_given_id_is_for_a_dynamic_member() -> None:
    harness = GroupHarness()
    given = harness.answer(joining()).member_id
    answer = harness.answer(joining(given, instance_id="i"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_new_member_that_waits_too_long_must_try_again() -> None:
    harness = GroupHarness(replace(SETTINGS, new_member_join_timeout_ms=5_000))
    first = harness.stable(None, session_timeout_ms=REBALANCE_MS * 2)[0]
    harness.member()
    waiting = harness.last_join
    harness.sleep(4_999)
    assert waiting not in harness.answers
    harness.sleep(1)
    assert harness.answers[waiting].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(harness.group().members) == [first]
    assert harness.state() == "PreparingRebalance"


def test_a_rebalance_waits_for_who_was_given_an_id() -> None:
    harness = GroupHarness()
    first = harness.stable(None)[0]
    given = harness.answer(joining()).member_id
    ticket = harness.join(first)
    assert ticket not in harness.answers
    harness.sleep(SESSION_MS)
    assert harness.answers[ticket].generation_id == 2
    assert given not in harness.group().members


# Sizes.


def test_a_full_group_takes_no_newcomer() -> None:
    harness = GroupHarness(replace(SETTINGS, max_size=2))
    first, second = harness.stable(None, None)
    assert harness.answer(joining()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.join(first)
    harness.join(second)
    assert harness.state() == "CompletingRebalance"
    assert harness.answer(joining()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_while_members_join_the_last_ones_are_shed() -> None:
    harness = GroupHarness(replace(SETTINGS, max_size=1))
    first, second = (harness.answer(joining(uuid=uuid)).member_id for uuid in "12")
    accepted = harness.join(first)
    refused = harness.answer(joining(second))
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.group().pending_members == {}
    again = harness.join(first)
    assert harness.answers[accepted].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.sleep(DELAY_MS)
    assert harness.answers[again].error_code == ErrorCode.NONE


def test_a_loaded_group_that_is_too_big_sheds_members() -> None:
    harness = GroupHarness()
    ids = harness.stable(None, None, None)
    harness = harness.reload(settings=replace(SETTINGS, max_size=2))
    assert harness.state() == "PreparingRebalance"
    tickets = [harness.join(member_id) for member_id in ids]
    assert [harness.answers[ticket].error_code for ticket in tickets] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert list(harness.group().members) == ids[:2]


def test_members_and_groups_of_a_partition_are_bounded() -> None:
    harness = GroupHarness(replace(SETTINGS, max_members=2, max_groups=2))
    harness.join()
    harness.join(group_id="h")
    assert harness.answer(joining()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.answer(joining(group_id="i")).error_code == ErrorCode.POLICY_VIOLATION
    harness.sleep(SESSION_MS)
    assert harness.core.groups == {}
    assert harness.answer(joining()).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_states_follow_each_other_as_drawn() -> None:
    harness = GroupHarness()
    harness.stable(None)
    with pytest.raises(InvariantError, match="from Stable to Empty"):
        harness.group().move_to(GroupState.EMPTY, 0)
