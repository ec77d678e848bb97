"""The batches of one partition between an idempotent producer and the leader, in order.

The queue decides which batch to send next, and how a response or a lost connection affects later
batches. Several batches may be in flight. After a failure the queue waits until no batch is in
flight, then resends all unacknowledged batches in order. Brokers get the sequence numbers in the
expected order (KIP-98), and recognise duplicates. The queue uses no sockets and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from itertools import islice
from typing import Final

from tidelog.client.retries import FIRST_BACKOFF_MS, LAST_BACKOFF_MS, is_retriable
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.records.batch import MAX_SEQUENCE, BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import iter_records

#: Errors that a smaller batch may avoid.
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
#: Number of out-of-order errors of the oldest batch that prove that the leader lacks an
#: acknowledged batch.
_MAX_GAPS: Final = 5


class BatchState(Enum):
    """The state of a batch on its way from the producer to the leader."""

    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    ACKNOWLEDGED = "acknowledged"


@dataclass(slots=True, eq=False)
class ProduceBatch:
    """A whole record batch, and the caller's row numbers of the records in the batch."""

    tp: TopicPartition
    data: bytearray
    count: int
    #: The caller's row numbers of the batch's records, in order.
    rows: Sequence[int]
    deadline_ms: int
    state: BatchState = BatchState.WAITING
    #: The reason for which the last try to send the batch failed.
    last_error: TidelogError | None = None

    def halves(self) -> tuple[ProduceBatch, ProduceBatch]:
        """Return two batches that divide the records and sequence numbers of this batch."""
        view = BatchView(self.data)
        records = [
            NewRecord(each.key, each.value, each.timestamp_ms, each.headers)
            for each in iter_records(view, keeps_bytes=True)
        ]
        middle = len(records) // 2
        made = []
        for start, end in ((0, middle), (middle, len(records))):
            sequence = view.base_sequence
            if view.has_producer_id:
                sequence = (sequence + start) & MAX_SEQUENCE
            producer = Producer(view.producer_id, view.producer_epoch, sequence)
            data = build_batch(records[start:end], codec=view.compression, producer=producer)
            made.append(
                ProduceBatch(self.tp, data, end - start, self.rows[start:end], self.deadline_ms)
            )
        return made[0], made[1]


class Refused(Enum):
    """What the producer does after a failed try to send a batch."""

    RETRY = "retry"
    SPLIT = "split"
    GIVE_UP = "give up"


@dataclass(slots=True)
class ProduceQueue:
    """The unacknowledged batches of one partition, oldest first."""

    tp: TopicPartition
    #: Maximum number of batches in flight; brokers remember a producer's last five batches.
    max_in_flight: int
    batches: deque[ProduceBatch] = field(default_factory=deque)
    in_flight: int = 0
    #: Time before which the queue gives no batch to send.
    not_before_ms: int = 0
    _is_draining: bool = False
    _backoff_ms: int = FIRST_BACKOFF_MS
    _gaps: int = 0

    def add(self, batch: ProduceBatch) -> None:
        """Append a batch to the queue."""
        assert batch.tp == self.tp, "a queue has the batches of one partition"
        self.batches.append(batch)

    def next_batch(self, now_ms: int) -> ProduceBatch | None:
        """Return the batch to send now; None while the queue waits or has no unsent batch."""
        if self._is_draining or now_ms < self.not_before_ms:
            return None
        # The limit of batches in flight counts from the oldest unacknowledged batch. If more
        # batches followed that batch, brokers would forget its sequence number.
        for batch in islice(self.batches, self.max_in_flight):
            if batch.state is BatchState.WAITING:
                return batch
        return None

    def sent(self, batch: ProduceBatch) -> None:
        """Record that a batch was sent to the leader."""
        assert batch.state is BatchState.WAITING, "a batch is in flight once at a time"
        batch.state = BatchState.IN_FLIGHT
        self.in_flight += 1

    def acknowledged(self, batch: ProduceBatch) -> list[ProduceBatch]:
        """Record that the leader stored a batch; return the batches that leave the queue.

        A batch leaves the queue when it and all batches before it are acknowledged.
        """
        assert batch.state is BatchState.IN_FLIGHT, "a response is for a batch that was sent"
        batch.state = BatchState.ACKNOWLEDGED
        self._gaps = 0
        self._backoff_ms = FIRST_BACKOFF_MS
        done = []
        while self.batches and self.batches[0].state is BatchState.ACKNOWLEDGED:
            done.append(self.batches.popleft())
        self._landed()
        return done

    def failed(self, batch: ProduceBatch, error: TidelogError, now_ms: int) -> Refused:
        """Record a try that failed or has an unknown outcome; return the next step for the batch.

        If the next step is SPLIT, two halves have replaced the batch in the queue. After GIVE_UP
        the queue must not be used any more: a later batch would leave a gap in the sequence
        numbers.
        """
        assert batch.state is BatchState.IN_FLIGHT, "a try is of a batch that was sent"
        batch.state = BatchState.WAITING
        batch.last_error = error
        self._is_draining = True
        self._landed()
        code = error.code if isinstance(error, KafkaError) else None
        if code in TOO_LARGE and batch.count > 1:
            self._split(batch)
            return Refused.SPLIT
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch is self.batches[0]:
                self._gaps += 1
                if self._gaps > _MAX_GAPS:
                    return Refused.GIVE_UP
        elif not is_retriable(error):
            return Refused.GIVE_UP
        self.not_before_ms = max(self.not_before_ms, now_ms + self._backoff_ms)
        self._backoff_ms = min(2 * self._backoff_ms, LAST_BACKOFF_MS)
        return Refused.RETRY

    def expired(self, now_ms: int) -> ProduceBatch | None:
        """Return the oldest batch if its deadline has passed."""
        if self.batches and self.batches[0].deadline_ms <= now_ms:
            return self.batches[0]
        return None

    def _split(self, batch: ProduceBatch) -> None:
        place = self.batches.index(batch)
        del self.batches[place]
        first, second = batch.halves()
        self.batches.insert(place, second)
        self.batches.insert(place, first)

    def _landed(self) -> None:
        self.in_flight -= 1
        if self.in_flight == 0:
            self._is_draining = False
