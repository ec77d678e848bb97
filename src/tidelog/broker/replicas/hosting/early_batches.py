"""Refused batches for partitions that have no replica on this broker yet.

A client may learn from another broker that this broker leads a partition. The client may then send
its first batches before the controller's command reaches this broker. A new replica must not accept
a later batch of a client whose earlier batch was refused. If the replica accepted the later batch,
the earlier batch would be lost. A log accepts any first sequence number of an unknown producer, and
librdkafka takes the acknowledgement of a batch for an acknowledgement of all earlier batches. When
the replica is created, its log gets the list of the refused batches (V38).
"""

from __future__ import annotations

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_PARTITIONS_WITH_EARLY_BATCHES
from tidelog.core.ports import Buffer
from tidelog.core.types import TopicPartition
from tidelog.log.append_validation import note_refused
from tidelog.log.refused_batches import RefusedBatches


class EarlyBatches:
    """The batches that one broker refused before it hosted their partitions, by partition, the
    least recently refused first.
    """

    def __init__(self) -> None:
        self._refused: dict[TopicPartition, RefusedBatches] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def refused(
        self, topic_partition: TopicPartition, records: Buffer, error: ErrorCode, now_ms: int
    ) -> None:
        """Note a refused batch of a client; `now_ms` is monotonic."""
        refused = self._refused.pop(topic_partition, None) or RefusedBatches()
        note_refused(refused, records, error, now_ms)
        refused.expire(now_ms)
        if refused:
            self._refused[topic_partition] = refused
        if len(self._refused) > MAX_PARTITIONS_WITH_EARLY_BATCHES:
            del self._refused[next(iter(self._refused))]

    def taken(self, topic_partition: TopicPartition) -> RefusedBatches:
        """Remove and return the refused batches of a partition whose replica is created."""
        return self._refused.pop(topic_partition, None) or RefusedBatches()
