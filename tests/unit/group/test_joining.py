"""JoinGroup: ids, protocols, sizes, the rebalance that follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.group.harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    G,
    Office,
    joining,
    protocols,
)

from tidelog.core import limits
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.group.effects import TimerKind, TimerName
from tidelog.group.group import GroupState
from tidelog.group.requests import Protocol


def test_a_new_dynamic_member_is_given_an_id_first() -> None:
    office = Office()
    given = office.answer(joining(uuid="1"))
    assert (given.error, given.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    assert office.state() == "Empty"
    ticket = office.join("c-1")
    assert ticket not in office.answers
    office.sleep(DELAY_MS)
    answer = office.answers[ticket]
    assert (answer.error, answer.generation_id, answer.leader_id) == (0, 1, "c-1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert answer.members == (("c-1", None, b"t"),)


@pytest.mark.parametrize("changes", [{"version": 3}, {"instance_id": "i"}])
def test_older_clients_and_static_members_join_at_once(changes: dict[str, object]) -> None:
    office = Office()
    ticket = office.join(**changes)
    office.sleep(DELAY_MS)
    assert office.answers[ticket].error is ErrorCode.NONE
    assert office.answers[ticket].member_id in ("c-u1", "i-u1")


def test_the_client_id_in_a_member_id_is_cut() -> None:
    answer = Office().answer(joining(client_id="x" * 5000, uuid="1"))
    assert answer.member_id == "x" * limits.MAX_CLIENT_ID_CHARS_IN_MEMBER_ID + "-1"


def test_who_does_not_come_back_with_its_id_is_forgotten() -> None:
    office = Office()
    given = office.answer(joining())
    office.sleep(SESSION_MS)
    assert office.core.groups == {}
    assert office.answer(joining(given.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert office.core.groups == {}


def test_session_timeouts_have_bounds() -> None:
    office = Office()
    for session_timeout_ms in (5_999, 1_800_001):
        answer = office.answer(joining(session_timeout_ms=session_timeout_ms))
        assert answer.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert office.core.groups == {}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i" * 250}, ErrorCode.INVALID_REQUEST),
        ({"protocols": protocols("a", "b", "a")}, ErrorCode.INVALID_REQUEST),
        ({"protocols": protocols(*map(str, range(101)))}, ErrorCode.POLICY_VIOLATION),
        ({"protocols": (Protocol("a", bytes(1 + 2**20)),)}, ErrorCode.POLICY_VIOLATION),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 1001}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    changes: dict[str, object], error: ErrorCode
) -> None:
    office = Office()
    assert office.answer(joining(**changes)).error is error
    assert office.core.groups == {}


def test_a_member_must_speak_a_protocol_of_all_others() -> None:
    office = Office()
    office.member(protocols=protocols("a", "b"))
    office.member(protocols=protocols("b", "c"))
    for changes in (
        {"protocols": protocols("a")},
        {"protocols": protocols("c", "d")},
        {"protocol_type": "connect", "protocols": protocols("b")},
    ):
        answer = office.answer(joining(**changes))
        assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    office.member(protocols=protocols("d", "b"))
    office.sleep(DELAY_MS * 2)
    assert office.group().protocol_name == "b"


def test_the_protocol_with_the_most_votes_is_chosen_the_first_of_equal_ones() -> None:
    office = Office()
    office.member(protocols=protocols("a", "b", "c"))
    office.member(protocols=protocols("b", "a"))
    office.sleep(DELAY_MS * 3)
    assert office.group().protocol_name == "a"
    office = Office()
    for names in ("abc", "ba", "ba"):
        office.member(protocols=protocols(*names))
    office.sleep(DELAY_MS * 3)
    assert office.group().protocol_name == "b"


def test_the_first_rebalance_waits_for_newcomers_as_long_as_they_come() -> None:
    office = Office()
    office.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    first = office.last_join
    office.sleep(DELAY_MS - 1)
    office.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    office.sleep(DELAY_MS)
    assert first not in office.answers
    office.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    office.sleep(1)
    assert first not in office.answers
    office.sleep(999)
    assert first not in office.answers
    office.member(rebalance_timeout_ms=DELAY_MS * 2 + 1000)
    office.sleep(1)
    assert office.now_ms == DELAY_MS * 2 + 1000
    assert len(office.answers[first].members) == 4


def test_without_a_newcomer_the_first_rebalance_is_not_extended() -> None:
    office = Office()
    office.member()
    office.sleep(DELAY_MS)
    assert office.answers[office.last_join].error is ErrorCode.NONE


def test_a_group_that_was_empty_for_a_while_waits_once() -> None:
    """Only the first members of all make it wait for more (Kafka's newMemberAdded)."""
    office = Office()
    (member_id,) = office.stable(None)
    office.leave(member_id)
    assert office.state() == "Empty"
    office.member()
    office.sleep(DELAY_MS - 1)
    office.member()
    assert office.state() == "PreparingRebalance"
    office.sleep(1)
    assert office.state() == "CompletingRebalance"


def test_the_first_rebalance_of_nobody_ends_empty() -> None:
    office = Office()
    member_id = office.member()
    assert office.leave(member_id) == [ErrorCode.NONE, ErrorCode.NONE]
    assert office.answers[office.last_join].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert office.state() == "PreparingRebalance"
    office.sleep(DELAY_MS)
    assert (office.state(), office.group().generation_id) == ("Empty", 1)
    assert office.log[-1].value.members == ()  # type: ignore[union-attr]
    assert office.timers == {}


def test_a_newcomer_makes_everybody_join_again_and_the_leader_stays() -> None:
    office = Office()
    first, second = office.stable(None, None)
    third = office.member()
    waiting = office.last_join
    assert office.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [office.join(second), office.join(first)]
    leader = office.answers[tickets[1]]
    assert (leader.leader_id, leader.generation_id) == (first, 2)
    assert [member.member_id for member in leader.members] == [first, second, third]
    assert office.answers[tickets[0]].members == office.answers[waiting].members == ()


def test_who_does_not_join_again_is_dropped_and_another_one_leads() -> None:
    office = Office()
    first, second = office.stable(None, None, session_timeout_ms=REBALANCE_MS * 2)
    third = office.member()
    waiting = office.last_join
    office.sleep(REBALANCE_MS - 1)
    assert waiting not in office.answers
    office.sleep(1)
    assert office.answers[waiting].leader_id == third
    assert list(office.group().members) == [third]
    assert office.heartbeat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert TimerName(TimerKind.SESSION, G, first) not in office.timers


def test_a_repeated_join_supersedes_the_first() -> None:
    office = Office()
    member_id = office.member()
    first = office.last_join
    second = office.join(member_id)
    assert office.answers[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    office.sleep(DELAY_MS)
    assert office.answers[second].error is ErrorCode.NONE


def test_members_that_join_unchanged_are_told_of_the_generation() -> None:
    office = Office()
    first = office.member()
    second = office.member()
    office.sleep(DELAY_MS * 2)
    assert office.state() == "CompletingRebalance"
    again = office.answer(joining(first))
    assert (again.generation_id, len(again.members)) == (1, 2)
    again = office.answer(joining(second))
    assert (again.generation_id, again.members) == (1, ())
    office.join(second, protocols=protocols("range", metadata=b"other"))
    assert office.state() == "PreparingRebalance"


def test_in_a_stable_group_a_follower_may_join_unchanged_but_a_leader_rebalances() -> None:
    office = Office()
    first, second = office.stable(None, None)
    assert office.answer(joining(second)).generation_id == 1
    assert office.state() == "Stable"
    office.join(first)
    assert office.state() == "PreparingRebalance"
    office.join(second)
    assert office.state() == "CompletingRebalance"


def test_in_a_stable_group_other_metadata_rebalances() -> None:
    office = Office()
    first, second = office.stable(None, None)
    office.join(second, protocols=protocols("range", metadata=b"t,u"))
    office.join(first)
    assert office.group().subscribed_topics == {"t", "u"}


def test_only_members_come_with_an_id() -> None:
    office = Office()
    office.stable("i")
    for member_id, instance_id, error in (
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("nobody", "j", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        answer = office.answer(joining(member_id, instance_id=instance_id))
        assert (answer.error, answer.member_id) == (error, member_id)


def test_a_given_id_is_for_a_dynamic_member() -> None:
    office = Office()
    given = office.answer(joining()).member_id
    answer = office.answer(joining(given, instance_id="i"))
    assert answer.error is ErrorCode.INVALID_REQUEST


def test_a_new_member_that_waits_too_long_must_try_again() -> None:
    office = Office(replace(SETTINGS, new_member_join_timeout_ms=5_000))
    first = office.stable(None, session_timeout_ms=REBALANCE_MS * 2)[0]
    office.member()
    waiting = office.last_join
    office.sleep(4_999)
    assert waiting not in office.answers
    office.sleep(1)
    assert office.answers[waiting].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(office.group().members) == [first]
    assert office.state() == "PreparingRebalance"


def test_a_rebalance_waits_for_who_was_given_an_id() -> None:
    office = Office()
    first = office.stable(None)[0]
    given = office.answer(joining()).member_id
    ticket = office.join(first)
    assert ticket not in office.answers
    office.sleep(SESSION_MS)
    assert office.answers[ticket].generation_id == 2
    assert given not in office.group().members


# Sizes.


def test_a_full_group_takes_no_newcomer() -> None:
    office = Office(replace(SETTINGS, max_size=2))
    first, second = office.stable(None, None)
    assert office.answer(joining()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    office.join(first)
    office.join(second)
    assert office.state() == "CompletingRebalance"
    assert office.answer(joining()).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_while_members_join_the_last_ones_are_shed() -> None:
    office = Office(replace(SETTINGS, max_size=1))
    first, second = (office.answer(joining(uuid=uuid)).member_id for uuid in "12")
    accepted = office.join(first)
    refused = office.answer(joining(second))
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert office.group().pending_members == {}
    again = office.join(first)
    assert office.answers[accepted].error is ErrorCode.REBALANCE_IN_PROGRESS
    office.sleep(DELAY_MS)
    assert office.answers[again].error is ErrorCode.NONE


def test_a_loaded_group_that_is_too_big_sheds_members() -> None:
    office = Office()
    ids = office.stable(None, None, None)
    office = office.reload(settings=replace(SETTINGS, max_size=2))
    assert office.state() == "PreparingRebalance"
    tickets = [office.join(member_id) for member_id in ids]
    assert [office.answers[ticket].error for ticket in tickets] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert list(office.group().members) == ids[:2]


def test_members_and_groups_of_a_partition_are_bounded() -> None:
    office = Office(replace(SETTINGS, max_members=2, max_groups=2))
    office.join()
    office.join(group_id="h")
    assert office.answer(joining()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert office.answer(joining(group_id="i")).error is ErrorCode.POLICY_VIOLATION
    office.sleep(SESSION_MS)
    assert office.core.groups == {}
    assert office.answer(joining()).error is ErrorCode.MEMBER_ID_REQUIRED


def test_states_follow_each_other_as_drawn() -> None:
    office = Office()
    office.stable(None)
    with pytest.raises(InvariantError, match="from Stable to Empty"):
        office.group().move_to(GroupState.EMPTY, 0)
