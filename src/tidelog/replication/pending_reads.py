"""Reads for one follower's fetches that the leader has begun and not finished (F5 to F7).

A follower cannot catch up faster than its leader reads. With
`follower.fetch.pending.reads.insync.enable` a follower stays in the ISR while the leader reads for
its fetch, and is caught up when that read is done. One object holds the reads of one fetch session.
A response leaves when all reads of its fetch are done, so a slow read delays every partition of the
session. A pending read ends when the disk has delivered the records, or when the follower's
connection closes. A pending read does not keep the follower in the ISR if its fetch is older than
`replica.socket.timeout.ms` or has another broker epoch than the follower now. This module knows no
partition, log or ISR; times are monotonic milliseconds of the leader's own clock. Source: KIP-501.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.types import NO_BROKER_EPOCH

#: A time that is further in the past than any lag limit; it means "never".
NEVER_MS = -(1 << 62)
#: Fetch number of every fetch that needs no read from the disk.
NO_READ = 0


class PendingRead(NamedTuple):
    """The reads of one fetch that are under way."""

    broker_epoch: int
    #: When the fetch arrived at the leader.
    received_ms: int


class PendingReads:
    """The reads for one follower's fetch session."""

    __slots__ = (
        "_done",
        "_done_ms",
        "_dropped",
        "_last_number",
        "_under_way",
        "is_watched",
        "max_age_ms",
    )

    def __init__(self, max_age_ms: int) -> None:
        """Start without reads; `max_age_ms` is the age at which the follower gives up a fetch."""
        self.max_age_ms = max_age_ms
        #: Whether pending reads of this fetch session may keep the follower in sync (the
        #: configuration enables it).
        self.is_watched = False
        #: Reads by the number of their fetch; a follower has at most two fetches in flight.
        self._under_way: dict[int, PendingRead] = {}
        #: Reads that go on although their fetch gets no response; they explain lag, but keep no
        #: follower in sync.
        self._dropped: dict[int, PendingRead] = {}
        self._last_number = NO_READ
        #: The last fetch whose reads were done in time, and the time of their end.
        self._done = PendingRead(NO_BROKER_EPOCH, NEVER_MS)
        self._done_ms = NEVER_MS

    def begin(self, read: PendingRead) -> int:
        """Record that the reads of a fetch are under way (F5); return the fetch's number."""
        self._last_number += 1
        self._under_way[self._last_number] = read
        return self._last_number

    def done(self, number: int, read: PendingRead, now_ms: int) -> None:
        """Record that all reads of fetch `number` are done, and its response leaves (F6).

        The number of a fetch whose records were all in memory is `NO_READ`.
        """
        self._under_way.pop(number, None)
        if now_ms - read.received_ms <= self.max_age_ms:
            self._done, self._done_ms = read, now_ms

    def drop(self, number: int) -> None:
        """Forget fetch `number`, whose read no longer proves anything (F7).

        The connection of the fetch is closed, or the leader responded without waiting for the read.
        """
        read = self._under_way.pop(number, None)
        if read is not None:
            self._dropped[number] = read

    def ended(self, number: int) -> None:
        """Record that the read for fetch `number`, which was dropped earlier, has ended."""
        self._dropped.pop(number, None)

    def reads_since_ms(self, broker_epoch: int, fetched_ms: int) -> int:
        """Return the arrival time of the oldest fetch since `fetched_ms` with an unfinished read.

        Returns `NEVER_MS` if no fetch since `fetched_ms` has an unfinished read. The returned time
        explains why a follower makes no progress, but keeps no follower in sync, because dropped
        and old fetches count here, too.
        """
        reads = (*self._under_way.values(), *self._dropped.values())
        return min(
            (
                read.received_ms
                for read in reads
                if read.received_ms >= fetched_ms and broker_epoch == read.broker_epoch
            ),
            default=NEVER_MS,
        )

    def is_pending(self, broker_epoch: int, since_ms: int, now_ms: int) -> bool:
        """Return whether a read is under way for a fetch of `broker_epoch` (F5, F7).

        Fetches that arrived before `since_ms` belong to an earlier leadership.
        """
        return self.count(broker_epoch, since_ms, now_ms) > 0

    def count(self, broker_epoch: int, since_ms: int, now_ms: int) -> int:
        """Return the number of pending reads for fetches that `is_pending` would count."""
        return sum(
            read.broker_epoch == broker_epoch
            and read.received_ms >= since_ms
            and now_ms - read.received_ms <= self.max_age_ms
            for read in self._under_way.values()
        )

    def done_ms(self, broker_epoch: int, since_ms: int) -> int:
        """Return when reads for a fetch of `broker_epoch` were last done, or `NEVER_MS` (F6)."""
        done = self._done
        if done.broker_epoch == broker_epoch and done.received_ms >= since_ms:
            return self._done_ms
        return NEVER_MS

    # For the model checker.

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a value, without fetch numbers, which decide nothing."""
        return (self.max_age_ms, tuple(self._under_way.values()), self._done, self._done_ms)

    def copy(self) -> PendingReads:
        """Return an independent copy."""
        other = PendingReads(self.max_age_ms)
        other.is_watched = self.is_watched
        other._under_way, other._last_number = dict(self._under_way), self._last_number
        other._dropped = dict(self._dropped)
        other._done, other._done_ms = self._done, self._done_ms
        return other
