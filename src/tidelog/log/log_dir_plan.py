"""The facts on which the planning of moves between a broker's log directories is based.

Drains (`log_dir_drain`, D12) and balancing (`log_dir_balance`, D15) use the same facts: contents,
growth, room and pending moves of the directories. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.log.log_dir_choice import LogDirRoom


@dataclass(frozen=True, slots=True)
class LogDirState:
    """An online log directory of a broker."""

    path: str
    #: Current and expected bytes of the directory, and usable bytes of its volume.
    room: LogDirRoom
    #: Bytes of the whole volume; None if unknown.
    total_bytes: int | None = None
    #: Bytes that must stay free, so that the directory does not become read-only (D14).
    spare_bytes: int = 0
    #: Bytes that pending moves still have to copy to the directory.
    coming_bytes: int = 0
    #: Bytes of replicas that are moving out of the directory, and of files left by replicas that
    #: have moved out.
    leaving_bytes: int = 0
    #: Bytes by which the directory's replicas are expected to grow; 0 if their growth has been
    #: measured too briefly.
    steady_growth_bytes: int = 0
    #: Reason why no replica may move to the directory; empty if moves are allowed.
    closed: str = ""
    #: Whether the directory is being drained (emptied), so that balancing ignores it.
    is_draining: bool = False

    def expecting(self, size_bytes: int) -> LogDirState:
        """Return the directory with one more replica that is moving to it."""
        room = self.room
        return replace(
            self,
            room=replace(
                room,
                promised_bytes=room.promised_bytes + size_bytes,
                replicas=room.replicas + 1,
            ),
            coming_bytes=self.coming_bytes + size_bytes,
        )

    def holding(self, size_bytes: int) -> LogDirState:
        """Return the directory with one more replica, whose bytes are already on the volume."""
        room = self.room
        held = replace(room, held_bytes=room.held_bytes + size_bytes, replicas=room.replicas + 1)
        return replace(self, room=held)

    def counting_what_comes(self) -> LogDirState:
        """Return the directory with the bytes of pending moves added to its promised bytes."""
        room = self.room
        promised_bytes = room.promised_bytes + self.coming_bytes
        return replace(self, room=replace(room, promised_bytes=promised_bytes))


class MovableReplica(NamedTuple):
    """A replica that may move to another log directory."""

    replica: TopicPartition
    #: The log directory that holds the replica.
    source: str
    size_bytes: int


class PlannedReplicaMove(NamedTuple):
    """A planned move of a replica and its reason; `target` is None if no directory can take it."""

    replica: TopicPartition
    source: str
    target: str | None
    size_bytes: int
    reason: str


def room_left(directories: Iterable[LogDirState], volume: int) -> int:
    """Return the bytes that moves may still bring to a volume; negative if pending moves exceed its
    space.

    All directories on one volume share its free space.
    """
    of_it = [each for each in directories if each.room.volume == volume]
    usable = min(each.room.usable_bytes or 0 for each in of_it)
    spare = max(each.spare_bytes for each in of_it)
    return usable - spare - sum(each.coming_bytes for each in of_it)
