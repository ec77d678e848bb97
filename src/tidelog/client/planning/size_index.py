"""An index of each broker's replicas by size, for searches near a wanted size.

The cost of a search grows with the replicas that it yields, not with the broker's replicas.
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
        """Yield at most `most` replicas of a broker, nearest to a size first."""
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
