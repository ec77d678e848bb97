"""Drains: all replicas leave a log directory for other directories of this broker (D12).

`draining.log.dirs` is a lasting setting: every replica in a directory listed there moves away, even
a replica that appears after a restart. `log.log_dir_drain` chooses the target directories of the
moves. The moves of a drain are like moves by AlterReplicaLogDirs; a few run at a time, and the
largest replicas go first. If a target directory fails, fills up or refuses a replica, the broker
chooses another directory. A replica that no directory can take waits for the next attempt. When a
drain is cancelled, the moves of that drain end. While no directory is drained, no task runs.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.placement.planned_directory_moves import (
    PlannedDirectoryMoves,
    may_move,
    movable,
)
from tidelog.core.pauses import LoopPauses
from tidelog.log import log_dir_drain
from tidelog.log.log_dir_plan import PlannedReplicaMove

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.placement.directory_move import DirectoryMove
    from tidelog.broker.replicas.placement.directory_moves import DirectoryMoves
    from tidelog.broker.replicas.placement.log_dir_placement import LogDirPlacement
    from tidelog.broker.services import Services
    from tidelog.core.types import TopicPartition

#: Maximum number of moves out of drained directories at a time. Only
#: `num.replica.alter.log.dirs.threads` of them copy records at the same time.
_AT_ONCE: Final = 16
#: Pause in milliseconds between two calls of `_round`, which begins and ends moves.
_LOOK_MS: Final = 5_000
#: Pause in milliseconds between an event, such as the end of a move, and the next call of `_round`.
_GAP_MS: Final = 20
#: Milliseconds before the broker tries again to move a replica that no directory could take.
_UNFIT_MS: Final = 10_000
#: Pause in milliseconds between log lines about replicas that cannot leave a drained directory.
_REMIND_MS: Final = 60_000


class DirectoryDrains:
    """The drains of log directories that one broker carries out. Only the event loop uses this
    class.
    """

    def __init__(
        self,
        services: Services,
        replicas: HostedPartitions,
        moves: DirectoryMoves,
        placement: LogDirPlacement,
    ) -> None:
        self._services = services
        self._replicas = replicas
        self._moves = moves
        self._placement = placement
        self._planned = PlannedDirectoryMoves(services, replicas, moves, "drain")
        self._pause = LoopPauses(services.clock)
        self._is_running = False
        #: By replica that no directory could take: monotonic time of the next attempt, and the
        #: reason.
        self._unfit: dict[TopicPartition, tuple[int, str]] = {}
        self._reminded_ms: int | None = None
        #: Drained directories, and whether each is empty.
        self._seen: dict[str, bool] = {}

    @property
    def paths(self) -> Sequence[str]:
        """The directories that are being drained."""
        config = self._services.config
        return config.draining_log_dirs if len(config.log_dirs) > 1 else ()

    @property
    def is_busy(self) -> bool:
        """Whether a replica still has to leave a drained directory."""
        return bool(self.paths) and bool(self._leaving(self.paths))

    def configured(self) -> None:
        """Apply the broker's configuration, at the start and after changes."""
        self._unfit.clear()
        self._planned.forget_refusals()
        if self._is_running:
            self._pause.wake()
        elif self.paths:
            self._is_running = True
            self._services.tasks.spawn("drains of log directories", self._run())

    def move_ended(self) -> None:
        """Begin the next move soon, as a move has ended."""
        self._pause.wake()

    async def preview(self, paths: Collection[str]) -> list[PlannedReplicaMove]:
        """Return the planned and running moves that empty these directories, largest first."""
        moves = {move.partition.topic_partition: move for move in self._moves.under_way()}
        begun = []
        rest = []
        for partition in self._leaving(paths):
            move = moves.get(partition.topic_partition)
            if move is not None and move.target.path not in paths:
                begun.append(_as_planned(move))
            else:
                rest.append(movable(partition))
        directories = self._replicas.directories
        states = await self._placement.states(directories, self._moves, paths)
        return begun + log_dir_drain.plan(rest, states, self._planned.refused())

    # the drain's task

    async def _run(self) -> None:
        while self.paths or self._planned.under_way():
            await self._round(self.paths)
            await self._services.tasks.sleep(_GAP_MS)
            await self._pause.wait(_LOOK_MS)
        self._seen.clear()
        self._is_running = False

    async def _round(self, paths: Sequence[str]) -> None:
        """Begin the moves that are due, and end moves that are no longer wanted."""
        await self._end_unwanted(paths)
        leaving = self._leaving(paths)
        self._note(paths, leaving)
        now_ms = self._services.clock.monotonic_ms()
        moves = self._moves
        waiting, count = [], 0
        for partition in leaving:
            move = moves.get(partition.topic_partition)
            if move is not None:
                self._planned.adopt(move)
                count += not _is_stuck(move, paths)
            if (move is None or _is_stuck(move, paths)) and may_move(partition):
                until_ms, _ = self._unfit.get(partition.topic_partition, (now_ms, ""))
                if until_ms <= now_ms:
                    waiting.append(partition)
        free = _AT_ONCE - count
        if waiting and free >= _AT_ONCE // 2:
            await self._begin(heapq.nsmallest(free, waiting, key=_largest_first), now_ms)
        self._remind(now_ms)

    async def _begin(self, partitions: Sequence[Partition], now_ms: int) -> None:
        states = await self._placement.states(self._replicas.directories, self._moves)
        chosen = [movable(partition) for partition in partitions]
        for each in log_dir_drain.plan(chosen, states, self._planned.refused()):
            if each.target is None:
                self._services.tracer.mark("drained_replica_fits_nowhere")
                self._unfit[each.replica] = now_ms + _UNFIT_MS, each.reason
                continue
            self._unfit.pop(each.replica, None)
            if self._moves.get(each.replica) is not None:
                self._services.tracer.mark("drained_replica_goes_elsewhere")
            if not await self._planned.begin(each):
                self._pause.wake()  # plan again, without the target that refused the replica

    async def _end_unwanted(self, paths: Collection[str]) -> None:
        """End the moves of cancelled drains, and moves into drained directories."""
        for move in self._planned.under_way():
            if move.source.path not in paths:
                self._services.tracer.mark("drain_cancelled")
                await self._planned.end(move, f"{move.source.path} is not drained any more")
        for move in self._moves.under_way():
            if move.target.path in paths and move.source.path not in paths:
                await self._planned.end(move, f"{move.target.path} is drained")

    # state of drains

    def _leaving(self, paths: Collection[str]) -> list[Partition]:
        return [each for each in self._replicas.all() if each.directory.path in paths]

    def _note(self, paths: Collection[str], leaving: Sequence[Partition]) -> None:
        """Log the drains that begin or have finished."""
        self._seen = {path: is_empty for path, is_empty in self._seen.items() if path in paths}
        for directory in self._replicas.directories:
            path = directory.path
            if path not in paths:
                continue
            there = [each for each in leaving if each.directory is directory]
            is_empty = not there and not directory.future_logs.found
            if self._seen.get(path) is is_empty:
                continue
            self._seen[path] = is_empty
            if not is_empty:
                count, size_bytes = len(there), sum(each.log.size_bytes for each in there)
                self._log(
                    logging.INFO, f"drain: {count} replicas of {size_bytes:,} bytes leave {path}"
                )
                continue
            self._services.tracer.mark("directory_drained")
            self._services.tracer.event("log_directory_drained", directory=path)
            self._log(
                logging.INFO,
                f"drain: {path} has no replica any more: stop this broker, take the directory out"
                " of log.dirs, and start it again",
            )

    def _remind(self, now_ms: int) -> None:
        """Log that replicas cannot leave a drained directory, at first and at intervals."""
        here = {each.topic_partition: None for each in self._leaving(self.paths)}
        self._unfit = {key: each for key, each in self._unfit.items() if key in here}
        if not self._unfit:
            self._reminded_ms = None
        elif self._reminded_ms is None or now_ms - self._reminded_ms >= _REMIND_MS:
            self._reminded_ms = now_ms
            key, (_, why) = next(iter(self._unfit.items()))
            self._log(
                logging.WARNING,
                f"drain: {len(self._unfit)} replicas cannot leave their log directory now, {key}"
                f" among them: {why}",
            )

    def _log(self, level: int, text: str) -> None:
        self._services.tracer.log("server", level, text)


def _is_stuck(move: DirectoryMove, paths: Collection[str]) -> bool:
    """Return whether a move waits for a full target, or goes to a drained directory."""
    return move.target.space.is_full or move.target.path in paths


def _largest_first(partition: Partition) -> tuple[int, TopicPartition]:
    return -partition.log.size_bytes, partition.topic_partition


def _as_planned(move: DirectoryMove) -> PlannedReplicaMove:
    copied = move.future.size_bytes
    return PlannedReplicaMove(
        move.partition.topic_partition,
        move.source.path,
        move.target.path,
        move.partition.log.size_bytes,
        f"is on its way, {copied:,} bytes are copied",
    )
