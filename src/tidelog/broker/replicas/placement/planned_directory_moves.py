"""Moves between log directories that this broker plans itself (D12, D15).

The broker executes commands and requests between the moves of a plan, so it checks each move again
when the move begins. For a while, plans do not move a replica to a directory that refused the
replica. When a drain is cancelled or balancing is disabled, its moves end. Only the event loop uses
this module.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.core.errors import KafkaError
from tidelog.core.log_dir_keys import takes_no_new
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.log.log_dir_plan import MovableReplica, PlannedReplicaMove

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.placement.directory_move import DirectoryMove
    from tidelog.broker.replicas.placement.directory_moves import DirectoryMoves
    from tidelog.broker.services import Services

#: Milliseconds for which a plan avoids a directory that has refused the replica.
REFUSED_MS: Final = 30_000


def movable(partition: Partition) -> MovableReplica:
    """Return name, directory and size of a replica, as the planning functions take them."""
    return MovableReplica(
        partition.topic_partition, partition.directory.path, partition.log.size_bytes
    )


def may_move(partition: Partition) -> bool:
    """Return whether a replica can move: its topic id is known, from its log or from a command."""
    return partition.topic_id != ZERO_TOPIC_ID


class PlannedDirectoryMoves:
    """The moves between log directories that one kind of plan (drain or balance) has begun."""

    def __init__(
        self, services: Services, replicas: HostedPartitions, moves: DirectoryMoves, kind: str
    ) -> None:
        """`kind` names the kind of plan in log lines."""
        self._services = services
        self._replicas = replicas
        self._moves = moves
        self._kind = kind
        self._own: dict[TopicPartition, DirectoryMove] = {}
        #: By replica and directory: the monotonic time until which plans do not move the replica to
        #: the directory, and the reason.
        self._refused: dict[tuple[TopicPartition, str], tuple[int, str]] = {}

    def under_way(self) -> list[DirectoryMove]:
        """Return the moves of this kind of plan that have not ended."""
        moves = self._moves
        self._own = {key: move for key, move in self._own.items() if moves.get(key) is move}
        return list(self._own.values())

    def adopt(self, move: DirectoryMove) -> None:
        """Count a running move as part of the plan, because the plan wants the same target."""
        self._own[move.partition.topic_partition] = move

    def refused(self) -> dict[tuple[TopicPartition, str], str]:
        """Return why directories refused replicas recently."""
        now_ms = self._services.clock.monotonic_ms()
        self._refused = {key: each for key, each in self._refused.items() if each[0] > now_ms}
        return {key: why for key, (_, why) in self._refused.items()}

    def forget_refusals(self) -> None:
        """Allow refused moves again, because the configuration has changed."""
        self._refused.clear()

    async def begin(self, planned: PlannedReplicaMove) -> bool:
        """Begin a move, in place of the replica's other move, if any; return whether it began."""
        replicas, key, target = self._replicas, planned.replica, planned.target
        assert target is not None, "only moves with a target begin"
        async with replicas.command_order:
            partition = replicas.get(key)
            if partition is None or partition.directory.path != planned.source:
                return False
            if self._is_closed(target):
                return False  # the target directory no longer accepts replicas
            self._services.tracer.event(
                "directory_move_planned", kind=self._kind, partition=str(key),
                source=planned.source, target=target, size_bytes=planned.size_bytes,
            )  # fmt: skip
            try:
                await self._moves.move(key, target)
            except KafkaError as error:
                self._was_refused(planned, target, error.message)
                return False
            move = self._moves.get(key)
            if move is None:
                return False  # the replica's directory has failed since the plan was made
            self.adopt(move)
        self._services.tracer.log(
            "server",
            logging.INFO,
            f"{self._kind}: {key} of {planned.size_bytes:,} bytes moves from {planned.source} to"
            f" {target}: {planned.reason}",
        )
        return True

    def _is_closed(self, path: str) -> bool:
        """Return whether a directory accepts no replicas now, because it is cordoned or full."""
        config = self._services.config
        if takes_no_new(path, config.cordoned_log_dirs, config.draining_log_dirs):
            return True
        directories = self._replicas.directories
        return any(each.path == path and each.space.is_full for each in directories)

    def _was_refused(self, planned: PlannedReplicaMove, target: str, why: str) -> None:
        until_ms = self._services.clock.monotonic_ms() + REFUSED_MS
        self._refused[planned.replica, target] = until_ms, f"has refused it: {why}"
        self._services.tracer.mark("planned_move_refused")
        self._services.tracer.log(
            "server",
            logging.WARNING,
            f"{self._kind}: {planned.replica} does not move from {planned.source} to {target} now:"
            f" {why}; another directory, or in {REFUSED_MS // 1_000} s again",
        )

    async def end(self, move: DirectoryMove, why: str) -> None:
        """End a move, if it is still in progress."""
        key = move.partition.topic_partition
        async with self._replicas.command_order:
            if self._moves.get(key) is move:
                await self._moves.end(key, why)
        self._own.pop(key, None)
