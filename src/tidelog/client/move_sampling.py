"""Samples of reassignments: the controller's list, and the bytes that brokers report (R16).

The controller lists the moving partitions. The leader of a moving partition, and each broker that
adds a replica, report their bytes (DescribeLogDirs). If a broker does not respond, its moves have
no byte counts, and the result has the broker's error; other moves are still sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.move_progress import MoveSample
from tidelog.client.moving import MoveAdmin, MoveUnderWay
from tidelog.client.routing import ClusterRouter
from tidelog.client.steps import Operation
from tidelog.client.upkeep import PartitionAdmin, sizes_of
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConnectionLost, KafkaError, RequestTimeout
from tidelog.core.types import NO_LEADER, TopicPartition

#: Timeout in ms of one broker's report: a hanging broker must not delay all other reports.
_SIZES_TIMEOUT_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class MoveSamples:
    """Samples of moves by partition, and the errors of brokers that did not report."""

    samples: Mapping[TopicPartition, MoveSample]
    silent: Mapping[int, str]
    #: Whether moves wait in the queue and may begin; False while reassignments are frozen (R8).
    has_queued: bool = False


class MoveSampler:
    """A source of samples of all reassignments under way."""

    def __init__(self, router: ClusterRouter, moves: MoveAdmin, partitions: PartitionAdmin) -> None:
        self._router = router
        self._moves = moves
        self._partitions = partitions

    def sample(self) -> Operation[MoveSamples]:
        """Return one sample of each move. Raises KafkaError if the moves cannot be listed."""
        moves = yield from self._moves.moves()
        moving, has_queued = moves.under_way, bool(moves.queued) and not moves.is_frozen
        if not moving:
            return MoveSamples({}, {}, has_queued)
        metadata = yield from self._router.metadata(sorted({tp.topic for tp in moving}))
        placed = {
            tp: partition for tp in moving if (partition := metadata.partition(tp)) is not None
        }
        sizes: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in placed}
        silent: dict[int, str] = {}
        for broker, wanted in _reporters(moving, placed).items():
            try:
                directories = yield from self._partitions.describe_log_dirs(
                    broker, wanted, min(_SIZES_TIMEOUT_MS, self._router.timeout_ms)
                )
            except (ConnectionLost, RequestTimeout, KafkaError) as error:
                silent[broker] = str(error)
                continue
            for tp, size_bytes in sizes_of(directories).items():
                if tp in sizes:
                    sizes[tp][broker] = size_bytes
        samples = {
            tp: MoveSample(moving[tp], each.leader, each.isr, sizes[tp])
            for tp, each in placed.items()
        }
        return MoveSamples(samples, silent, has_queued)


def _reporters(
    moving: Mapping[TopicPartition, MoveUnderWay],
    placed: Mapping[TopicPartition, PartitionMetadata],
) -> dict[int, list[TopicPartition]]:
    """Return the partitions whose bytes each broker must report: leaders and added replicas."""
    found: dict[int, list[TopicPartition]] = {}
    for tp, partition in sorted(placed.items()):
        adding = moving[tp].adding
        leader = (partition.leader,) if adding and partition.leader != NO_LEADER else ()
        for broker in dict.fromkeys((*leader, *adding)):
            found.setdefault(broker, []).append(tp)
    return dict(sorted(found.items()))
