"""Random walks of a group (tests/support/group/walks.py), and proof that they would notice."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.support.draws import for_draws
from tests.support.group.walks import GroupWalk

from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.group import offsets, settling
from tidelog.group.asked import Asked, commit_response, join_error
from tidelog.group.classic import joining, membership, rebalancing, syncing, waits
from tidelog.group.classic.classic_group import ClassicGroup, StaticReplacement
from tidelog.group.classic.member import Member
from tidelog.group.classic.waits import StoreStaticMember
from tidelog.group.records import OffsetRecord
from tidelog.group.turn import StoreOffsets, Turn, Unsettled
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

STEPS = 400
#: Walks after which a broken rule must have been noticed.
WALKS = 60


def test_groups_keep_their_promises_whatever_happens() -> None:
    seen: dict[str, int] = {}

    def check(random: Random) -> None:
        walk = GroupWalk(random)
        walk.walk(STEPS)
        for what, count in walk.seen.items():
            seen[what] = seen.get(what, 0) + count

    for_draws(25, "group walks", check)
    rare = {what: count for what, count in seen.items() if count < 5}
    assert (sorted(seen), rare) == (
        ["commit", "failover", "join", "late", "refused", "returned", "sync"],
        {},
    )


# Rules taken away one by one.


def offsets_are_visible_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    append = Turn.append

    def early(turn: Turn, group: ClassicGroup, records: Any, purpose: Any) -> int:
        for record in records if isinstance(purpose, StoreOffsets) else ():
            offsets.apply(group, record)
        return append(turn, group, records, purpose)

    patch.setattr(Turn, "append", early)


def failed_commits_count(patch: pytest.MonkeyPatch) -> None:
    refuse = settling._refuse

    def kept(turn: Turn, group: ClassicGroup, entry: Unsettled, error: ErrorCode) -> None:
        for record in entry.records:
            if isinstance(record, OffsetRecord):
                offsets.apply(group, record)
        refuse(turn, group, entry, error)

    patch.setattr(settling, "_refuse", kept)


def commits_are_acknowledged_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    append = Turn.append

    def early(turn: Turn, group: ClassicGroup, records: Any, purpose: Any) -> int:
        number = append(turn, group, records, purpose)
        if isinstance(purpose, StoreOffsets):
            message = purpose.asked.message
            turn.reply(purpose.asked.ticket, commit_response(message, purpose.errors))
            turn.ledger.overdue(number)
        return number

    patch.setattr(Turn, "append", early)


def assignments_are_handed_out_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    store = syncing._store

    def early(turn: Turn, group: ClassicGroup, message: SyncGroupRequest) -> None:
        store(turn, group, message)
        given = {each.member_id: each.assignment for each in message.assignments}
        rebalancing.stable(turn, group, given)

    patch.setattr(syncing, "_store", early)


def a_repeated_sync_writes_again(patch: pytest.MonkeyPatch) -> None:
    store = syncing._store

    def again(turn: Turn, group: ClassicGroup, message: SyncGroupRequest) -> None:
        store(turn, group, message)
        group.storing_generation = None
        waits.set_sync_timer(turn, group, group.rebalance_timeout_ms)

    patch.setattr(syncing, "_store", again)


def ids_change_at_the_same_time(patch: pytest.MonkeyPatch) -> None:
    wait = joining._wait_for_replacement

    def at_once(
        turn: Turn,
        group: ClassicGroup,
        under_way: StaticReplacement,
        asked: Asked[JoinGroupRequest],
    ) -> None:
        purpose = turn.ledger.look(under_way.number).purpose
        assert isinstance(purpose, StoreStaticMember)
        instance_id = asked.message.group_instance_id
        if purpose.asked.message.group_instance_id == instance_id or under_way.is_overdue:
            wait(turn, group, under_way, asked)
            return
        old = joining._static_member(group, asked)
        joining._store_replacement(turn, group, old, asked, f"{instance_id}-{asked.uuid}")

    patch.setattr(joining, "_wait_for_replacement", at_once)


def a_new_id_is_used_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    store = joining._store_replacement

    def early(
        turn: Turn, group: ClassicGroup, old: Member, asked: Asked[JoinGroupRequest], member_id: str
    ) -> None:
        store(turn, group, old, asked, member_id)
        member = joining.replace_static(turn, group, old, asked, member_id)
        turn.touch(group, member_id, member.session, member.session_timeout_ms)

    patch.setattr(joining, "_store_replacement", early)


def superseded_joins_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forgetful(_: Turn, group: ClassicGroup, member: Member, ticket: int) -> None:
        group.awaiting_join += member.join_ticket is None
        member.join_ticket = ticket

    patch.setattr(waits, "await_join", forgetful)


def syncs_of_removed_members_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forgetful(turn: Turn, group: ClassicGroup, member: Member, error: Any = None) -> None:
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        waits.end_join(turn, group, member, join_error(error or unknown))
        turn.disarm(group, member.member_id, member.session)
        group.remove(member)

    patch.setattr(waits, "remove_member", forgetful)


def syncs_survive_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebalancing, "refuse_syncs", lambda turn, group, error: None)


def generations_do_not_rise(patch: pytest.MonkeyPatch) -> None:
    complete = rebalancing.complete

    def same(turn: Turn, group: ClassicGroup) -> None:
        group.generation_id = max(group.generation_id - 1, 0)
        complete(turn, group)

    patch.setattr(rebalancing, "complete", same)


def any_generation_may_sync(patch: pytest.MonkeyPatch) -> None:
    error_of = syncing._error

    def lenient(group: ClassicGroup, message: SyncGroupRequest) -> ErrorCode:
        error = error_of(group, message)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    patch.setattr(syncing, "_error", lenient)


def members_that_were_answered_are_not_watched(patch: pytest.MonkeyPatch) -> None:
    end_sync = waits.end_sync

    def unwatched(turn: Turn, member: Member, answer: SyncGroupResponse) -> bool:
        end_sync(turn, member, answer)
        return False

    patch.setattr(waits, "end_sync", unwatched)


def sessions_are_never_set_again(patch: pytest.MonkeyPatch) -> None:
    fired = membership.session_timer_fired

    def once(turn: Turn, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None:
            member.session.armed_ms = None
        else:
            fired(turn, group, member_id, deadline_ms)

    patch.setattr(membership, "session_timer_fired", once)


@pytest.mark.parametrize(
    "broken",
    [
        offsets_are_visible_before_they_are_written,
        failed_commits_count,
        commits_are_acknowledged_before_they_are_written,
        assignments_are_handed_out_before_they_are_written,
        a_repeated_sync_writes_again,
        ids_change_at_the_same_time,
        a_new_id_is_used_before_it_is_written,
        superseded_joins_are_forgotten,
        syncs_of_removed_members_are_forgotten,
        syncs_survive_a_rebalance,
        generations_do_not_rise,
        any_generation_may_sync,
        members_that_were_answered_are_not_watched,
        sessions_are_never_set_again,
    ],
)
def test_a_broken_rule_is_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, InvariantError)):
        for number in range(WALKS):
            GroupWalk(Random(f"{broken.__name__} {number}")).walk(STEPS)
