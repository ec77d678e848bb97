"""Rules of following, the ISR and the high watermark, on the decisions themselves.

V60 to V65 and V67 (fetching and high watermark), A4 to A9 (ISR changes, the leader's side), F1 to
F4 (keeping up). Each test would fail if its rule were broken by one line.
"""

from __future__ import annotations

import pytest
from tests.support.replication import (
    LAG_MS,
    a_follower,
    a_leader,
    accept,
    fetch,
    proposed,
    send,
)

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import RECOVERED, EpochEnd
from tidelog.replication import isr as isr_rules
from tidelog.replication import truncation
from tidelog.replication.effects import (
    MOVED,
    NOTHING,
    AdvanceLogStart,
    AskLogStart,
    Effects,
    IsrBelowMinimum,
    IsrCommitted,
    RetryAlterPartition,
    SendAlterPartition,
    TruncateFullyAndStartAt,
    TruncateTo,
    WithdrawAlterPartition,
)
from tidelog.replication.follower import FollowerReplica
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica


def asks_for_a_change(effects: Effects) -> bool:
    return any(isinstance(effect, SendAlterPartition) for effect in effects)


# V60: what the high watermark is


@pytest.mark.rule("V60")
def test_the_high_watermark_is_the_smallest_end_over_the_isr() -> None:
    leader = a_leader(log_end_offset=10)
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    fetch(leader, 3, 6)
    assert leader.high_watermark == 6
    fetch(leader, 3, 10)
    assert leader.high_watermark == 10


@pytest.mark.rule("V60")
def test_it_waits_for_a_replica_that_is_caught_up_and_about_to_join() -> None:
    leader = a_leader(isr=(1,), replicas=(1, 2), log_end_offset=10, epoch_start_offset=10)
    fetch(leader, 2, 10, now_ms=1_000)
    leader.change_refused(send_pending(leader), ErrorCode.INELIGIBLE_REPLICA, 1_000)
    leader.appended(15, 2_000)
    assert leader.high_watermark == 10
    leader.appended(16, 2_000 + LAG_MS + 1)
    assert leader.high_watermark == 16


def send_pending(leader: LeaderReplica) -> IsrChange:
    change = leader.isr.queued
    assert change is not None
    leader.change_sent(change)
    return change


@pytest.mark.rule("V60")
def test_it_does_not_move_below_the_effective_minimum_of_confirmed_members() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10, min_insync_replicas=2)
    change = send(leader, fetch(leader, 2, 10))
    assert isr_rules.maximal_isr(leader.isr) == (1, 2)
    assert leader.high_watermark == 0
    effects = accept(leader, change)
    assert MOVED[0] in effects
    assert leader.high_watermark == 10


@pytest.mark.rule("V60")
def test_the_effective_minimum_is_bounded_by_the_assigned_replicas() -> None:
    leader = a_leader(isr=(1,), replicas=(1,), min_insync_replicas=2)
    leader.appended(5, 0)
    assert leader.high_watermark == 5


@pytest.mark.rule("V60")
def test_it_never_goes_backwards_on_a_leader() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2, 3), log_end_offset=10, high_watermark=8)
    fetch(leader, 2, 3)
    assert leader.high_watermark == 8
    leader.commanded((1, 2, 3), (1, 2, 3), 11, lambda broker_id: True, 0)
    assert leader.high_watermark == 8


@pytest.mark.rule("V60")
def test_changes_of_isr_assignment_and_configuration_look_at_it_again() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10, min_insync_replicas=2)
    assert MOVED[0] not in leader.commanded((1,), (1, 2), 11, lambda broker_id: False, 0)
    assert leader.minimum_changed(1, 0) == MOVED
    assert leader.high_watermark == 10
    other = a_leader(isr=(1,), replicas=(1, 2), log_end_offset=10, min_insync_replicas=2)
    assert MOVED[0] in other.commanded((1,), (1,), 11, lambda broker_id: True, 0)


# V61: the follower's mark


@pytest.mark.rule("V61")
def test_a_followers_mark_is_the_leaders_as_far_as_its_own_log_goes() -> None:
    follower = a_follower(log_end_offset=10)
    follower.answered(follower.position, 0, None, LeaderEpochs(), 12, 0, False)
    assert follower.high_watermark == 10
    follower.answered(follower.position, 0, None, LeaderEpochs(), 7, 0, False)
    assert follower.high_watermark == 7


# V62, F3, F4: leaving


@pytest.mark.rule("V62")
def test_a_member_that_was_not_caught_up_for_the_limit_leaves_also_without_any_fetch() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10, now_ms=0)
    assert not asks_for_a_change(leader.examine(LAG_MS))
    assert proposed(leader.examine(LAG_MS + 1)).isr == (1,)


@pytest.mark.rule("V62")
@pytest.mark.parametrize(("max_lag_bytes", "isr"), [(-1, None), (5_000, None), (4_999, (1, 3))])
def test_the_byte_lag_is_off_by_default_and_evicts_above_its_limit(
    max_lag_bytes: int, isr: tuple[int, ...] | None
) -> None:
    leader = a_leader(log_end_offset=10, max_lag_bytes=max_lag_bytes)
    leader.followers[2].bytes_behind = 5_000
    effects = leader.examine(0)
    assert (proposed(effects).isr if asks_for_a_change(effects) else None) == isr


@pytest.mark.rule("V62")
def test_a_follower_that_has_caught_up_is_not_judged_by_the_bytes_it_lacked_before() -> None:
    """The broker computes the bytes every half of the lag limit; the ISR changes in between."""
    leader = a_leader(isr=(1, 3), replicas=(1, 2, 3), log_end_offset=10, max_lag_bytes=4_999)
    leader.followers[2].bytes_behind = 5_000
    change = proposed(fetch(leader, 2, 10, now_ms=1))
    assert change.isr == (1, 2, 3)
    leader.change_sent(change)
    assert not asks_for_a_change(leader.change_accepted(change, (1, 2, 3), 5, 11, 2))


@pytest.mark.rule("F3")
def test_a_follower_with_the_leaders_end_stays_whatever_the_time() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10)
    fetch(leader, 2, 10, now_ms=0)
    assert not asks_for_a_change(leader.examine(100 * LAG_MS))


@pytest.mark.rule("F3")
def test_a_follower_was_in_sync_until_the_append_that_it_does_not_have() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10)
    fetch(leader, 2, 10, now_ms=0)
    late = 100 * LAG_MS
    leader.appended(11, late)
    assert not asks_for_a_change(leader.examine(late + LAG_MS))
    assert asks_for_a_change(leader.examine(late + LAG_MS + 1))


@pytest.mark.rule("F4")
def test_a_follower_that_was_caught_up_lately_stays() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10)
    fetch(leader, 2, 10, now_ms=5_000)
    leader.appended(20, 5_000)
    assert not asks_for_a_change(leader.examine(5_000 + LAG_MS))
    assert asks_for_a_change(leader.examine(5_001 + LAG_MS))


@pytest.mark.rule("F1")
def test_the_leader_keeps_the_state_in_a_fetch() -> None:
    leader = a_leader(log_end_offset=10)
    leader.fetched(2, 77, 6, 4, 1_234)
    follower = leader.followers[2]
    assert (
        follower.log_start_offset,
        follower.log_end_offset,
        follower.last_fetch_leader_end_offset,
        follower.last_fetch_ms,
        follower.broker_epoch,
    ) == (4, 6, 10, 1_234, 77)


@pytest.mark.rule("F2")
def test_always_one_batch_behind_is_caught_up_at_the_fetch_before() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=0)
    for second in range(1, 100):
        fetch(leader, 2, leader.log_end_offset, now_ms=second * 1_000)
        leader.appended(second * 10, second * 1_000)
        assert not asks_for_a_change(leader.examine(second * 1_000))
    assert leader.followers[2].last_caught_up_ms == 99_000


@pytest.mark.rule("F2")
def test_reaching_the_end_of_the_fetch_before_counts_for_the_time_of_that_fetch() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10, now_ms=0)
    fetch(leader, 2, 5, now_ms=1_000)
    leader.appended(20, 1_500)
    fetch(leader, 2, 10, now_ms=2_000)
    assert leader.followers[2].last_caught_up_ms == 1_000
    leader.appended(30, 2_500)
    fetch(leader, 2, 15, now_ms=3_000)
    assert leader.followers[2].last_caught_up_ms == 1_000


# V63: joining


@pytest.mark.rule("V63")
def test_no_follower_joins_below_the_high_watermark() -> None:
    leader = a_leader(
        isr=(1,), replicas=(1, 2), log_end_offset=10, high_watermark=8, min_insync_replicas=2
    )
    assert not asks_for_a_change(fetch(leader, 2, 7))
    assert asks_for_a_change(fetch(leader, 2, 8))


@pytest.mark.rule("V63")
def test_no_follower_joins_before_the_start_of_the_leader_epoch() -> None:
    # A new leader's high watermark may lag behind the committed records: only its log end decides.
    leader = a_leader(
        isr=(1, 3), replicas=(1, 2, 3), log_end_offset=10, high_watermark=4, epoch_start_offset=10
    )
    assert not asks_for_a_change(fetch(leader, 2, 9))
    assert asks_for_a_change(fetch(leader, 2, 10))


@pytest.mark.rule("V63")
def test_a_broker_that_is_not_alive_does_not_join() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10, alive=lambda broker_id: broker_id != 2)
    assert not asks_for_a_change(fetch(leader, 2, 10))


@pytest.mark.rule("V63")
def test_an_earlier_incarnation_does_not_count() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10, high_watermark=10)
    fetch(leader, 2, 3, broker_epoch=500)
    with pytest.raises(KafkaError) as raised:
        fetch(leader, 2, 10, broker_epoch=499)
    assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.isr == IsrState((1,), 10)


@pytest.mark.rule("V63")
def test_each_member_is_named_with_the_epoch_of_the_fetches_that_counted() -> None:
    leader = a_leader(isr=(1, 3), log_end_offset=10, high_watermark=6)
    fetch(leader, 3, 8, broker_epoch=303)
    # The broker came back with a shorter log: that life has not been in sync.
    fetch(leader, 3, 2, broker_epoch=333)
    change = proposed(fetch(leader, 2, 10, broker_epoch=202))
    assert dict(zip(change.isr, change.isr_epochs, strict=True)) == {1: 101, 2: 202, 3: 303}


# V64: below the minimum


@pytest.mark.rule("V64")
def test_acks_all_is_refused_while_too_few_are_confirmed() -> None:
    assert a_leader(isr=(1,), min_insync_replicas=2).is_below_minimum
    assert not a_leader(isr=(1, 2), min_insync_replicas=2).is_below_minimum


@pytest.mark.rule("V64")
def test_a_confirmed_shrink_below_the_minimum_refuses_what_waits() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10, min_insync_replicas=2)
    change = send(leader, leader.examine(LAG_MS + 1))
    assert not leader.is_below_minimum
    assert IsrBelowMinimum() in accept(leader, change, LAG_MS + 1)


# V65: the zombie


@pytest.mark.rule("V65")
def test_a_leader_without_followers_and_without_a_controller_commits_nothing() -> None:
    leader = a_leader(log_end_offset=10, now_ms=0)
    leader.appended(20, 0)
    change = send(leader, leader.examine(LAG_MS + 1))
    assert change.isr == (1,)
    for error in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
    ):
        leader.change_refused(change, error, LAG_MS + 1)
        leader.examine(10 * LAG_MS)
        assert leader.high_watermark == 0


# V67, V32: log bounds and divergence


def answered(
    follower: FollowerReplica,
    *,
    error: int = 0,
    diverging: EpochEnd | None = None,
    epochs: LeaderEpochs | None = None,
    leader_log_start: int = 0,
    leader_high_watermark: int = 0,
) -> Effects:
    return follower.answered(
        follower.position,
        error,
        diverging,
        epochs or LeaderEpochs(),
        leader_high_watermark,
        leader_log_start,
        False,
    )


@pytest.mark.rule("V67")
def test_a_follower_whose_last_epoch_begins_later_at_its_leader_cuts_that_epoch_off() -> None:
    leader, own = LeaderEpochs([(0, 0), (1, 66), (2, 120)]), LeaderEpochs([(0, 0), (2, 63)])
    diverging = truncation.diverging_epoch(leader, 150, 2, 64)
    assert diverging is not None
    assert truncation.truncation_offset(diverging, own, 64) == 63


@pytest.mark.rule("V67")
def test_a_follower_below_the_leaders_log_starts_over_there() -> None:
    follower = a_follower(log_end_offset=10, high_watermark=10)
    assert answered(follower, error=ErrorCode.OFFSET_OUT_OF_RANGE) == (AskLogStart(),)
    assert follower.leader_log_starts_at(40) == (TruncateFullyAndStartAt(40),)


@pytest.mark.rule("V67")
def test_without_an_answer_for_its_epoch_it_starts_at_the_leaders_log_start() -> None:
    follower = a_follower(log_end_offset=10, high_watermark=8)
    answered(follower, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert follower.leader_log_starts_at(2) == (TruncateFullyAndStartAt(2),)


@pytest.mark.rule("V67")
def test_a_follower_above_the_leaders_end_reconciles_by_epoch() -> None:
    leader_epochs = LeaderEpochs([(1, 0), (5, 8)])
    follower_epochs = LeaderEpochs([(1, 0)])
    follower = a_follower(epochs=follower_epochs, log_end_offset=15, high_watermark=3)
    end = truncation.diverging_epoch(leader_epochs, 8, 1, 15)
    assert end == EpochEnd(1, 8)
    assert answered(follower, diverging=end, epochs=follower_epochs) == (TruncateTo(8),)


@pytest.mark.rule("V32")
def test_an_epoch_that_the_leader_lacks_diverges_also_within_the_leaders_longer_one() -> None:
    """The leader wrote more under epoch 1 than the follower has in all: lengths alone agree."""
    leader_epochs = LeaderEpochs([(1, 0), (3, 20)])
    follower_epochs = LeaderEpochs([(1, 0), (2, 12)])
    end = truncation.diverging_epoch(leader_epochs, 30, 2, 15)
    assert end == EpochEnd(1, 20)
    follower = a_follower(epochs=follower_epochs, log_end_offset=15, high_watermark=12)
    assert answered(follower, diverging=end, epochs=follower_epochs) == (TruncateTo(12),)


@pytest.mark.rule("V67")
def test_a_log_that_ends_where_the_leaders_begins_is_compared_below() -> None:
    """DeleteRecords moved the leader's log start over the end of an epoch: it knows where that was,
    also of a follower whose last epoch is an earlier one yet."""
    leader_epochs = LeaderEpochs([(3, 0), (4, 40), (5, 48), (6, 52), (7, 58)])
    leader_epochs.truncate_from_start(58)
    for last_epoch in (3, 4, 5):
        end = truncation.diverging_epoch(leader_epochs, 80, last_epoch, 58)
        assert end == EpochEnd(last_epoch, 52)
        follower_epochs = LeaderEpochs([(last_epoch, 0)])
        follower = a_follower(epochs=follower_epochs, log_end_offset=58, high_watermark=41)
        effects = answered(follower, diverging=end, epochs=follower_epochs, leader_log_start=58)
        assert effects == (TruncateFullyAndStartAt(58),)
    assert truncation.diverging_epoch(leader_epochs, 80, 6, 58) is None, "it was caught up"
    assert truncation.diverging_epoch(leader_epochs, 80, 7, 60) is None


@pytest.mark.rule("V67")
@pytest.mark.parametrize("fetch_offset", [55, 58])
def test_what_lies_below_all_that_the_leader_has_cannot_be_compared(fetch_offset: int) -> None:
    """The leader itself restarted where its log started, or at its first record."""
    leader_epochs = LeaderEpochs([(5, 58)])
    with pytest.raises(KafkaError, match="nothing is known here of leader epoch 4") as refused:
        truncation.diverging_epoch(leader_epochs, 80, 4, fetch_offset)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert truncation.diverging_epoch(leader_epochs, 80, 4, 59) == EpochEnd(4, 58)
    assert truncation.diverging_epoch(leader_epochs, 80, 5, 58) is None


@pytest.mark.rule("V67")
def test_log_start_offsets_travel_both_ways() -> None:
    follower = a_follower(log_end_offset=10)
    effects = answered(follower, leader_high_watermark=10, leader_log_start=6)
    assert effects == (AdvanceLogStart(6),)
    leader = a_leader(log_end_offset=10)
    leader.fetched(2, 102, 10, follower.log_start_offset, 0)
    assert leader.followers[2].log_start_offset == 6


@pytest.mark.rule("V33")
def test_answers_asked_for_before_a_truncation_or_a_leader_epoch_are_dropped() -> None:
    follower = a_follower(leader_epoch=5, log_end_offset=10)
    before = follower.position
    answered(follower, diverging=EpochEnd(3, 6))
    follower.truncated(0, 6, 3)
    assert follower.answered(before, 0, None, LeaderEpochs(), 10, 0, True) is NOTHING
    assert not follower.is_busy
    later = a_follower(leader_epoch=6, log_end_offset=10)
    assert later.answered(before, 0, None, LeaderEpochs(), 10, 0, True) is NOTHING
    assert later.high_watermark == 0


# A4 to A9: ISR changes


@pytest.mark.rule("A3")
def test_a_new_leader_counts_itself_as_recovered_and_proposes_so() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    assert proposed(fetch(leader, 2, 10)).leader_recovery_state == RECOVERED


@pytest.mark.rule("A4")
def test_the_state_that_already_holds_is_a_success_also_at_the_epoch_known() -> None:
    leader = a_leader(isr=(1,), replicas=(1, 2), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    effects = leader.change_accepted(change, (1, 2), 5, change.partition_epoch, 0)
    assert IsrCommitted() in effects
    assert leader.isr == IsrState((1, 2), change.partition_epoch)


@pytest.mark.rule("A5")
def test_appends_and_fetches_go_on_while_a_change_is_in_flight() -> None:
    leader = a_leader(isr=(1,), replicas=(1, 2), log_end_offset=10)
    send(leader, fetch(leader, 2, 10))
    leader.appended(14, 0)
    assert fetch(leader, 2, 14) == MOVED
    assert leader.high_watermark == 14


@pytest.mark.rule("A6")
def test_until_a_shrink_is_confirmed_the_larger_isr_counts() -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10)
    change = send(leader, leader.examine(LAG_MS + 1))
    leader.appended(12, LAG_MS + 1)
    assert leader.high_watermark == 0
    assert MOVED[0] in accept(leader, change, LAG_MS + 1)
    assert leader.high_watermark == 12


@pytest.mark.rule("A7")
def test_an_expansion_counts_at_once_for_the_high_watermark_and_not_for_the_minimum() -> None:
    leader = a_leader(
        isr=(1, 3), log_end_offset=10, high_watermark=10, min_insync_replicas=3, now_ms=0
    )
    send(leader, fetch(leader, 2, 10, now_ms=0))
    assert leader.is_below_minimum
    leader.minimum_changed(1, 0)
    late = 10 * LAG_MS
    leader.appended(20, late)
    fetch(leader, 3, 20, now_ms=late)
    leader.examine(late + LAG_MS + 1)
    assert leader.high_watermark == 10


@pytest.mark.rule("A8")
def test_one_change_is_in_flight_a_partition() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    send(leader, fetch(leader, 2, 10))
    assert not asks_for_a_change(fetch(leader, 3, 10))
    assert not asks_for_a_change(leader.examine(0))
    assert len(isr_rules.changes(leader.isr)) == 1


@pytest.mark.rule("A8")
@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_change_that_was_refused_for_good_leaves_the_union(error: ErrorCode) -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    leader.change_refused(change, error, 0)
    assert isr_rules.maximal_isr(leader.isr) == (1,)


@pytest.mark.rule("A8")
@pytest.mark.parametrize(
    "error",
    [
        code
        for code in ErrorCode
        if code
        not in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NONE)
    ],
)
def test_every_other_error_leaves_the_change_counted(error: ErrorCode) -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    effects = leader.change_refused(change, error, 0)
    assert isr_rules.maximal_isr(leader.isr) == (1, 2)
    retried = error not in isr_rules.WAIT_FOR_COMMAND
    assert effects == ((RetryAlterPartition(change),) if retried else NOTHING)


@pytest.mark.rule("A8")
def test_queued_changes_are_coalesced_and_cancel_out() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10, high_watermark=10)
    first = proposed(fetch(leader, 2, 10, now_ms=0))
    assert proposed(fetch(leader, 3, 10, now_ms=LAG_MS)).isr == (1, 2, 3)
    leader.appended(20, LAG_MS)
    fetch(leader, 3, 20, now_ms=2 * LAG_MS)
    assert proposed(leader.examine(2 * LAG_MS + 1)).isr == (1, 3)
    leader.appended(30, 2 * LAG_MS + 1)
    effects = leader.examine(4 * LAG_MS)
    assert isinstance(effects[0], WithdrawAlterPartition)
    assert leader.isr == IsrState((1,), 10)
    assert not leader.is_wanted(first)


@pytest.mark.rule("A9", "V31")
def test_a_repeated_partition_epoch_discards_nothing() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    assert leader.commanded((1,), (1, 2, 3), 10, lambda broker_id: True, 0) is NOTHING
    assert leader.is_wanted(change)


@pytest.mark.rule("A9", "A1", "A3")
def test_a_change_left_to_a_command_is_requested_again_after_one_of_the_known_epoch() -> None:
    # The controller could not read the topic. Now it can, writes nothing, and sends the role.
    leader = a_leader(isr=(1,), log_end_offset=10, min_insync_replicas=2)
    change = send(leader, fetch(leader, 2, 10))
    assert leader.change_refused(change, ErrorCode.UNKNOWN_TOPIC_ID, 0) is NOTHING
    assert leader.commanded((1,), (1, 2, 3), 9, lambda broker_id: True, 0) is NOTHING
    assert not leader.is_to_be_sent(change), "an older command says nothing"
    effects = leader.commanded((1,), (1, 2, 3), 10, lambda broker_id: True, 0)
    assert effects == (RetryAlterPartition(change),)
    assert leader.is_to_be_sent(change) and leader.is_wanted(change)
    assert isr_rules.maximal_isr(leader.isr) == (1, 2), "it may have been made"
    leader.change_sent(change)
    assert leader.change_accepted(change, (1, 2), 5, 11, 0)[0] == IsrCommitted()
    assert leader.isr == IsrState((1, 2), 11)


@pytest.mark.rule("A9")
def test_a_newer_partition_epoch_discards_what_was_pending_and_all_are_examined_again() -> None:
    leader = a_leader(isr=(1,), log_end_offset=10)
    change = send(leader, fetch(leader, 2, 10))
    fetch(leader, 3, 10)
    effects = leader.commanded((1,), (1, 2, 3), 11, lambda broker_id: True, 0)
    assert not leader.is_wanted(change)
    again = proposed(effects)
    assert (again.isr, again.partition_epoch) == ((1, 2, 3), 11)
    leader.change_sent(again)
    assert leader.change_accepted(change, (1, 2), 5, 12, 0)[0] == IsrCommitted()
    assert leader.isr.committed == (1, 2)
    assert not leader.is_wanted(again)


@pytest.mark.rule("V38")
def test_a_log_that_is_cut_lower_than_asked_takes_the_high_watermark_along() -> None:
    """A log is cut at the batch that contains the offset."""
    follower = a_follower(log_end_offset=10, high_watermark=9)
    follower.answered(follower.position, 0, EpochEnd(4, 8), LeaderEpochs(), 9, 0, False)
    assert (follower.is_busy, follower.high_watermark) == (True, 8)
    follower.truncated(0, 6, 4)
    assert follower.high_watermark == 6


@pytest.mark.rule("V38")
def test_a_follower_that_starts_its_log_over_lowers_its_high_watermark_first() -> None:
    """It claims nothing of the records, in memory or in its checkpoint, before they are gone."""
    epochs = LeaderEpochs([(1, 0), (3, 12)])
    follower = a_follower(epochs=epochs, log_start_offset=10, log_end_offset=15, high_watermark=14)
    effects = follower.answered(follower.position, 0, EpochEnd(1, 9), epochs, 0, 2, False)
    assert effects == (TruncateFullyAndStartAt(9),)
    assert follower.is_busy and follower.high_watermark == 9
