"""A leading replica, decision by decision."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.replication import (
    LAG_MS,
    a_leader,
    accept,
    fetch,
    proposed,
    send,
)

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.replication.effects import (
    MOVED,
    NOTHING,
    HighWatermarkMoved,
    IsrBelowMinimum,
    IsrCommitted,
    RetryAlterPartition,
    SendAlterPartition,
    WithdrawAlterPartition,
)
from tidelog.replication.isr import IsrState
from tidelog.replication.leader import REFUSED_JOIN_BACKOFF_MS, epoch_error
from tidelog.replication.pending_reads import PendingReads


def dead_but(*alive: int) -> Callable[[int], bool]:
    return lambda broker_id: broker_id in alive


def test_epochs_of_askers() -> None:
    assert epoch_error(5, 5) == ErrorCode.NONE
    assert epoch_error(5, -1) == ErrorCode.NONE
    assert epoch_error(5, 4) == ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_error(5, 6) == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.rule("V60")
def test_an_append_alone_in_the_isr_commits() -> None:
    leader = a_leader(isr=(1,), replicas=(1,))
    assert leader.appended(4, 0) == MOVED
    assert leader.high_watermark == 4


def test_an_append_with_followers_waits_for_them() -> None:
    leader = a_leader()
    assert leader.appended(4, 0) is NOTHING
    assert fetch(leader, 2, 4) is NOTHING
    assert fetch(leader, 3, 4) is MOVED
    assert leader.high_watermark == 4


def test_the_hot_path_allocates_no_effects() -> None:
    leader = a_leader()
    leader.appended(4, 0)
    assert fetch(leader, 2, 2) is NOTHING
    assert fetch(leader, 2, 2) is NOTHING
    assert fetch(leader, 3, 2) is MOVED


def test_a_fetch_of_an_unassigned_replica_is_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        fetch(a_leader(), 9, 0)
    assert raised.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.rule("V63")
def test_a_fetch_of_an_earlier_incarnation_is_refused() -> None:
    leader = a_leader(log_end_offset=4)
    fetch(leader, 2, 1, broker_epoch=200)
    with pytest.raises(KafkaError) as raised:
        fetch(leader, 2, 4, broker_epoch=199)
    assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.followers[2].log_end_offset == 1
    assert fetch(leader, 2, 2, now_ms=LAG_MS + 1, broker_epoch=-1) is NOTHING
    assert leader.followers[2].log_end_offset == 2


def test_a_fetch_above_the_log_end_is_refused() -> None:
    leader = a_leader(log_end_offset=4)
    with pytest.raises(KafkaError) as raised:
        fetch(leader, 2, 5)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.rule("V63")
def test_a_follower_that_catches_up_is_proposed_with_the_epochs_counted() -> None:
    leader = a_leader(isr=(1, 3), log_end_offset=8, high_watermark=4)
    change = proposed(fetch(leader, 2, 8))
    assert change.isr == (1, 2, 3)
    assert change.isr_epochs == (101, 102, -1)
    assert (change.leader_epoch, change.partition_epoch) == (5, 10)


@pytest.mark.rule("V63")
def test_a_fetch_below_the_high_watermark_does_not_vouch_for_its_incarnation() -> None:
    leader = a_leader(isr=(1, 2, 3), log_end_offset=8, high_watermark=4)
    fetch(leader, 2, 6, broker_epoch=102)
    fetch(leader, 2, 3, broker_epoch=200)
    assert leader.followers[2].broker_epoch == 200
    assert leader.followers[2].counted_broker_epoch == 102


def test_nothing_is_proposed_twice() -> None:
    leader = a_leader(isr=(1, 3), log_end_offset=8)
    effects = fetch(leader, 2, 8)
    assert fetch(leader, 2, 8) is NOTHING
    send(leader, effects)
    assert fetch(leader, 2, 8) is NOTHING


@pytest.mark.rule("A8")
def test_while_a_change_is_in_flight_nobody_else_is_proposed() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    send(leader, fetch(leader, 2, 8))
    assert fetch(leader, 3, 8) is NOTHING
    assert leader.examine(0) is NOTHING


def test_changes_that_wait_are_merged() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    fetch(leader, 2, 8)
    assert proposed(fetch(leader, 3, 8)).isr == (1, 2, 3)


def test_a_join_and_a_high_watermark_may_come_of_one_fetch() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8, high_watermark=4, alive=dead_but(1, 2))
    effects = fetch(leader, 2, 6)
    assert [type(one) for one in effects] == [SendAlterPartition, HighWatermarkMoved]
    assert leader.high_watermark == 6


def test_an_examination_lets_the_slow_go_and_the_reached_join() -> None:
    leader = a_leader(isr=(1, 2), log_end_offset=8)
    leader.isr = IsrState((1, 2), 10)
    fetch(leader, 2, 4, now_ms=0)
    leader.followers[3].fetched(8, 0, 8, 103, LAG_MS)
    leader.followers[3].counted_broker_epoch = 103
    assert proposed(leader.examine(LAG_MS + 1)).isr == (1, 3)


def test_an_examination_does_not_add_who_has_fallen_behind() -> None:
    leader = a_leader(isr=(1, 2), log_end_offset=8, high_watermark=2)
    leader.followers[2].fetched(8, 0, 8, 102, LAG_MS)
    leader.followers[3].fetched(4, 0, 8, 103, 0)
    leader.followers[3].is_eligible = True
    assert leader.examine(LAG_MS) == MOVED


def test_a_follower_that_fell_silent_after_catching_up_is_not_waited_for_for_ever() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8, high_watermark=8)
    fetch(leader, 2, 8, now_ms=0)
    leader.isr = IsrState((1,), 10)
    leader._mark()
    leader.appended(12, 0)
    assert leader.high_watermark == 8
    leader.followers[2].refused_until_ms = LAG_MS * 2
    assert leader.examine(LAG_MS + 1) == MOVED
    assert leader.high_watermark == 12


@pytest.mark.rule("A8")
def test_a_withdrawn_change_leaves_nothing_behind() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=8)
    fetch(leader, 2, 4, now_ms=0)
    shrink = proposed(leader.examine(LAG_MS + 1))
    assert shrink.isr == (1,)
    effects = fetch(leader, 2, 8, now_ms=LAG_MS + 2)
    assert effects == (WithdrawAlterPartition(shrink), *MOVED)
    assert leader.isr == IsrState((1, 2), 10)
    assert not leader.is_wanted(shrink)


@pytest.mark.rule("A9")
def test_an_accepted_change_is_committed_and_everybody_examined_again() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    change = send(leader, fetch(leader, 2, 8))
    fetch(leader, 3, 8)
    effects = accept(leader, change)
    assert effects[0] == IsrCommitted()
    assert proposed(effects).isr == (1, 2, 3)
    assert proposed(effects).partition_epoch == 11


@pytest.mark.rule("A9")
def test_answers_of_other_leaderships_and_older_states_are_ignored() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    change = send(leader, fetch(leader, 2, 8))
    assert leader.change_accepted(change, (1, 2), 4, 11, 0) is NOTHING
    assert leader.change_accepted(change, (1, 2), 5, 9, 0) is NOTHING
    assert leader.is_wanted(change)


@pytest.mark.rule("A4")
def test_the_own_partition_epoch_settles_the_change_once() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    change = send(leader, fetch(leader, 2, 8))
    assert leader.change_accepted(change, (1, 2), 5, 10, 0)[0] == IsrCommitted()
    assert leader.isr == IsrState((1, 2), 10)
    assert leader.change_accepted(change, (1,), 5, 10, 0) is NOTHING
    assert leader.isr == IsrState((1, 2), 10)


def test_a_refused_newcomer_is_left_alone_for_a_moment() -> None:
    leader = a_leader(isr=(1,), replicas=(1, 2), log_end_offset=8)
    change = send(leader, fetch(leader, 2, 8))
    assert leader.change_refused(change, ErrorCode.INELIGIBLE_REPLICA, 0) is NOTHING
    assert leader.isr == IsrState((1,), 10)
    assert fetch(leader, 2, 8, now_ms=REFUSED_JOIN_BACKOFF_MS - 1) is NOTHING
    assert proposed(fetch(leader, 2, 8, now_ms=REFUSED_JOIN_BACKOFF_MS)).isr == (1, 2)


@pytest.mark.rule("A8")
def test_what_else_a_refused_change_held_is_proposed_again() -> None:
    leader = a_leader(isr=(1, 3), log_end_offset=8)
    leader.followers[2].fetched(8, 0, 8, 102, LAG_MS + 1)
    leader.followers[2].counted_broker_epoch = 102
    change = send(leader, leader.examine(LAG_MS + 1))
    assert change.isr == (1, 2)
    effects = leader.change_refused(change, ErrorCode.OPERATION_NOT_ATTEMPTED, LAG_MS + 1)
    assert proposed(effects).isr == (1,)


def test_a_refused_shrink_waits_for_the_next_examination() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=8, high_watermark=2)
    fetch(leader, 2, 2, now_ms=0)
    change = send(leader, leader.examine(LAG_MS + 1))
    assert leader.change_refused(change, ErrorCode.INELIGIBLE_REPLICA, LAG_MS + 1) is NOTHING
    assert leader.isr == IsrState((1, 2), 10)
    assert proposed(leader.examine(LAG_MS + 1)).isr == (1,)


@pytest.mark.rule("V60")
def test_a_refusal_may_let_the_high_watermark_go_on() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=8)
    fetch(leader, 2, 2, now_ms=0)
    change = send(leader, leader.examine(LAG_MS + 1))
    leader.followers[2].log_end_offset = 5
    assert leader.change_refused(change, ErrorCode.INELIGIBLE_REPLICA, LAG_MS + 1) is MOVED


@pytest.mark.rule("A8")
def test_an_unknown_outcome_keeps_the_change_and_asks_again() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    change = send(leader, fetch(leader, 2, 8))
    assert leader.change_refused(change, ErrorCode.UNKNOWN_SERVER_ERROR, 0) == (
        RetryAlterPartition(change),
    )
    assert leader.change_refused(change, ErrorCode.INVALID_UPDATE_VERSION, 0) is NOTHING
    assert leader.is_wanted(change)


@pytest.mark.rule("A2", "A8")
def test_a_request_without_response_is_noted_once_and_only_for_the_newest_change() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    first = send(leader, fetch(leader, 2, 8))
    assert leader.change_unanswered(first, 0) == (RetryAlterPartition(first),)
    known = leader.key()
    assert leader.change_unanswered(first, 0) is NOTHING, "no response is awaited"
    assert leader.key() == known
    second = send(leader, fetch(leader, 3, 8))
    assert second != first and leader.is_wanted(first)
    known = leader.key()
    assert leader.change_unanswered(first, 0) is NOTHING, "the response to the second is awaited"
    assert leader.key() == known
    assert leader.change_unanswered(second, 0) == (RetryAlterPartition(second),)


def test_the_refusal_of_a_change_that_is_void_means_nothing() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    change = send(leader, fetch(leader, 2, 8))
    leader.commanded((1,), (1, 2, 3), 12, dead_but(1), 0)
    assert leader.change_refused(change, ErrorCode.UNKNOWN_SERVER_ERROR, 0) is NOTHING


@pytest.mark.rule("V60", "A9")
def test_a_command_with_a_newer_partition_epoch_replaces_assignment_and_isr() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=8)
    fetch(leader, 2, 8)
    effects = leader.commanded((1, 2, 4), (1, 4), 11, lambda broker_id: True, 7)
    assert effects[0] == IsrCommitted()
    assert sorted(leader.followers) == [2, 4]
    assert leader.followers[2].log_end_offset == 8
    assert leader.followers[4].last_caught_up_ms == 7
    assert proposed(effects).isr == (1, 4)


@pytest.mark.rule("V31")
def test_a_command_that_is_not_newer_changes_nothing() -> None:
    leader = a_leader()
    before = leader.key()
    assert leader.commanded((1,), (1, 2, 3), 10, lambda broker_id: True, 7) is NOTHING
    assert leader.key() == before


@pytest.mark.rule("V64")
def test_a_shrink_below_the_minimum_is_told_once() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=8, min_insync_replicas=2)
    fetch(leader, 2, 2, now_ms=0)
    change = send(leader, leader.examine(LAG_MS + 1))
    assert not leader.is_below_minimum
    effects = accept(leader, change, LAG_MS + 1)
    assert effects[:2] == (IsrCommitted(), IsrBelowMinimum())
    assert leader.is_below_minimum
    assert IsrBelowMinimum() not in leader.commanded(
        (1,), (1, 2), 12, lambda broker_id: True, LAG_MS + 1
    )


@pytest.mark.rule("V60", "V64")
def test_raising_the_minimum_may_refuse_and_lowering_it_may_commit() -> None:
    leader = a_leader(isr=(1,), replicas=(1, 2), alive=dead_but(1))
    assert leader.minimum_changed(2, 0) == (IsrBelowMinimum(),)
    assert leader.minimum_changed(2, 0) is NOTHING
    assert leader.appended(5, 0) is NOTHING
    assert leader.minimum_changed(1, 0) == MOVED
    assert leader.high_watermark == 5


def test_acks_all_waits_for_eligible_replicas_where_it_is_not_refused() -> None:
    leader = a_leader(isr=(1, 2), min_insync_replicas=2)
    assert not leader.awaits_eligible
    leader.commanded((1, 2), (1, 2, 3), 11, lambda _: True, 0, has_eligible=True)
    assert leader.awaits_eligible
    leader.minimum_changed(3, 0)
    assert not leader.awaits_eligible, "the leader refuses acks=all"


def test_brokers_that_come_back_may_join() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8, high_watermark=8, alive=dead_but(1))
    assert fetch(leader, 2, 8) is NOTHING
    effects = leader.eligibility_changed(dead_but(1, 2), 0)
    assert proposed(effects).isr == (1, 2)


@pytest.mark.rule("V36")
def test_latest_has_an_answer_once_the_high_watermark_reached_the_epoch() -> None:
    leader = a_leader(log_end_offset=8, high_watermark=4, epoch_start_offset=8)
    assert not leader.is_watermark_current
    fetch(leader, 2, 8)
    fetch(leader, 3, 8)
    assert leader.is_watermark_current


@pytest.mark.rule("F7")
def test_a_leader_that_leads_on_knows_nothing_of_a_replica_that_is_new() -> None:
    former = a_leader(isr=(1, 2), replicas=(1, 2))
    reads = former.followers[2].reads_shown = PendingReads(30_000)
    leader = a_leader(isr=(1, 2), replicas=(1, 2, 3))
    leader.continues(former, 0)
    assert leader.followers[2].reads_shown is reads
    assert leader.followers[3].reads_shown is None


def test_key_holds_the_whole_state_and_copies_are_independent() -> None:
    leader = a_leader(isr=(1,), log_end_offset=8)
    fetch(leader, 2, 8)
    copy = leader.copy()
    assert copy.key() == leader.key()
    fetch(copy, 3, 8)
    assert copy.key() != leader.key()
    assert leader.followers[3].log_end_offset == -1


def test_the_low_watermark_is_the_least_log_start_of_the_living() -> None:
    leader = a_leader()
    assert leader.low_watermark(5) == -1, "no follower has told its own yet"
    leader.appended(9, 0)
    fetch(leader, 2, 9, log_start_offset=5)
    fetch(leader, 3, 9, log_start_offset=3)
    assert leader.low_watermark(5) == 3
    leader.eligibility_changed(dead_but(1, 2), 0)
    assert leader.low_watermark(5) == 5, "nobody waits for broker 3"
    assert leader.low_watermark(4) == 4
