"""Batches of idempotent producers that a broker refused for the moment, by sequence number.

A producer has several batches in flight. The broker refuses one with an error that passes: a full
disk, an ISR below the minimum, a leadership that has ended or not begun. The next batches then miss
a sequence number. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka bump its epoch and resend,
under another identity, batches that other partitions have stored. So the batches behind a refused
one get the same error, stored or not, and the producer resends all of them in order (V38). A batch
that was refused after its append (REQUEST_TIMED_OUT) counts, too.

A gap ends when its batches are stored or answered, or with a newer epoch of the producer. Otherwise
it ends `REFUSED_BATCH_AWAITED_MS` after the last refusal: a producer that gave its batch up then
gets OUT_OF_ORDER_SEQUENCE_NUMBER. The earliest batch that the gap itself refused then comes before
those behind it: the producer sends it again. A gap outlives a demotion. The number of gaps is
bounded. A new leader also awaits what the former one refused (`check_skipped`). No files, no clock.
Sources: rdkafka_request.c (rd_kafka_handle_idempotent_Produce_error), TransactionManager.
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

#: Sequence numbers wrap: a larger distance means that the second number precedes the first.
_HALF: Final = MAX_SEQUENCE // 2


class EarlierBatchRefusedError(KafkaError):
    """The rejection of a batch behind a refused one; its code is that refusal's."""


class SkippedBatchesError(KafkaError):
    """The rejection of a batch before others that the former leader may have refused."""


class SentBatch(NamedTuple):
    """The place of a client's batch among those of its idempotent producer."""

    producer_id: int
    producer_epoch: int
    #: Sequence number of its first record.
    base_sequence: int
    #: Sequence number of its last record.
    last_sequence: int


class SequenceGap(NamedTuple):
    """Sequence numbers of one producer epoch that were refused and are expected again."""

    producer_epoch: int
    #: Sequence number of the first refused record.
    first: int
    #: Sequence number after the last refused record.
    end: int
    error: ErrorCode
    #: Monotonic time of the last refusal that was not caused by the gap itself.
    refused_ms: int
    #: Sequence number of the earliest batch that the gap itself refused, -1 where there is none,
    #: and the monotonic time of its last refusal.
    behind: int = -1
    behind_ms: int = 0

    def covers(self, sequence: int) -> bool:
        """Return whether a record of this sequence number was refused."""
        return _ahead(self.first, sequence) < _ahead(self.first, self.end)


class RefusedBatches:
    """The gaps of one partition, at most one for each producer."""

    __slots__ = ("_another_led_ms", "_gaps", "_limit", "_skips_awaited_until_ms")

    def __init__(self, limit: int = MAX_REFUSED_PRODUCERS_PER_PARTITION) -> None:
        #: By producer id, in the order of their first refusals.
        self._gaps: dict[int, SequenceGap] = {}
        self._limit = limit
        #: Monotonic time until which skipped sequence numbers may be on their way to a new leader.
        self._skips_awaited_until_ms = 0
        #: Monotonic time at which this broker last learnt that another one leads.
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
        """Note a refused batch; `sequences` are those of its first and of its last record."""
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
        """Raise EarlierBatchRefusedError where `batch` comes after a refused sequence number.

        `expected` is the producer's next sequence number in the batch's epoch.
        """
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch or not gap.covers(expected):
            return
        if 0 < _ahead(expected, batch.base_sequence) <= _HALF:
            self._refuse_behind(gap, batch, expected, now_ms)

    def check_stored(self, batch: BatchView | SentBatch, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError where a stored batch comes behind a refused one.

        A leader refuses also a batch that it has: below the minimum of the ISR, or because the
        followers did not copy it in time. If it acknowledged the batches behind, the producer would
        send new ones before it repeats the refused one. The leader would then have forgotten that
        one: it remembers few batches.
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
        """Raise EarlierBatchRefusedError where a producer's next batch comes behind a refused one.

        The refused one is stored here: it came before this broker led, for example.
        """
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch:
            return
        if self._holds_up(gap, batch, now_ms):
            self._refuse_behind(self._gaps[batch.producer_id], batch, gap.first, now_ms)

    def another_leads(self, now_ms: int) -> None:
        """Note that another broker leads, which may acknowledge what was refused until now."""
        self._another_led_ms = now_ms

    def _holds_up(self, gap: SequenceGap, batch: BatchView | SentBatch, now_ms: int) -> bool:
        """Return whether a stored batch that was refused holds up a batch behind it.

        Another leader may have acknowledged it: then it does for `STORED_BATCH_AWAITED_MS` only.
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
        """Let a gap whose time is over begin at the earliest batch that it refused itself.

        Returns None where that one was not sent again lately.
        """
        if gap.behind < 0 or now_ms - gap.behind_ms >= STORED_BATCH_AWAITED_MS:
            return None
        rest = gap._replace(first=gap.behind, refused_ms=gap.behind_ms, behind=-1)
        self._gaps[producer_id] = rest
        return rest

    def check_unknown(self, batch: BatchView, now_ms: int) -> None:
        """Raise EarlierBatchRefusedError where an unknown producer's earlier batch was refused."""
        gap = self._live(batch.producer_id, now_ms)
        if gap is None or gap.producer_epoch != batch.producer_epoch:
            return
        if 0 < _ahead(gap.first, batch.base_sequence) <= _HALF:
            self._refuse_behind(self._gaps[batch.producer_id], batch, gap.first, now_ms)

    def await_skipped(self, until_ms: int) -> None:
        """Expect batches that the former leader refused; `until_ms` is monotonic, 0 for none."""
        self._skips_awaited_until_ms = until_ms

    def check_skipped(self, batch: BatchView, expected: int, now_ms: int) -> None:
        """Raise SkippedBatchesError where the skipped batches may still come to a new leader.

        The former leader may have refused them. librdkafka may send a later batch to the new leader
        before it resends them. Its thread for the former leader counts a batch as answered before
        it queues the batch's records again. Meanwhile another thread sends what it has. `expected`
        is the producer's next sequence number in the batch's epoch. The caller adds the batch like
        any other that is refused for the moment. Sources: rdkafka_request.c
        (rd_kafka_msgbatch_handle_Produce_result), rdkafka_broker.c
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
        """Return whether the batch was refused here before, as a first one, for another reason.

        It skipped nothing then: of an unknown producer whose records are gone, it is the next one.
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
        """Extend the gap by the batch, without prolonging it: the batches behind it wait, too."""
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
        """Take an appended batch out of the gap; end a gap that it fills, or one of an older epoch.

        A batch from before the gap, which a follower may still copy, fills nothing.
        """
        gap = self._gaps.get(producer_id)
        if gap is None or gap.producer_epoch > producer_epoch:
            return
        if gap.producer_epoch < producer_epoch:
            del self._gaps[producer_id]
        elif 0 < _ahead(gap.first, _after(last_sequence)) <= _HALF:
            self._fill(producer_id, gap, last_sequence)

    def _fill(self, producer_id: int, gap: SequenceGap, last_sequence: int) -> None:
        """Let a gap begin behind a sequence number, or end where nothing is left."""
        rest = gap._replace(first=_after(last_sequence))
        if gap.covers(rest.first):
            is_past = gap.behind >= 0 and not rest.covers(gap.behind)
            self._gaps[producer_id] = rest._replace(behind=-1) if is_past else rest
        else:
            del self._gaps[producer_id]

    def expire(self, now_ms: int) -> None:
        """End gaps whose batches were not resent in time."""
        for producer_id in list(self._gaps):
            if self._live(producer_id, now_ms) is None:
                del self._gaps[producer_id]

    def clear(self) -> None:
        """End all gaps: the log restarts without its producers."""
        self._gaps.clear()

    def _live(self, producer_id: int, now_ms: int) -> SequenceGap | None:
        gap = self._gaps.get(producer_id)
        if gap is None or now_ms - gap.refused_ms < REFUSED_BATCH_AWAITED_MS:
            return gap
        return self._passed_on(producer_id, gap, now_ms)


def _after(sequence: int) -> int:
    """Return the sequence number after another."""
    return (sequence + 1) & MAX_SEQUENCE


def _ahead(start: int, sequence: int) -> int:
    """Return how many records after `start` a sequence number comes; numbers wrap."""
    return (sequence - start) & MAX_SEQUENCE


def _union(gap: SequenceGap, first: int, end: int) -> tuple[int, int]:
    """Return the first sequence number of a gap and a range, and the one after the last."""
    start = first if _ahead(gap.first, first) > _HALF else gap.first
    return start, max(gap.end, end, key=lambda sequence: _ahead(start, sequence))
