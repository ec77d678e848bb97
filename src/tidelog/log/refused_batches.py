"""Batches of idempotent producers that a broker refused with retriable errors.

If a broker refuses one of a producer's batches in flight (full disk, small ISR, no leadership), the
next batch in flight seems to skip sequence numbers. The error OUT_OF_ORDER_SEQUENCE_NUMBER would
make librdkafka bump its epoch and resend batches that other partitions have stored. The broker
therefore responds to all batches after a refused batch with the same error, even if it has stored
them, and the producer resends all of them in order (V38). Batches that got REQUEST_TIMED_OUT count
as refused, too.

A gap is a range of refused sequence numbers of one producer. A gap ends when its batches are stored
or acknowledged, or when the producer uses a newer epoch. A gap expires `REFUSED_BATCH_AWAITED_MS`
after the last refusal. If the producer still resends the earliest batch after an expired gap, a new
gap begins there; otherwise later batches get OUT_OF_ORDER_SEQUENCE_NUMBER. A demoted leader keeps
its gaps. A partition with too many gaps forgets the oldest. A new leader also waits for batches
that its predecessor refused. Source: rd_kafka_handle_idempotent_Produce_error, TransactionManager.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import (
    MAX_REFUSED_PRODUCERS_PER_PARTITION,
    REFUSED_BATCH_AWAITED_MS,
    STORED_BATCH_AWAITED_MS,
)
from tidelog.records.batch import MAX_SEQUENCE, BatchView

#: Half the range of sequence numbers. Sequence numbers wrap around: if the distance from `a` up to
#: `b` is larger than half the range, `b` precedes `a`.
_HALF: Final = MAX_SEQUENCE // 2


class EarlierBatchRefusedError(KafkaError):
    """The error of a batch that comes after a refused batch; it has the refused batch's error
    code.
    """


class SkippedBatchesError(KafkaError):
    """The error of a batch that skips sequence numbers which the former leader may have refused."""


class SentBatch(NamedTuple):
    """The producer id, epoch and sequence numbers of an idempotent producer's batch."""

    producer_id: int
    producer_epoch: int
    #: Sequence number of the batch's first record.
    base_sequence: int
    #: Sequence number of the batch's last record.
    last_sequence: int


class SequenceGap(NamedTuple):
    """Sequence numbers of refused batches, in one producer epoch; the producer should resend the
    batches.
    """

    producer_epoch: int
    #: Sequence number of the first refused record.
    first: int
    #: Sequence number after the last refused record.
    end: int
    error: ErrorCode
    #: Monotonic time of the last refusal that was not caused by an earlier refused batch.
    refused_ms: int
    #: First sequence number of the earliest batch that the broker refused only because of this gap,
    #: or -1. `behind_ms` is the monotonic time at which the batch `behind` was last refused.
    behind: int = -1
    behind_ms: int = 0

    def covers(self, sequence: int) -> bool:
        """Return whether the record with this sequence number was refused."""
        return _ahead(self.first, sequence) < _ahead(self.first, self.end)


class RefusedBatches:
    """The gaps of refused sequence numbers in one partition, at most one for each producer."""

    __slots__ = ("_another_led_ms", "_gaps", "_limit", "_skips_awaited_until_ms")

    def __init__(self, limit: int = MAX_REFUSED_PRODUCERS_PER_PARTITION) -> None:
        #: Gaps of refused sequence numbers by producer id, in the order of their first refusals.
        self._gaps: dict[int, SequenceGap] = {}
        self._limit = limit
        #: Monotonic time until which clients may still resend batches that the former leader
        #: refused.
        self._skips_awaited_until_ms = 0
        #: Monotonic time at which this broker last learnt that another broker leads the partition;
        #: -1 if never.
        self._another_led_ms = -1

    def __len__(self) -> int:
        return len(self._gaps)

    def add(
        self,
        producer_id: int,
        producer_epoch: int,
        sequences: tuple[int, int],
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        """Note a refused batch, with the sequence numbers of its first and last records."""
        first, end = sequences[0], _after(sequences[1])
        known = self._live(producer_id, now_ms)
        if known is not None:
            if known.producer_epoch > producer_epoch:
                return
            if known.producer_epoch == producer_epoch:
                first, end = _union(known, first, end)
        self._gaps[producer_id] = SequenceGap(producer_epoch, first, end, error, now_ms)
        if len(self._gaps) > self._limit:
            del self._gaps[next(iter(self._gaps))]

    def check_behind(self, batch: BatchView, expected: int, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError if `batch` comes after a refused sequence number.

        `expected` is the producer's next sequence number in the batch's epoch.
        """
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch or not gap.covers(expected):
            return
        if 0 < _ahead(expected, batch.base_sequence) <= _HALF:
            self._refuse_behind(gap, batch, expected, now_ms)

    def check_stored(self, batch: BatchView | SentBatch, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError if a stored batch comes after a refused batch.

        A leader may refuse a batch that is already in its log: the ISR is below the minimum, or the
        followers did not copy the batch in time. If the leader then acknowledged later batches, the
        producer would send new batches before it resends the refused batch. The leader remembers
        only a producer's last batches, so it would no longer recognize the resent batch as a
        duplicate.
        """
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch:
            return
        if self._holds_up(gap, batch, now_ms):
            self._refuse_behind(self._gaps[batch.producer_id], batch, gap.first, now_ms)
        gap = self._gaps[batch.producer_id]
        if gap.covers(batch.base_sequence):
            self._fill(batch.producer_id, gap, batch.last_sequence)

    def check_next(self, batch: BatchView, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError if a producer's next batch comes after a refused batch.

        `batch` continues the log, because the refused batch is in the log in spite of the refusal.
        For example, the former leader may have appended and replicated the refused batch.
        """
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch:
            return
        if self._holds_up(gap, batch, now_ms):
            self._refuse_behind(self._gaps[batch.producer_id], batch, gap.first, now_ms)

    def another_leads(self, now_ms: int) -> None:
        """Note that another broker leads now; it may acknowledge batches that this broker
        refused.
        """
        self._another_led_ms = now_ms

    def _holds_up(self, gap: SequenceGap, batch: BatchView | SentBatch, now_ms: int) -> bool:
        """Return whether `gap` blocks `batch` even if the gap's first batch is in the log.

        If another leader may have acknowledged the gap's first batch, the gap blocks later batches
        for only `STORED_BATCH_AWAITED_MS`.
        """
        if not 0 < _ahead(gap.first, batch.base_sequence) <= _HALF:
            return False
        is_ours = gap.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_ours and gap.refused_ms > self._another_led_ms:
            return True
        if now_ms - gap.refused_ms < STORED_BATCH_AWAITED_MS:
            return True
        rest = self._passed_on(batch.producer_id, gap, now_ms)
        return rest is not None and self._holds_up(rest, batch, now_ms)

    def _passed_on(self, producer_id: int, gap: SequenceGap, now_ms: int) -> SequenceGap | None:
        """Replace an expired gap by a new gap that begins at the earliest batch which the expired
        gap blocked.

        Returns None if the producer has not resent this batch recently.
        """
        if gap.behind < 0 or now_ms - gap.behind_ms >= STORED_BATCH_AWAITED_MS:
            return None
        rest = gap._replace(first=gap.behind, refused_ms=gap.behind_ms, behind=-1)
        self._gaps[producer_id] = rest
        return rest

    def check_unknown(self, batch: BatchView, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError if an unknown producer's earlier batch was refused."""
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch:
            return
        if 0 < _ahead(gap.first, batch.base_sequence) <= _HALF:
            self._refuse_behind(self._gaps[batch.producer_id], batch, gap.first, now_ms)

    def await_skipped(self, until_ms: int) -> None:
        """Expect producers to resend batches that the former leader refused, until the monotonic
        time `until_ms`.
        """
        self._skips_awaited_until_ms = until_ms

    def check_skipped(self, batch: BatchView, expected: int, now_ms: int) -> None:
        """Raise SkippedBatchesError if the producer may still resend the batches that `batch`
        skips.

        The former leader may have refused the skipped batches. The client librdkafka may send a
        later batch to the new leader before it resends the skipped batches. The client marks a
        refused batch as answered before it queues the batch's records again. In between, another
        thread of the client may send later batches. `expected` is the producer's next sequence
        number in the batch's epoch. If this method raises, the caller notes `batch` as refused.
        Sources: rdkafka_request.c (rd_kafka_msgbatch_handle_Produce_result), rdkafka_broker.c
        (rd_kafka_toppar_producer_serve).
        """
        if now_ms >= self._skips_awaited_until_ms or self._is_known_first(batch):
            return
        if 0 < _ahead(expected, batch.base_sequence) <= _HALF:
            raise SkippedBatchesError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"producer {batch.producer_id} sent sequence {batch.base_sequence} before"
                f" {expected}, which the former leader may have refused",
            )

    def _is_known_first(self, batch: BatchView) -> bool:
        """Return whether the gap in a producer's sequence begins with this batch, and this broker
        refused the batch.

        A producer that resends such a batch skips no batch, even if the batch does not continue the
        log's sequence: the producer's earlier records were then removed from the log.
        """
        gap = self._gaps.get(batch.producer_id)
        return (
            gap is not None
            and (gap.producer_epoch, gap.first) == (batch.producer_epoch, batch.base_sequence)
            and gap.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    def _refuse_behind(
        self, gap: SequenceGap, batch: BatchView | SentBatch, expected: int, now_ms: int
    ) -> None:
        """Extend the gap by the batch without postponing the gap's expiry, and raise
        EarlierBatchRefusedError.
        """
        first, end = _union(gap, batch.base_sequence, _after(batch.last_sequence))
        gap = gap._replace(first=first, end=end)
        if gap.behind < 0 or _ahead(first, batch.base_sequence) <= _ahead(first, gap.behind):
            gap = gap._replace(behind=batch.base_sequence, behind_ms=now_ms)
        self._gaps[batch.producer_id] = gap
        raise EarlierBatchRefusedError(
            gap.error,
            f"producer {batch.producer_id} sent sequence {batch.base_sequence} behind {expected},"
            f" which was refused with {gap.error.name}",
        )

    def stored(self, producer_id: int, producer_epoch: int, last_sequence: int) -> None:
        """Shorten a producer's gap of refused sequence numbers by a batch that was appended.

        The gap ends if no sequence number is left, or if the batch has a newer producer epoch.

        If a follower copies a batch with lower sequence numbers than the gap, the gap stays
        unchanged.
        """
        gap = self._gaps.get(producer_id)
        if gap is None or gap.producer_epoch > producer_epoch:
            return
        if gap.producer_epoch < producer_epoch:
            del self._gaps[producer_id]
        elif 0 < _ahead(gap.first, _after(last_sequence)) <= _HALF:
            self._fill(producer_id, gap, last_sequence)

    def _fill(self, producer_id: int, gap: SequenceGap, last_sequence: int) -> None:
        """Remove sequence numbers up to `last_sequence` from a gap; end the gap if it is empty."""
        rest = gap._replace(first=_after(last_sequence))
        if gap.covers(rest.first):
            is_past = gap.behind >= 0 and not rest.covers(gap.behind)
            self._gaps[producer_id] = rest._replace(behind=-1) if is_past else rest
        else:
            del self._gaps[producer_id]

    def expire(self, now_ms: int) -> None:
        """End each gap of sequence numbers whose batches were not resent in time."""
        for producer_id in list(self._gaps):
            if self._live(producer_id, now_ms) is None:
                del self._gaps[producer_id]

    def clear(self) -> None:
        """End all gaps of refused sequence numbers, because the log restarts without producers."""
        self._gaps.clear()

    def _live(self, producer_id: int, now_ms: int) -> SequenceGap | None:
        gap = self._gaps.get(producer_id)
        if gap is None or now_ms - gap.refused_ms < REFUSED_BATCH_AWAITED_MS:
            return gap
        return self._passed_on(producer_id, gap, now_ms)


def _after(sequence: int) -> int:
    """Return the next sequence number, which may wrap."""
    return (sequence + 1) & MAX_SEQUENCE


def _ahead(start: int, sequence: int) -> int:
    """Return the distance in records from `start` to a sequence number, which may have wrapped."""
    return (sequence - start) & MAX_SEQUENCE


def _union(gap: SequenceGap, first: int, end: int) -> tuple[int, int]:
    """Return start and end of the smallest range that holds the gap and `[first, end)`."""
    start = first if _ahead(gap.first, first) > _HALF else gap.first
    return start, max(gap.end, end, key=lambda sequence: _ahead(start, sequence))
