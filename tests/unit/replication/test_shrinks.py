"""Why a leader takes a member out, and how far followers are behind."""

from __future__ import annotations

import pytest

from tidelog.core.shrink_causes import ShrinkCause
from tidelog.replication.effects import SendAlterPartition
from tidelog.replication.isr import IsrState
from tidelog.replication.lag import Progress, progress_of
from tidelog.replication.leader import LeaderReplica
from tidelog.replication.pending_reads import PendingRead, PendingReads
from tidelog.replication.progress import NEVER_MS, FollowerProgress
from tidelog.replication.shrinks import IsrShrink, describe, shrink_of

LIMIT_MS = 1_000


def follower(
    *, fetched_ms: int = NEVER_MS, caught_up_ms: int = 0, refused_ms: int = NEVER_MS, end: int = 40
) -> FollowerProgress:
    made = FollowerProgress(2, caught_up_ms)
    made.last_fetch_ms, made.last_refused_ms, made.log_end_offset = fetched_ms, refused_ms, end
    return made


@pytest.mark.parametrize(
    ("progress", "cause", "behind_ms"),
    [
        (follower(fetched_ms=4_900, caught_up_ms=3_000), ShrinkCause.SLOW, 2_000),
        (follower(fetched_ms=3_500, caught_up_ms=3_000), ShrinkCause.NO_FETCH, 1_500),
        (follower(caught_up_ms=3_800), ShrinkCause.NO_FETCH, 1_200),
        (
            follower(fetched_ms=3_000, caught_up_ms=3_000, refused_ms=4_500),
            ShrinkCause.EPOCH,
            2_000,
        ),
        (follower(fetched_ms=4_600, caught_up_ms=3_000, refused_ms=4_500), ShrinkCause.SLOW, 2_000),
        (
            follower(fetched_ms=2_000, caught_up_ms=2_000, refused_ms=3_000),
            ShrinkCause.NO_FETCH,
            3_000,
        ),
    ],
)
def test_refused_fetches_come_before_missing_ones_and_these_before_slow_ones(
    progress: FollowerProgress, cause: ShrinkCause, behind_ms: int
) -> None:
    assert shrink_of(progress, 50, 5_000, LIMIT_MS) == IsrShrink(2, cause, behind_ms, 10)


def reads_since(*received_ms: int, broker_epoch: int = 7) -> PendingReads:
    made = PendingReads(30_000)
    for each in received_ms:
        made.begin(PendingRead(broker_epoch, each))
    return made


def waiting_follower(reads: PendingReads, fetched_ms: int) -> FollowerProgress:
    """A follower of an option that is off: its reads do not count, and are known."""
    made = follower(fetched_ms=fetched_ms, caught_up_ms=2_000)
    made.broker_epoch, made.reads_shown = 7, reads
    return made


class TestReadsOfTheLeader:
    """KIP-501's case with the option off: the leader's disk is the cause."""

    def test_a_follower_that_waits_for_the_leaders_disk_is_not_to_blame(self) -> None:
        found = shrink_of(waiting_follower(reads_since(3_500), 3_500), 50, 5_000, LIMIT_MS)
        assert found == IsrShrink(2, ShrinkCause.LEADER_READ, 1_500, 10)
        assert describe(found, LIMIT_MS) == (
            "the leader's disk has been reading for its fetch for 1,500 ms (limit 1,000)"
        )

    def test_a_short_read_explains_nothing(self) -> None:
        found = shrink_of(waiting_follower(reads_since(4_600), 4_600), 50, 5_000, LIMIT_MS)
        assert found.cause is ShrinkCause.SLOW

    def test_reads_of_earlier_fetches_and_of_earlier_registrations_explain_nothing(self) -> None:
        for reads in (reads_since(3_400), reads_since(3_500, broker_epoch=6)):
            found = shrink_of(waiting_follower(reads, 3_500), 50, 5_000, LIMIT_MS)
            assert found.cause is ShrinkCause.NO_FETCH

    def test_a_read_that_was_given_up_explains_while_the_disk_goes_on(self) -> None:
        reads = reads_since(3_500)
        reads.drop(1)
        assert reads.count(7, NEVER_MS, 5_000) == 0
        progress = waiting_follower(reads, 3_500)
        assert shrink_of(progress, 50, 5_000, LIMIT_MS).cause is ShrinkCause.LEADER_READ
        reads.ended(1)
        assert shrink_of(progress, 50, 5_000, LIMIT_MS).cause is ShrinkCause.NO_FETCH

    def test_reads_are_shown_although_they_do_not_count(self) -> None:
        progress = waiting_follower(reads_since(4_000, 4_500), 4_500)
        assert progress_of(progress, 50, 5_000).pending_reads == 2
        assert not progress.has_pending_read(5_000), "they keep no follower in sync"

    def test_a_leader_with_the_option_off_knows_the_reads(self) -> None:
        made, reads = leader(), reads_since(3_500, broker_epoch=12)
        made.fetched(2, 12, 0, 0, 3_500, reads=reads)
        assert made.followers[2].reads is None
        assert made.followers[2].pending_reads(4_000) == 1


@pytest.mark.parametrize(
    ("shrink", "text"),
    [
        (
            IsrShrink(2, ShrinkCause.NO_FETCH, 30_012, 7),
            "no fetch for 30,012 ms (limit 30,000)",
        ),
        (
            IsrShrink(2, ShrinkCause.SLOW, 30_012, 1_234),
            "1,234 records behind, not caught up for 30,012 ms (limit 30,000)",
        ),
        (
            IsrShrink(2, ShrinkCause.EPOCH, 31_000),
            "its fetches are of another epoch; not caught up for 31,000 ms (limit 30,000)",
        ),
    ],
)
def test_the_log_has_the_numbers(shrink: IsrShrink, text: str) -> None:
    assert describe(shrink, 30_000) == text


def leader() -> LeaderReplica:
    return LeaderReplica(
        broker_id=1,
        broker_epoch=11,
        leader_epoch=5,
        isr=IsrState((1, 2, 3), 10),
        replicas=(1, 2, 3),
        epoch_start_offset=0,
        log_end_offset=0,
        high_watermark=0,
        min_insync_replicas=1,
        max_lag_ms=LIMIT_MS,
        is_eligible=lambda _: True,
        now_ms=0,
    )


@pytest.mark.rule("V62")
def test_a_change_carries_the_causes_of_all_confirmed_members_that_leave() -> None:
    made = leader()
    made.fetched(2, 12, 0, 0, 100)
    made.appended(30, 200)
    made.fetched(2, 12, 10, 0, 1_900)
    made.fetch_refused(3, 1_950)
    made.fetch_refused(9, 1_950)  # no replica
    [sent] = made.examine(2_000)
    assert isinstance(sent, SendAlterPartition)
    assert sent.change.isr == (1,)
    assert [(one.replica_id, one.cause) for one in sent.change.shrinks] == [
        (2, ShrinkCause.SLOW),
        (3, ShrinkCause.EPOCH),
    ]


@pytest.mark.rule("F3")
def test_a_follower_with_the_whole_log_has_no_lag_whenever_it_fetched() -> None:
    assert progress_of(follower(fetched_ms=10, caught_up_ms=10, end=50), 50, 9_000) == Progress(
        0, 0, 8_990
    )
    behind = progress_of(follower(fetched_ms=4_900, caught_up_ms=3_000), 50, 5_000)
    assert behind == Progress(10, 2_000, 100)
    assert progress_of(follower(end=-1), 50, 5_000) == Progress(-1, -1, -1)
    assert progress_of(follower(fetched_ms=1, caught_up_ms=NEVER_MS), 50, 5_000).lag_ms == -1


@pytest.mark.rule("F5")
def test_reads_that_the_leader_has_not_finished_are_shown() -> None:
    reads, made = PendingReads(max_age_ms=1_000), follower(end=-1)
    made.fetched(40, 0, 50, 12, 100, reads)
    made.reads_shown = reads
    number = reads.begin(PendingRead(12, 100))
    assert progress_of(made, 50, 900) == Progress(10, 900, 800, pending_reads=1)
    assert progress_of(made, 50, 1_200).pending_reads == 0, "the follower has given up"
    reads.done(number, PendingRead(12, 100), 950)
    assert progress_of(made, 50, 960).pending_reads == 0
