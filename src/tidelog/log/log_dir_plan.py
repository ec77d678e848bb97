"""Plans of moves between the log directories of a broker: the facts that they are made of.

Drains (`log_dir_drain`, D12) and balancing (`log_dir_balance`, D15) plan by the same facts: what
the directories hold, how they grow, how much room their volumes have, and what is on the way. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.core.types import TopicPartition
from tidelog.log.log_dir_choice import LogDirRoom


@dataclass(frozen=True, slots=True)
class LogDirState:
    """A good log directory of a broker."""

    path: str
    #: What it holds and will hold, and the usable bytes of its volume.
    room: LogDirRoom
    #: Bytes of the whole volume; None where that is not known.
    total_bytes: int | None = None
    #: Bytes that stay free, so that the directory does not turn read-only (D14).
    spare_bytes: int = 0
    #: Bytes that moves to it still have to copy.
    coming_bytes: int = 0
    #: Bytes of replicas that move away from it, or have, while their former files are still there.
    leaving_bytes: int = 0
    #: Bytes that its replicas are expected to grow by; 0 while their growth is not known for long.
    steady_growth_bytes: int = 0
    #: Why no replica may move to it; empty where it may.
    closed: str = ""
    #: All of its replicas leave it: balancing keeps its hands off.
    is_draining: bool = False

    def expecting(self, size_bytes: int) -> LogDirState:
        """Return the directory with one more replica on its way to it."""
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
        """Return the directory with one more replica, for which its volume needs no room."""
        room = self.room
        held = replace(room, held_bytes=room.held_bytes + size_bytes, replicas=room.replicas + 1)
        return replace(self, room=held)

    def counting_what_comes(self) -> LogDirState:
        """Return the directory with the bytes on the way to it among those it is promised."""
        room = self.room
        promised_bytes = room.promised_bytes + self.coming_bytes
        return replace(self, room=replace(room, promised_bytes=promised_bytes))


class MovableReplica(NamedTuple):
    """A replica that may move to another directory."""

    replica: TopicPartition
    #: The directory that holds it.
    source: str
    size_bytes: int


class PlannedReplicaMove(NamedTuple):
    """A replica, where it is to go, and why; `target` is None where it can go nowhere."""

    replica: TopicPartition
    source: str
    target: str | None
    size_bytes: int
    reason: str


def room_left(directories: Iterable[LogDirState], volume: int) -> int:
    """Return how many bytes replicas may still bring to a volume; negative where it has too few.

    Directories of one volume share its room.
    """
    of_it = [each for each in directories if each.room.volume == volume]
    usable = min(each.room.usable_bytes or 0 for each in of_it)
    spare = max(each.spare_bytes for each in of_it)
    return usable - spare - sum(each.coming_bytes for each in of_it)
