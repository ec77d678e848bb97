"""Disk reads for one follower's fetches that the leader has begun and not finished (F5 to F7).

A follower cannot catch up faster than its leader reads records from disk. With
`follower.fetch.pending.reads.insync.enable` a follower stays in the ISR while the leader reads from
its disk for the follower's fetch, and counts as caught up when this read is done. One object holds
the reads of one fetch session. The leader responds to a fetch when all its reads are done, so a
slow read delays every partition of the fetch session. A pending read ends when the disk has
delivered the records, or when the follower's connection closes. A pending read does not keep the
follower in the ISR if its fetch is older than `replica.socket.timeout.ms`, or has another broker
epoch than the follower's last fetch. This module knows no partition, log or ISR; times are
monotonic milliseconds of the leader's own clock. Source: KIP-501.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.types import NO_BROKER_EPOCH

#: A time that is further in the past than any lag limit; it means "never".
NEVER_MS = -(1 << 62)
#: The fetch number of all fetches that need no read from the disk.
NO_READ = 0


class PendingRead(NamedTuple):
    """The reads of one fetch that are under way."""

    broker_epoch: int
    #: Time at which the fetch arrived at the leader.
    received_ms: int


class PendingReads:
    """The disk reads under way for one follower's fetch session."""

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
        """Start without reads; `max_age_ms` is the time after which the follower gives up waiting
        for a response.
        """
        self.max_age_ms = max_age_ms
        #: Whether the configuration lets pending reads of this fetch session keep the follower in
        #: sync.
        self.is_watched = False
        #: Reads by the number of their fetch; a follower has at most two fetches in flight.
        self._under_way: dict[int, PendingRead] = {}
        #: Reads that go on although the leader no longer uses their result; they explain lag, but
        #: keep no follower in sync.
        self._dropped: dict[int, PendingRead] = {}
        self._last_number = NO_READ
        #: The last completed fetch, all of whose reads ended within `max_age_ms` of its arrival.
        #: `_done_ms` is the time at which these reads ended.
        self._done = PendingRead(NO_BROKER_EPOCH, NEVER_MS)
        self._done_ms = NEVER_MS

    def begin(self, read: PendingRead) -> int:
        """Record that the reads of a fetch are under way (F5); return the fetch's number."""
        self._last_number += 1
        self._under_way[self._last_number] = read
        return self._last_number

    def done(self, number: int, read: PendingRead, now_ms: int) -> None:
        """Record that all reads of fetch `number` are done, so that the leader responds (F6).

        The number of a fetch whose records were all in memory is `NO_READ`.
        """
        self._under_way.pop(number, None)
        if now_ms - read.received_ms <= self.max_age_ms:
            self._done, self._done_ms = read, now_ms

    def drop(self, number: int) -> None:
        """Stop counting the reads of fetch `number` in the follower's favour (F7).

        The connection of the fetch is closed, or the leader responded without waiting for the
        reads.
        """
        read = self._under_way.pop(number, None)
        if read is not None:
            self._dropped[number] = read

    def ended(self, number: int) -> None:
        """Record that the read for fetch `number`, which was dropped earlier, has ended."""
        self._dropped.pop(number, None)

    def reads_since_ms(self, broker_epoch: int, fetched_ms: int) -> int:
        """Return the arrival time of the oldest fetch since `fetched_ms` with an unfinished read.

        Only fetches that the follower sent with `broker_epoch` count. Returns `NEVER_MS` if no such
        fetch has an unfinished read. The caller uses the returned time only to explain why a
        follower makes no progress. The returned time must not keep a follower in sync, because it
        may belong to a dropped fetch, or to a fetch older than `max_age_ms`.
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
        """Return whether a read that may keep the follower in sync is under way (F5, F7).

        A read counts only if the follower sent its fetch with `broker_epoch`, and if the fetch
        arrived at or after `since_ms` and is at most `max_age_ms` old. The times are monotonic.
        """
        return self.count(broker_epoch, since_ms, now_ms) > 0

    def count(self, broker_epoch: int, since_ms: int, now_ms: int) -> int:
        """Return the number of fetches with reads under way, by the conditions of `is_pending`."""
        return sum(
            read.broker_epoch == broker_epoch
            and read.received_ms >= since_ms
            and now_ms - read.received_ms <= self.max_age_ms
            for read in self._under_way.values()
        )

    def done_ms(self, broker_epoch: int, since_ms: int) -> int:
        """Return when the reads of the last completed fetch ended, in monotonic ms (F6).

        Returns `NEVER_MS` if the follower sent that fetch with another broker epoch than
        `broker_epoch`, or if that fetch arrived before `since_ms` (monotonic).
        """
        done = self._done
        if done.broker_epoch == broker_epoch and done.received_ms >= since_ms:
            return self._done_ms
        return NEVER_MS

    # The following methods serve the model checker.

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value, except the fetch numbers, which affect no
        decision.
        """
        return (self.max_age_ms, tuple(self._under_way.values()), self._done, self._done_ms)

    def copy(self) -> PendingReads:
        """Return an independent copy."""
        other = PendingReads(self.max_age_ms)
        other.is_watched = self.is_watched
        other._under_way, other._last_number = dict(self._under_way), self._last_number
        other._dropped = dict(self._dropped)
        other._done, other._done_ms = self._done, self._done_ms
        return other
