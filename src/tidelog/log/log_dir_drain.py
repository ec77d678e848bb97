"""The plan of moves that empties a drained log directory (D12).

For each replica, the target is the directory that `log_dir_choice` would choose for a new replica
of the same size (D2). Large replicas are placed first, so that small replicas fill the remaining
room. A directory takes a replica only if the whole replica fits beside all pending moves. This
module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.core.types import TopicPartition
from tidelog.log.log_dir_choice import choose
from tidelog.log.log_dir_plan import LogDirState, MovableReplica, PlannedReplicaMove, room_left

#: Reasons why directories rejected replicas, by replica and directory.
Refusals = Mapping[tuple[TopicPartition, str], str]


def plan(
    replicas: Iterable[MovableReplica], directories: Iterable[LogDirState], refused: Refusals
) -> list[PlannedReplicaMove]:
    """Return a move for each replica on a draining directory, the largest first; the move has no
    target if the replica fits nowhere.

    `directories` are all online directories, including the directories to drain. Moves in `refused`
    are not planned again.
    """
    states = {each.path: each.counting_what_comes() for each in directories}
    planned = []
    for each in sorted(replicas, key=lambda replica: (-replica.size_bytes, replica.replica)):
        hindrances = {
            path: _hindrance(each, path, states, refused) for path in states if path != each.source
        }
        targets = [states[path] for path, why in hindrances.items() if not why]
        target, reason = None, _nowhere(hindrances)
        if targets:
            (index,) = choose(1, each.size_bytes, [state.room for state in targets])
            target = targets[index].path
            left = room_left(states.values(), states[target].room.volume)
            reason = f"{left:,} bytes are left there"
            stays = _stays_on_volume(each, target, states)
            before = states[target]
            states[target] = (before.holding if stays else before.expecting)(each.size_bytes)
        planned.append(
            PlannedReplicaMove(each.replica, each.source, target, each.size_bytes, reason)
        )
    return planned


def _hindrance(
    replica: MovableReplica, path: str, states: Mapping[str, LogDirState], refused: Refusals
) -> str:
    """Return why a replica cannot move to a directory, or an empty text if it can."""
    state = states[path]
    if state.closed:
        return state.closed
    if (replica.replica, path) in refused:
        return refused[replica.replica, path]
    if state.room.usable_bytes is None:
        return "has free space that is not known"
    left = room_left(states.values(), state.room.volume)
    if replica.size_bytes > left:
        return f"is too small: {max(0, left):,} of {replica.size_bytes:,} bytes are left"
    return ""


def _stays_on_volume(
    replica: MovableReplica, target: str, states: Mapping[str, LogDirState]
) -> bool:
    """Return whether source and target are on one volume, so that the move takes no free space."""
    source = states.get(replica.source)
    return source is not None and source.room.volume == states[target].room.volume


def _nowhere(hindrances: Mapping[str, str]) -> str:
    if not hindrances:
        return "the broker has no other good log directory"
    return "; ".join(f"{path} {why}" for path, why in hindrances.items())
