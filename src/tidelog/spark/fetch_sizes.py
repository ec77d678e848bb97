"""Estimates of the bytes that a range of offsets takes in a log, so that a fetch asks for no more.

A fetch without an estimate asks for as many bytes as a response may have. Most of these bytes lie
beyond a small range, and are sent, copied and dropped. An estimate comes from the last batch that
was decoded of the same partition. The batches after that batch count as equally large. The estimate
decides only how much one request asks for. A range whose batches are larger needs another request.
A broker returns at least the first batch, however small the limit is.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.types import TopicPartition


class SeenBatch(NamedTuple):
    """A batch that was decoded: its first and last offset, and its size in bytes with header."""

    base_offset: int
    last_offset: int
    size_bytes: int


class FetchSizes:
    """The last batch seen of each partition, and the estimates from it."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, SeenBatch] = {}

    def learn(self, tp: TopicPartition, batch: SeenBatch | None) -> None:
        """Take the last batch that was decoded of a partition; None if there was none."""
        if batch is not None:
            self._seen[tp] = batch

    def estimate(self, tp: TopicPartition, start: int, end: int) -> int | None:
        """Return the bytes of the batches with offsets `[start, end)`; None if nothing is known.

        A quarter is added, because batches differ in size.
        """
        seen = self._seen.get(tp)
        if seen is None:
            return None
        offsets = seen.last_offset - seen.base_offset + 1
        batches = 0
        if seen.base_offset <= start <= seen.last_offset:
            batches = 1
            start = seen.last_offset + 1
        elif start != seen.last_offset + 1:
            batches = 1  # the range may begin within a batch
        batches += max(0, -(-(end - start) // offsets))
        return batches * seen.size_bytes * 5 // 4
