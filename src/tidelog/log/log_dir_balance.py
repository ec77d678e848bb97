"""Plans that balance the volumes of a broker's log directories by moves of few bytes (D15).

The fill of a volume is the used share of its bytes, including expected growth and pending moves.
The expected growth of a replica that moves counts on its new volume. Balancing begins when the
fills of two volumes differ by more than a threshold. Balancing ends when all fills differ by at
most half of the threshold, so that the volumes may drift apart before the next balancing.

Each move goes from the fullest volume to the emptiest volume. The move takes the smallest replica
that brings the fill of the fullest or the emptiest volume near the mean fill. If no replica brings
either fill near the mean, the move takes the largest replica that is not too large. A replica is
too large if it does not fit on the emptiest volume, or if its move would take a volume's fill
across the mean fill by more than an eighth of the threshold. Each move lowers the sum of all
volumes' squared fills, weighted by volume size. Because this sum only falls, no sequence of plans
repeats a state. The mean fill leaves out volumes that can neither give nor take a replica.
Directories on one volume share its space, so no replica moves between them. Source: D15.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.log.log_dir_plan import LogDirState, MovableReplica, PlannedReplicaMove, room_left

#: Balancing continues until the fills of any two volumes differ by at most this part of the
#: threshold.
_GOAL_PART: Final = 0.5
#: A move may take a volume's fill across the mean fill by at most this part of the goal; the goal
#: is `_GOAL_PART` of the threshold. If `_PASSING_PART` were one half, a move could exchange the
#: fills of two volumes, and the next move could exchange them back.
_PASSING_PART: Final = 0.25


class _Load(NamedTuple):
    """The bytes of a volume that a replica uses, including its expected growth."""

    bytes: float
    replica: MovableReplica


@dataclass(slots=True)
class _Volume:
    """A volume with log directories, as it will be after the moves that were planned so far."""

    total_bytes: int
    #: Used bytes, including growth and pending moves.
    used_bytes: float
    #: Bytes that moves may still bring to the volume.
    room_bytes: int
    #: Directories on the volume that may take replicas, with the bytes that each directory will
    #: hold after the planned moves.
    open: dict[str, int]
    #: Replicas that may leave the volume, the smallest first.
    replicas: list[_Load]
    #: Whether a planned move changes the volume. Balancing of a changed volume continues until the
    #: fills differ by at most half of the threshold.
    is_touched: bool = False

    @property
    def fill(self) -> float:
        return self.used_bytes / self.total_bytes

    def above(self, fill: float) -> float:
        """Return by how many bytes the volume is above `fill`; negative if it is below `fill`."""
        return self.used_bytes - fill * self.total_bytes


def plan(
    directories: Sequence[LogDirState],
    replicas: Iterable[MovableReplica],
    threshold_percent: int,
    *,
    is_under_way: bool = False,
) -> list[PlannedReplicaMove]:
    """Return the moves that balance the volumes, in the order in which they should begin.

    `replicas` are the replicas that have no move under way. If `is_under_way`, an earlier plan was
    interrupted, and balancing continues to the goal even if the fills differ by less than the
    threshold. The plan leaves out volumes of unknown size, and directories that are being drained.
    """
    threshold = threshold_percent / 100
    goal = threshold * _GOAL_PART
    volumes = _volumes(directories, replicas)
    planned: list[PlannedReplicaMove] = []
    while (found := _next(volumes, threshold, goal, is_under_way)) is not None:
        high, low, load = found
        replica = load.replica
        target = min(low.open, key=lambda path: (low.open[path], path))
        before = high.fill, low.fill
        high.replicas.remove(load)
        high.used_bytes -= load.bytes
        low.used_bytes += load.bytes
        low.room_bytes -= replica.size_bytes
        low.open[target] += replica.size_bytes
        high.is_touched = low.is_touched = True
        reason = (
            f"{replica.source} is {before[0]:.1%} full and {target} {before[1]:.1%}; afterwards"
            f" {high.fill:.1%} and {low.fill:.1%}"
        )
        planned.append(
            PlannedReplicaMove(replica.replica, replica.source, target, replica.size_bytes, reason)
        )
    return planned


def _volumes(
    directories: Sequence[LogDirState], replicas: Iterable[MovableReplica]
) -> list[_Volume]:
    by_volume: dict[int, list[LogDirState]] = {}
    for each in directories:
        by_volume.setdefault(each.room.volume, []).append(each)
    volumes = []
    places: dict[str, _Volume] = {}
    for volume, of_it in by_volume.items():
        totals = [each.total_bytes for each in of_it if each.total_bytes]
        usable = [each.room.usable_bytes for each in of_it if each.room.usable_bytes is not None]
        if len(totals) < len(of_it) or len(usable) < len(of_it):
            continue
        changes = sum(
            each.coming_bytes - each.leaving_bytes + (_growth(each) - 1) * each.room.held_bytes
            for each in of_it
        )
        volumes.append(
            _Volume(
                total_bytes=max(totals),
                used_bytes=max(totals) - min(usable) + changes,
                room_bytes=room_left(of_it, volume),
                open={
                    each.path: each.room.held_bytes + each.coming_bytes
                    for each in of_it
                    if not each.closed and not each.is_draining
                },
                replicas=[],
            )
        )
        places |= {each.path: volumes[-1] for each in of_it if not each.is_draining}
    growth = {each.path: _growth(each) for each in directories}
    for replica in replicas:
        # The move of an empty replica would free nothing.
        if replica.source in places and replica.size_bytes > 0:
            load = replica.size_bytes * growth[replica.source]
            places[replica.source].replicas.append(_Load(load, replica))
    for made in volumes:
        made.replicas.sort()
    return volumes


def _growth(directory: LogDirState) -> float:
    """Return by which factor a directory's replicas are expected to grow, at most 2."""
    held_bytes = directory.room.held_bytes
    if held_bytes == 0:
        return 1.0
    return 1.0 + min(directory.steady_growth_bytes, held_bytes) / held_bytes


def _next(
    volumes: Sequence[_Volume], threshold: float, goal: float, is_under_way: bool
) -> tuple[_Volume, _Volume, _Load] | None:
    """Return the next move as (source, target, replica), or None if the volumes are balanced."""
    active = list(volumes)
    while len(active) > 1:
        high = max(active, key=_fill)
        low = min(active, key=_fill)
        is_begun = is_under_way or high.is_touched or low.is_touched
        if high.fill - low.fill <= (goal if is_begun else threshold):
            return None
        mean = sum(each.used_bytes for each in active) / sum(each.total_bytes for each in active)
        replica = _pick(high, low, mean, goal)
        if replica is not None:
            return high, low, replica
        # No replica can move between these two volumes. Leave out the volume that cannot give or
        # take a replica, and compute the mean fill of the remaining volumes again.
        least_bytes = high.replicas[0].bytes if high.replicas else math.inf
        gives = least_bytes <= high.above(mean - goal * _PASSING_PART)
        active.remove(low if gives else high)
    return None


def _pick(high: _Volume, low: _Volume, mean: float, goal: float) -> _Load | None:
    """Return the smallest suitable replica whose move from `high` to `low` brings the fill of
    `high` or of `low` near the mean fill.

    The move must not take either fill across the mean fill by more than a small part of `goal`. If
    no replica brings either volume near the mean fill, the result is the largest replica that may
    move; None if no replica may move.
    """
    if not low.open:
        return None
    near, beyond = goal / 2, goal * _PASSING_PART
    most_bytes = min(high.above(mean - beyond), -low.above(mean + beyond), low.room_bytes)
    # For each volume that is not near the mean fill: the bytes that must move to bring it near.
    needed = [each for each in (high.above(mean + near), -low.above(mean - near)) if each > 0]
    index = bisect_left(high.replicas, min(needed, default=0), key=_size)
    if index == len(high.replicas) or high.replicas[index].bytes > most_bytes:
        index = bisect_right(high.replicas, most_bytes, key=_size) - 1
    return high.replicas[index] if index >= 0 else None


def _fill(volume: _Volume) -> float:
    return volume.fill


def _size(load: _Load) -> float:
    return load.bytes
