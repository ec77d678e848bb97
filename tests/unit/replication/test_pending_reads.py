"""Reads for a follower's fetches: what counts of them, and when they count no longer (F5 to F7)."""

from __future__ import annotations

import pytest
from tests.support.replication import LAG_MS, a_leader

from tidelog.replication.leader import LeaderReplica
from tidelog.replication.pending_reads import NEVER_MS, PendingRead, PendingReads
from tidelog.replication.progress import FollowerProgress

#: Longer than any lag here.
MAX_AGE_MS = 10 * LAG_MS
#: Broker epoch of the follower, broker 2.
EPOCH = 102


def reading(received_ms: int = 0) -> PendingReads:
    """Reads of a session of the follower, one of them under way."""
    reads = PendingReads(MAX_AGE_MS)
    reads.begin(PendingRead(EPOCH, received_ms))
    return reads


def fetched(leader: LeaderReplica, reads: PendingReads, now_ms: int = 0) -> FollowerProgress:
    """The follower fetches at the leader's end, in this session; what is known of it."""
    leader.fetched(2, EPOCH, leader.log_end_offset, 0, now_ms, reads=reads)
    return leader.followers[2]


def a_counting_leader() -> LeaderReplica:
    leader = a_leader()
    leader.pending_reads_changed(is_enabled=True)
    return leader


@pytest.mark.rule("F5")
def test_reads_count_from_the_first_fetch_after_they_were_enabled() -> None:
    leader = a_leader()
    reads = reading()
    follower = fetched(leader, reads)
    assert follower.reads is None and not reads.is_watched
    leader.pending_reads_changed(is_enabled=True)
    assert not follower.has_pending_read(1), "the fetch came before"
    fetched(leader, reads)
    assert reads.is_watched and follower.has_pending_read(1)


@pytest.mark.rule("F5")
def test_reads_that_counted_do_so_after_they_were_enabled_once_more() -> None:
    leader = a_counting_leader()
    follower = fetched(leader, reading())
    leader.pending_reads_changed(is_enabled=True)
    assert follower.has_pending_read(1)
    leader.pending_reads_changed(is_enabled=False)
    assert not follower.has_pending_read(1), "at once no longer"


@pytest.mark.rule("F7")
def test_a_session_that_ends_takes_only_its_own_reads_with_it() -> None:
    leader = a_counting_leader()
    former, present = reading(), reading()
    fetched(leader, former)
    follower = fetched(leader, present)
    leader.reads_forgotten(2, former)
    assert follower.has_pending_read(1), "the follower has fetched in another session since"
    leader.reads_forgotten(9, present)
    assert follower.has_pending_read(1), "broker 9 has no replica"
    leader.reads_forgotten(2, present)
    assert follower.reads is None and not follower.has_pending_read(1)


@pytest.mark.rule("F5", "F6")
def test_a_fetch_whose_reads_do_not_count_ends_what_counted_but_not_what_was_done() -> None:
    progress = FollowerProgress(2, NEVER_MS)
    progress.is_eligible = True
    reads = PendingReads(MAX_AGE_MS)
    read = PendingRead(EPOCH, 0)
    number = reads.begin(read)
    progress.fetched(5, 0, 5, EPOCH, 0, reads)
    assert progress.has_pending_read(1)
    reads.done(number, read, 700)
    reads.begin(PendingRead(EPOCH, 800))
    progress.fetched(5, 0, 9, EPOCH, 800)
    assert progress.reads is None and not progress.reached_previous_end
    assert not progress.has_pending_read(801)
    assert progress.last_caught_up_ms == progress.caught_up_ms() == 700


def test_key_holds_the_whole_state_and_copies_are_independent() -> None:
    reads = reading()
    reads.is_watched = True
    reads.done(reads.begin(PendingRead(EPOCH, 5)), PendingRead(EPOCH, 5), 60)
    copy = reads.copy()
    assert copy.key() == reads.key() and copy.is_watched
    assert copy.done_ms(EPOCH, 0) == 60
    begun = copy.begin(PendingRead(EPOCH, 70))
    assert begun == reads.begin(PendingRead(EPOCH, 70)), "numbers go on where they were"
    copy.drop(begun)
    assert (copy.count(EPOCH, 0, 80), reads.count(EPOCH, 0, 80)) == (1, 2)
    assert copy.key() != reads.key()
    copy.done(1, PendingRead(EPOCH, 0), 90)
    assert (copy.done_ms(EPOCH, 0), reads.done_ms(EPOCH, 0)) == (90, 60)


def test_the_copy_of_a_leader_has_reads_of_its_own() -> None:
    leader = a_counting_leader()
    follower = fetched(leader, reading())
    copy = leader.copy()
    assert copy.key() == leader.key()
    copied = copy.followers[2].reads
    assert copied is not None and copied is not follower.reads
    copied.drop(1)
    assert follower.has_pending_read(1) and not copy.followers[2].has_pending_read(1)
    assert copy.key() != leader.key()
