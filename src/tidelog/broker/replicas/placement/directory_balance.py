"""Automatic balancing: replicas move from full volumes of this broker to emptier volumes (D15).

`log.log_dir_balance` makes a plan at intervals. A few moves of the plan run at a time, at the rate
limit for all moves between directories. The next plan waits until the former files of moved
replicas are deleted. Until then the number of free bytes is uncertain, and another plan could move
replicas back. Without a rate limit, balancing moves no replica, because producers would wait for
the copying. Balancing also waits while directories are being drained. `tidelog log-dirs balance`
shows the plan of the automatic balancing, and can run it once. Balancing runs only if it is enabled
and the broker has several log directories.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.placement.planned_directory_moves import (
    PlannedDirectoryMoves,
    may_move,
    movable,
)
from tidelog.core.pauses import LoopPauses
from tidelog.core.throttle_keys import DIRECTORY_MOVE_RATE, UNLIMITED
from tidelog.log import log_dir_balance
from tidelog.log.log_dir_plan import PlannedReplicaMove

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.placement.directory_drains import DirectoryDrains
    from tidelog.broker.replicas.placement.directory_moves import DirectoryMoves
    from tidelog.broker.replicas.placement.log_dir_placement import LogDirPlacement
    from tidelog.broker.services import Services

#: Maximum number of balancing moves that run at a time.
_AT_ONCE: Final = 2
#: Maximum number of moves taken from one plan; the next plan uses the sizes at that time.
_LONGEST_QUEUE: Final = 64
#: Shortest pause in milliseconds between two calls of `_round`, which begins and ends moves.
_GAP_MS: Final = 20
_MS_PER_S: Final = 1_000


class DirectoryBalance:
    """The automatic balancing of replicas between the log directories of one broker. Only the event
    loop uses this class.
    """

    def __init__(
        self,
        services: Services,
        replicas: HostedPartitions,
        moves: DirectoryMoves,
        placement: LogDirPlacement,
        drains: DirectoryDrains,
    ) -> None:
        self._services = services
        self._replicas = replicas
        self._moves = moves
        self._placement = placement
        self._drains = drains
        self._planned = PlannedDirectoryMoves(services, replicas, moves, "balance")
        self._pause = LoopPauses(services.clock)
        self._is_running = False
        #: Whether the last plan had moves. After a plan with moves, balancing continues until
        #: volumes differ by less than half the threshold.
        self._is_under_way = False
        #: Moves of the current plan that have not begun.
        self._queue: list[PlannedReplicaMove] = []
        self._has_warned = False

    @property
    def is_enabled(self) -> bool:
        """Whether this broker may move replicas on its own."""
        config = self._services.config
        return config.log_dir_balance_enable and len(config.log_dirs) > 1

    def configured(self) -> None:
        """Apply the broker's configuration, at the start and after changes."""
        if self._is_running:
            self._pause.wake()
        elif self.is_enabled:
            self._is_running = True
            self._services.tasks.spawn("balance of log directories", self._run())

    def move_ended(self) -> None:
        """Continue with the plan soon, as a move has ended."""
        if self._is_under_way:
            self._pause.wake()

    async def preview(self, threshold_percent: int | None = None) -> list[PlannedReplicaMove]:
        """Return, in order, the moves that would balance the directories now."""
        if threshold_percent is None:
            threshold_percent = self._services.config.log_dir_balance_threshold_percent
        return await self._plan(threshold_percent, is_under_way=False)

    async def _run(self) -> None:
        while self.is_enabled or self._planned.under_way():
            interval_s = self._services.config.log_dir_balance_check_interval_seconds
            await self._pause.wait(interval_s * _MS_PER_S)
            await self._round()
            await self._services.tasks.sleep(_GAP_MS)
        self._is_running = self._is_under_way = False

    async def _round(self) -> None:
        """Begin the next moves, and end moves that are no longer wanted."""
        for move in self._planned.under_way():
            if not self.is_enabled:
                await self._planned.end(move, "balancing is disabled")
            elif move.target.space.is_full:
                await self._planned.end(move, f"{move.target.path} is full")
        if not self.is_enabled or not self._is_limited() or self._drains.is_busy:
            self._is_under_way = False
            self._queue.clear()
            return
        if not self._queue and not self._planned.under_way() and not self._are_files_departing():
            threshold = self._services.config.log_dir_balance_threshold_percent
            planned = await self._plan(threshold, is_under_way=self._is_under_way)
            self._is_under_way = bool(planned)
            self._queue = planned[:_LONGEST_QUEUE]
        while self._queue and len(self._planned.under_way()) < _AT_ONCE:
            if await self._planned.begin(self._queue.pop(0)):
                self._services.tracer.mark("directory_balance_begun")

    def _are_files_departing(self) -> bool:
        """Return whether moved replicas may still occupy space in their former directories."""
        directories = self._replicas.directories
        return any(self._moves.departing_bytes(each.path) for each in directories)

    def _is_limited(self) -> bool:
        """Return whether moves have a rate limit; log once if they have none."""
        rate = self._services.config.replica_alter_log_dirs_io_max_bytes_per_second
        is_limited = rate != UNLIMITED
        if not is_limited and not self._has_warned:
            self._services.tracer.log(
                "server",
                logging.WARNING,
                f"log.dir.balance.enable=true has no effect without a limit: set"
                f" {DIRECTORY_MOVE_RATE} to the bytes a second that moves may take",
            )
        self._has_warned = not is_limited
        return is_limited

    async def _plan(
        self, threshold_percent: int, *, is_under_way: bool
    ) -> list[PlannedReplicaMove]:
        replicas = self._replicas
        states = await self._placement.states(replicas.directories, self._moves)
        moving = {move.partition.topic_partition: None for move in self._moves.under_way()}
        refused = {replica: None for replica, _ in self._planned.refused()}
        return log_dir_balance.plan(
            states,
            [
                movable(partition)
                for partition in replicas.all()
                if may_move(partition)
                and partition.topic_partition not in moving
                and partition.topic_partition not in refused
            ],
            threshold_percent,
            is_under_way=is_under_way,
        )
