"""The partitions with planned appends that the present read event will submit.

Requests of one read event share one write per partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replicas.partition import Partition


class ReadEventAppends:
    """Planned appends of one broker, submitted together once per read event."""

    def __init__(self) -> None:
        self._partitions: dict[Partition, None] = {}

    def add(self, partition: Partition) -> None:
        """Note that the partition has planned appends."""
        self._partitions[partition] = None

    def submit(self) -> bool:
        """Submit what was planned; False where a lane has not written all of it yet."""
        if not self._partitions:
            return True
        partitions, self._partitions = self._partitions, {}
        done = True
        for partition in partitions:
            done = partition.flush_appends() and done
        return done
