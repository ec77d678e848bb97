"""The log directories in which this broker creates new replicas (D2, D12, D13, D14).

`log.log_dir_choice` chooses a directory by available space. This module supplies the input: the
directories that may take replicas, the space of their volumes, recent placements, and the growth of
the directories. With a single directory the broker does not measure space or growth. If the space
of any volume cannot be read, the broker chooses the directory that will hold the fewest bytes. A
device error makes the directory fail (D1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.errors import StorageError
from tidelog.core.log_dir_keys import CORDON, is_cordoned, slow_action_includes, takes_no_new
from tidelog.core.ports import Files, VolumeSize, Work
from tidelog.log.log_dir_choice import GrowthRate, LogDirRoom, Promises, choose, expected_bytes
from tidelog.log.log_dir_plan import LogDirState

if TYPE_CHECKING:
    from tidelog.broker.replicas.placement.directory_moves import DirectoryMoves
    from tidelog.broker.services import Services
    from tidelog.core.types import TopicPartition
    from tidelog.log.log_directory import LogDirectory


class _PlacementVolume(NamedTuple):
    size: VolumeSize | None
    device: int

    @property
    def usable_bytes(self) -> int | None:
        return None if self.size is None else self.size.usable_bytes


class LogDirPlacement:
    """The choice of log directories for the new replicas of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._promises = Promises()
        self._growth: dict[str, GrowthRate] = {}

    def sample(self, directories: Sequence[LogDirectory]) -> None:
        """Record the bytes that each directory holds now, as samples of its growth."""
        now_ms = self._services.clock.monotonic_ms()
        for directory in directories if len(directories) > 1 else ():
            growth = self._growth.setdefault(directory.path, GrowthRate())
            growth.sample(_held_bytes(directory), now_ms)

    def moved(self, source: str, target: str) -> None:
        """Note a move between two directories, so that its bytes do not count as growth."""
        for path in (source, target):
            if path in self._growth:
                self._growth[path].restart()

    def open_to_new(self, directories: Sequence[LogDirectory]) -> list[LogDirectory]:
        """Return the directories that are not full, slow, cordoned or drained, for new replicas.

        If no other directory has space, slow directories are returned, too, because all directories
        may be slow. If all directories that are not cordoned are full, all of them are returned:
        the full directory then refuses the replica, and the controller sends the role again later.
        The result is empty if all directories are cordoned.
        """
        config = self._services.config
        cordoned, draining = config.cordoned_log_dirs, config.draining_log_dirs
        allowed = [each for each in directories if not takes_no_new(each.path, cordoned, draining)]
        with_room = [each for each in allowed if not each.space.is_full]
        return [each for each in with_room if not self.is_closed(each)] or with_room or allowed

    def is_closed(self, directory: LogDirectory) -> bool:
        """Return whether a directory is too slow to take new replicas (D13)."""
        action = self._services.config.log_dir_slow_action
        return directory.speed.is_slow and slow_action_includes(action, CORDON)

    async def place(
        self, replicas: Sequence[TopicPartition], directories: Sequence[LogDirectory]
    ) -> dict[LogDirectory, list[TopicPartition]]:
        """Choose a directory for each new replica; return the new replicas by directory.

        `directories` must not be empty.
        """
        shares: dict[LogDirectory, list[TopicPartition]] = {each: [] for each in directories}
        if len(self._services.config.log_dirs) == 1:
            shares[directories[0]] += replicas
            return shares
        volumes = [await self._volume(each) for each in directories]
        now_ms = self._services.clock.monotonic_ms()
        rooms = [
            self._room(directory, volume, now_ms)
            for directory, volume in zip(directories, volumes, strict=True)
        ]
        expected = expected_bytes(
            (log.size_bytes for each in directories for log in each.logs.values()),
            (volume.usable_bytes for volume in volumes),
            self._services.config.log_segment_bytes,
        )
        for replica, index in zip(replicas, choose(len(replicas), expected, rooms), strict=True):
            shares[directories[index]].append(replica)
            self._promises.make(directories[index].path, replica, expected, now_ms)
        return shares

    async def states(
        self,
        directories: Sequence[LogDirectory],
        moves: DirectoryMoves,
        leaving: Collection[str] = (),
    ) -> list[LogDirState]:
        """Return the states of these directories, as input for a plan of moves between them.

        Directories with a path in `leaving` count as drained.
        """
        volumes = [await self._volume(each) for each in directories]
        now_ms = self._services.clock.monotonic_ms()
        begun = moves.under_way()
        return [
            LogDirState(
                path=directory.path,
                room=self._room(directory, volume, now_ms),
                total_bytes=None if volume.size is None else volume.size.total_bytes,
                spare_bytes=0 if volume.size is None else _spare_bytes(directory, volume.size),
                coming_bytes=sum(each.awaited_bytes for each in begun if each.target is directory),
                leaving_bytes=moves.departing_bytes(directory.path)
                + sum(each.partition.log.size_bytes for each in begun if each.source is directory),
                steady_growth_bytes=self._steady_growth(directory, now_ms),
                closed=self._why_closed(directory, leaving),
                is_draining=self._is_draining(directory.path, leaving),
            )
            for directory, volume in zip(directories, volumes, strict=True)
        ]

    def _steady_growth(self, directory: LogDirectory, now_ms: int) -> int:
        """Return a directory's expected growth in bytes, from samples over half an hour or more."""
        growth = self._growth.get(directory.path)
        if growth is None:
            return 0
        return growth.expected_bytes(_held_bytes(directory), now_ms, GrowthRate.HORIZON_MS // 2)

    def _is_draining(self, path: str, leaving: Collection[str]) -> bool:
        return path in leaving or path in self._services.config.draining_log_dirs

    def _why_closed(self, directory: LogDirectory, leaving: Collection[str]) -> str:
        """Return why no replica may move into a directory; empty if replicas may."""
        if directory.failure is not None:
            return "has failed"
        if self._is_draining(directory.path, leaving):
            return "is drained"
        if is_cordoned(directory.path, self._services.config.cordoned_log_dirs):
            return "is cordoned"
        if directory.space.is_full:
            return "is full"
        return "is slow" if self.is_closed(directory) else ""

    async def _volume(self, directory: LogDirectory) -> _PlacementVolume:
        path = directory.path

        def look(files: Files) -> _PlacementVolume:
            return _PlacementVolume(files.volume_size(path), files.volume_place(path).device)

        try:
            return await directory.lane.submit(look, Work.SLOW, "volume_size")
        except StorageError as error:
            directory.failed(error)
            return _PlacementVolume(None, 0)

    def _room(self, directory: LogDirectory, volume: _PlacementVolume, now_ms: int) -> LogDirRoom:
        held_bytes = _held_bytes(directory)
        sizes: dict[object, int] = {key: log.size_bytes for key, log in directory.logs.items()}
        growth = self._growth.get(directory.path)
        return LogDirRoom(
            usable_bytes=volume.usable_bytes,
            volume=volume.device,
            held_bytes=held_bytes,
            growth_bytes=0 if growth is None else growth.expected_bytes(held_bytes, now_ms),
            promised_bytes=self._promises.left(directory.path, sizes, now_ms),
            replicas=len(directory.logs),
        )


def _held_bytes(directory: LogDirectory) -> int:
    return sum(log.size_bytes for log in directory.logs.values())


def _spare_bytes(directory: LogDirectory, volume: VolumeSize) -> int:
    """Return the bytes that moves must leave free so that a full directory can recover (D14)."""
    return 2 * directory.space.free.reserve_of(volume)
