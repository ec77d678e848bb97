"""Requests that wait on a partition: Produce with acks=all, deletions, fetches (DESIGN.md, rule 7).

The cost of a waiting request grows with the number of changes of its partitions, not with the
number of its partitions. Each partition has a deque of waiting Produce requests, ordered by offset,
so a move of the high watermark touches only the requests that it releases. A partition reports each
change to the fetch sessions that contain it. When this broker loses the leadership, every wait ends
with NOT_LEADER_OR_FOLLOWER (V38). If the committed ISR falls below the minimum, waits for acks end
with NOT_ENOUGH_REPLICAS_AFTER_APPEND (V64). An idempotent producer's batches are acknowledged in
order. If a batch was refused after its append, all later batches get its error until the producer
resends the batch (V38).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.log.refused_batches import RefusedBatches, SentBatch


class FetchWatcher(Protocol):
    """One partition of one fetch session; the replica calls these methods when it changes."""

    def changed(self) -> None:
        """Mark the partition for the next fetch, because the response may change."""

    def readable(self) -> None:
        """Have a waiting fetch examine the partition now: more records may be readable."""

    def look_again(self) -> None:
        """Have a waiting fetch examine the partition now, even if no more records can come."""


class AcksWait(Protocol):
    """One partition of a Produce request that waits until the ISR has its batch.

    An `AcksWait` may also be one partition of a DeleteRecords request that waits for all live
    replicas.
    """

    def acknowledged(self) -> None:
        """Complete the wait, because the high or low watermark has reached the awaited offset."""

    def refused(self, error: ErrorCode, message: str) -> None:
        """Fail the wait; the batch may still commit, or the records may still be deleted."""


#: An empty deque, shared by all replicas on which no produce waits, because a deque takes 760
#: bytes.
_NOBODY: deque[tuple[int, AcksWait]] = deque(maxlen=0)


class PartitionWatchers:
    """All requests that wait on one hosted replica, by kind."""

    __slots__ = (
        "_acks", "_consumers", "_deletions", "_followers", "_syncs", "_unanswered",
    )  # fmt: skip

    def __init__(self) -> None:
        #: The Produce requests that wait, each with the offset that the high watermark must reach,
        #: in the order of these offsets.
        self._acks = _NOBODY
        #: The deletions that wait, each with the offset that the low watermark must reach; few, and
        #: not ordered.
        self._deletions: list[tuple[int, AcksWait]] = []
        #: The Produce requests with acks=1 that wait, each with the offset up to which the leader
        #: must sync its log.
        self._syncs: list[tuple[int, AcksWait]] = []
        self._followers: dict[FetchWatcher, None] = {}
        self._consumers: dict[FetchWatcher, None] = {}
        #: Batches that are in the log although their Produce request got an error; None before the
        #: first error.
        self._unanswered: RefusedBatches | None = None

    @property
    def acks_waiting(self) -> int:
        """The number of Produce requests that wait for the high watermark."""
        return len(self._acks)

    def wait_for_acks(self, offset: int, wait: AcksWait) -> None:
        """Acknowledge `wait` when the high watermark reaches `offset`."""
        waiting = self._acks
        if waiting is _NOBODY:
            self._acks = waiting = deque()
        if waiting and waiting[-1][0] > offset:
            # A repeated batch waits for the offset of the original batch, so it goes before later
            # batches (V38).
            waiting.append((offset, wait))
            self._acks = deque(sorted(waiting, key=lambda entry: entry[0]))
        else:
            waiting.append((offset, wait))

    def refused_after_append(self, sent: SentBatch, error: ErrorCode, now_ms: int) -> None:
        """Expect that a producer resends a batch that got `error`; `now_ms` is monotonic (V38)."""
        if self._unanswered is None:
            self._unanswered = RefusedBatches()
        sequences = (sent.base_sequence, sent.last_sequence)
        self._unanswered.add(sent.producer_id, sent.producer_epoch, sequences, error, now_ms)

    def check_order(self, sent: SentBatch, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError if the producer must first resend an earlier batch.

        The broker checks the order of a producer's batches just before it acknowledges a batch
        (V38).
        """
        if self._unanswered:
            self._unanswered.check_stored(sent, now_ms)

    def wait_for_sync(self, offset: int, wait: AcksWait) -> None:
        """Acknowledge `wait` when the leader has synced its log up to `offset` (V69)."""
        self._syncs.append((offset, wait))

    @property
    def deletions_wait(self) -> bool:
        """Whether any deletion waits for a move of the low watermark."""
        return bool(self._deletions)

    def wait_for_low_watermark(self, offset: int, wait: AcksWait) -> None:
        """Acknowledge `wait` when the low watermark reaches `offset`."""
        self._deletions.append((offset, wait))

    def give_up_deletion(self, wait: AcksWait) -> None:
        """Drop the timed-out wait of a deletion for the low watermark."""
        self._deletions = [entry for entry in self._deletions if entry[1] is not wait]

    def watch(self, watcher: FetchWatcher, follower: bool) -> None:
        """Report each change of this replica to a fetch session's partition, until `unwatch`."""
        (self._followers if follower else self._consumers)[watcher] = None

    @property
    def followers(self) -> Iterable[FetchWatcher]:
        """The fetch sessions of followers that contain this partition."""
        return self._followers

    def unwatch(self, watcher: FetchWatcher) -> None:
        """Stop reporting the changes of a partition to `watcher`, a fetch session's partition."""
        self._followers.pop(watcher, None)
        self._consumers.pop(watcher, None)

    # methods that the partition calls

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Acknowledge the committed batches, and wake the waiting fetches of consumers.

        A move of the high watermark alone does not end a follower's waiting fetch (V61).
        """
        # Sending a response may begin the connection's next request, and that request may add a
        # wait to `_acks`, so the loop reads `_acks` again for each wait.
        while self._acks and self._acks[0][0] <= high_watermark:
            self._acks.popleft()[1].acknowledged()
        for watcher in list(self._consumers):
            watcher.readable()
        for watcher in list(self._followers):
            watcher.changed()

    def low_watermark_is(self, low_watermark: int) -> None:
        """Acknowledge the deletions whose records all live replicas have removed."""
        done = [wait for offset, wait in self._deletions if offset <= low_watermark]
        if done:
            self._deletions = [
                deletion for deletion in self._deletions if deletion[0] > low_watermark
            ]
            for wait in done:
                wait.acknowledged()

    def synced(self, synced_offset: int) -> None:
        """Acknowledge the requests with acks=1 whose records the leader has synced (V69)."""
        waiting = self._syncs
        if not waiting:
            return
        self._syncs = [entry for entry in waiting if entry[0] > synced_offset]
        for offset, wait in waiting:
            if offset <= synced_offset:
                wait.acknowledged()

    def sync_failed(self, message: str) -> None:
        """Refuse the Produce requests that wait for a sync."""
        waiting, self._syncs = self._syncs, []
        for _, wait in waiting:
            wait.refused(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def log_end_moved(self) -> None:
        """Wake the waiting fetches of followers, because new records can be read."""
        for watcher in list(self._followers):
            watcher.readable()

    def look_again(self) -> None:
        """Wake all waiting fetches: the leader epoch or the log's segments have changed (V61).

        After a change of the leader epoch, a fetch of the earlier epoch is refused. A fetch that
        waits for more records of a segment gets none once the segment is no longer active.
        """
        for watcher in [*self._followers, *self._consumers]:
            watcher.look_again()

    def assignment_changed(self) -> None:
        """Wake all waiting followers: a follower that is no longer assigned gets an error (V63)."""
        for watcher in list(self._followers):
            watcher.look_again()

    def isr_or_log_start_changed(self) -> None:
        """Mark the partition in all waiting fetches, so that their responses report the change."""
        for watcher in [*self._followers, *self._consumers]:
            watcher.changed()

    def another_leads(self, now_ms: int) -> None:
        """Note that another broker leads, and may acknowledge batches that were refused (V38)."""
        if self._unanswered is not None:
            self._unanswered.another_leads(now_ms)

    def leadership_lost(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        """Respond to all waiting requests, as this broker has lost the leadership (V38)."""
        gone = f"{topic_partition} is not led by this broker any more"
        self._refuse_all(error, gone)
        deletions, self._deletions = self._deletions, []
        syncs, self._syncs = self._syncs, []
        for _, wait in (*deletions, *syncs):
            wait.refused(error, gone)
        for watcher in [*self._followers, *self._consumers]:
            watcher.readable()

    def isr_below_minimum(self, message: str) -> None:
        """Refuse waiting Produce requests: the committed ISR is below the minimum (V64)."""
        self._refuse_all(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, message)

    def _refuse_all(self, error: ErrorCode, message: str) -> None:
        waiting, self._acks = self._acks, _NOBODY
        for _, wait in waiting:
            wait.refused(error, message)
