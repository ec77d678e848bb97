"""Moves of replicas between the log directories of their broker (D11, KIP-113).

Each broker moves its own replicas. An acknowledgement says that the move has begun;
`describe_log_dirs` then shows the future replica until it replaces the current replica. A request
for a move may be repeated without a second move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, topics_of
from tidelog.client.steps import Operation
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.plan_log_dir_moves import (
    OWN_THRESHOLD,
    PlanLogDirMovesRequest,
    PlanLogDirMovesResponse,
)
from tidelog.wire.registry import ALTER_REPLICA_LOG_DIRS, PLAN_LOG_DIR_MOVES


@dataclass(frozen=True, slots=True)
class PlannedDirectoryMove:
    """A replica that a broker would move; `target` is None if the replica fits nowhere."""

    tp: TopicPartition
    source: str
    target: str | None
    size_bytes: int
    reason: str


class DirectoryMoveAdmin:
    """Operations on the log directories of replicas."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def move(
        self, broker_id: int, directories: Mapping[TopicPartition, str]
    ) -> Operation[dict[TopicPartition, ErrorCode]]:
        """Move replicas of a broker to these log directories (absolute paths); return the outcomes.

        A request for a replica's current directory cancels the replica's move. Outcomes are NONE,
        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (a failed directory, or no room),
        REPLICA_NOT_AVAILABLE (the broker has no replica yet, and remembers the directory for a new
        one) and INVALID_TOPIC_EXCEPTION; the broker's log has the reasons. Raises KafkaError for a
        response that lacks a replica.
        """
        by_path: dict[str, list[TopicPartition]] = {}
        for tp, path in directories.items():
            by_path.setdefault(path, []).append(tp)
        message = AlterReplicaLogDirsRequest(
            [
                AlterReplicaLogDir(path, topics_of(tps, AlterReplicaLogDirTopic))
                for path, tps in by_path.items()
            ]
        )

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, ErrorCode]]:
            node = yield from self._router.broker(broker_id, patience)
            response = yield from ask(
                node, ALTER_REPLICA_LOG_DIRS, message, patience, AlterReplicaLogDirsResponse
            )
            outcomes = {
                TopicPartition(topic.topic_name, each.partition_index): error_code(each.error_code)
                for topic in response.results
                for each in topic.partitions
            }
            missing = [tp for tp in directories if tp not in outcomes]
            if missing:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the answer of {node.address} does not mention {missing[0]}",
                )
            return outcomes

        return self._router.repeat(f"moving replicas within broker {broker_id}", attempt)

    def plan_drain(
        self, broker_id: int, paths: Sequence[str]
    ) -> Operation[list[PlannedDirectoryMove]]:
        """Return the moves that would empty log directories, without starting them (D12).

        Only tidelog's brokers plan moves between log directories. Raises KafkaError if the
        directories cannot be drained.
        """
        return self._plan(broker_id, PlanLogDirMovesRequest(list(paths)))

    def plan_balance(
        self, broker_id: int, threshold_percent: int | None = None
    ) -> Operation[list[PlannedDirectoryMove]]:
        """Return the moves that would balance a broker's log directories, without starting them
        (D15).

        If `threshold_percent` is None, the broker's configured threshold applies. Only tidelog's
        brokers plan moves between log directories. Raises KafkaError.
        """
        threshold = OWN_THRESHOLD if threshold_percent is None else threshold_percent
        return self._plan(broker_id, PlanLogDirMovesRequest([], threshold))

    def _plan(
        self, broker_id: int, message: PlanLogDirMovesRequest
    ) -> Operation[list[PlannedDirectoryMove]]:
        def attempt(patience: Patience) -> Operation[list[PlannedDirectoryMove]]:
            node = yield from self._router.broker(broker_id, patience)
            response = yield from ask(
                node, PLAN_LOG_DIR_MOVES, message, patience, PlanLogDirMovesResponse
            )
            return [
                PlannedDirectoryMove(
                    TopicPartition(each.topic, each.partition),
                    each.source,
                    each.target,
                    each.size_bytes,
                    each.reason,
                )
                for each in response.moves
            ]

        return self._router.repeat(f"planning moves within broker {broker_id}", attempt)
