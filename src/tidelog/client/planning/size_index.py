"""The replicas of each broker in the order of their sizes, for choices next to a wanted size.

A choice costs a search and the replicas that were looked at, however many the broker has.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from tidelog.core.types import TopicPartition


class SizeIndex:
    """Replicas by broker and size in bytes."""

    def __init__(self) -> None:
        self._sorted: dict[int, list[tuple[int, TopicPartition]]] = {}

    def add(self, broker: int, size_bytes: int, tp: TopicPartition) -> None:
        """Add a replica."""
        insort(self._sorted.setdefault(broker, []), (size_bytes, tp))

    def remove(self, broker: int, size_bytes: int, tp: TopicPartition) -> None:
        """Remove a replica that was added with this size."""
        own = self._sorted[broker]
        del own[bisect_left(own, (size_bytes, tp))]

    def nearest(
        self, broker: int, size_bytes: int, most: int | None = None
    ) -> Iterator[TopicPartition]:
        """Yield the replicas of a broker, those next to a size first; at most `most` of them."""
        own = self._sorted.get(broker, [])
        high = bisect_left(own, (size_bytes,))
        low = high - 1
        left = len(own) if most is None else most
        while left > 0 and (low >= 0 or high < len(own)):
            left -= 1
            if low < 0 or (
                high < len(own) and own[high][0] - size_bytes <= size_bytes - own[low][0]
            ):
                yield own[high][1]
                high += 1
            else:
                yield own[low][1]
                low -= 1
