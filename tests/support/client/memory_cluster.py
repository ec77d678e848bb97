"""A cluster in memory behind the calls of a blocking client that a copy makes.

Its leaders assign offsets, and judge sequence numbers as Kafka's do: the next batch is stored, one
of the last five is recognised, any other is refused. Failures are armed by tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from tidelog.client.fetching import EARLIEST, AbortedRange, FetchedPartition, ListedOffset
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.records.batch import (
    BatchView,
    assign,
    check_from_client,
    iter_batches,
)
from tidelog.records.reader import Record, iter_records

_REMEMBERED = 5


class MemoryCluster:
    """Partitions as lists of batches."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        #: Ends of logs whose last offsets have no batch any more.
        self.ends: dict[TopicPartition, int] = {}
        #: Aborted transactions, each with the offset of its marker.
        self.aborted: dict[TopicPartition, list[tuple[AbortedRange, int]]] = {}
        self._stored: dict[tuple[TopicPartition, int], deque[tuple[int, int, int]]] = {}
        #: Called before and after a batch is stored; raises to fail the call.
        self.before_append: Callable[[], None] = lambda: None
        self.after_append: Callable[[], None] = lambda: None
        self.batches_per_answer = 3

    # the blocking client

    def __call__(self, *_: object) -> MemoryCluster:
        """Stand for the class of the client: each call connects to this cluster."""
        return self

    def __enter__(self) -> MemoryCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], _: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        return {
            tp: ListedOffset(self.log_starts.get(tp, 0) if at == EARLIEST else self.end(tp), -1, 0)
            for tp, at in timestamps.items()
        }

    def fetch(self, tp: TopicPartition, offset: int, *_: object, **__: object) -> FetchedPartition:
        end, start = self.end(tp), self.log_starts.get(tp, 0)
        if not start <= offset <= end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"fetching {tp} from {offset}")
        held = [each for each in self.batches.get(tp, ()) if BatchView(each).last_offset >= offset]
        data = b"".join(held[: self.batches_per_answer])
        # A leader names only transactions that reach into the fetched offsets.
        aborted = tuple(each for each, last in self.aborted.get(tp, ()) if last >= offset)
        return FetchedPartition(end, start, end, memoryview(data), aborted=aborted)

    def produce(self, tp: TopicPartition, batch: bytearray) -> int:
        self.before_append()
        view = BatchView(bytearray(batch))
        check_from_client(view)
        known = self._stored.setdefault((tp, view.producer_id), deque(maxlen=_REMEMBERED))
        for first, last, base in known:
            if (first, last) == (view.base_sequence, view.last_sequence):
                return base
        if known and known[-1][1] + 1 != view.base_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {view.base_sequence}"
            )
        base = self.end(tp)
        assign(view, base, 0)
        self.batches.setdefault(tp, []).append(bytes(view.buffer))
        known.append((view.base_sequence, view.last_sequence, base))
        self.after_append()
        return base

    # what tests do

    def end(self, tp: TopicPartition) -> int:
        held = self.batches.get(tp)
        return max(self.ends.get(tp, 0), BatchView(held[-1]).next_offset if held else 0)

    def append(self, tp: TopicPartition, batches: Iterable[bytes | bytearray]) -> None:
        """Add batches, which have their offsets."""
        self.batches.setdefault(tp, []).extend(bytes(each) for each in batches)

    def records(self, tp: TopicPartition) -> list[Record]:
        """Return every record of a partition."""
        data = b"".join(self.batches.get(tp, ()))
        return [record for batch in iter_batches(data) for record in iter_records(batch)]
