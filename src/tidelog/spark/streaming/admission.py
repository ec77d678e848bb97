"""The size of a micro-batch: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`.

`maxOffsetsPerTrigger` is divided among partitions in proportion to their waiting offsets, as in
Spark's Kafka connector. `minOffsetsPerTrigger` holds a batch back until enough offsets wait or
`maxTriggerDelay` is over. The functions are pure: the reader passes offsets and time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tidelog.core.types import TopicPartition


def limit_offsets(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the end offsets of a micro-batch of about `limit` offsets.

    Each partition takes its share of the waiting offsets, rounded down, but at least one offset.
    Without the minimum of one offset, a small partition beside a large partition would never be
    read. The minimum of one offset may make a batch exceed the limit by almost one offset per
    partition.
    """
    sizes = {tp: end - starts[tp] for tp, end in ends.items() if end > starts[tp]}
    total = sum(sizes.values())
    limited = dict(ends)
    for tp, size in sizes.items():
        share = limit * (size / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        limited[tp] = min(ends[tp], starts[tp] + taken)
    return limited


def count_waiting(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of unread offsets; a partition whose end is below its start has 0."""
    return sum(max(0, end - starts[tp]) for tp, end in ends.items())


class BatchDelay:
    """The wait for `minOffsetsPerTrigger`, for at most `maxTriggerDelay` between two batches."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_batch_ms: int | None = None

    def is_due(self, waiting: int, now_ms: int) -> bool:
        """Return whether a batch of `waiting` offsets should run now, and restart the delay if so.

        The first batch of a run is always due, as in the connector, because it is not known how
        long its records have waited.
        """
        if waiting == 0:
            return False
        if (
            waiting < self._min_offsets
            and self._last_batch_ms is not None
            and now_ms - self._last_batch_ms < self._max_delay_ms
        ):
            return False
        self._last_batch_ms = now_ms
        return True
