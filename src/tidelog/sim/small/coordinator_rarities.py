"""Rare states of the small world of a coordinator, from which other histories go on.

A fault often needs two rare events close together. If a history reaches the first event, other
histories repeat its steps up to this event, and then go on differently. So fewer whole histories
are needed until one of them reaches the second event, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.sim.small.coordinator_world import CoordinatorWorld


def _groups(world: CoordinatorWorld) -> list[Any]:
    return [
        group for broker in world.up() if broker.is_active for group in broker.shard.groups.values()
    ]


def _zombie(world: CoordinatorWorld) -> bool:
    """Two brokers believe that they coordinate."""
    return sum(broker.coordinates for broker in world.up()) > 1


def _loading(world: CoordinatorWorld) -> bool:
    """A coordinator waits in its load until the records that it has read are committed."""
    return any(
        broker.shard is not None
        and broker.shard.phase is CoordinatorPhase.LOADING
        and broker.replica.log_end_offset > broker.replica.high_watermark
        for broker in world.up()
    )


def _storing(world: CoordinatorWorld) -> bool:
    """A generation's assignment is being written."""
    return any(
        group.storing_generation == group.generation_id and group.state.value != "Stable"
        for group in _groups(world)
    )


def _stable(world: CoordinatorWorld) -> bool:
    """A group with members is stable."""
    return any(group.state.value == "Stable" for group in _groups(world))


def _two_members(world: CoordinatorWorld) -> bool:
    """A group has two members."""
    return any(len(group.members) > 1 for group in _groups(world))


def _replacing(world: CoordinatorWorld) -> bool:
    """The new id of a static member is being written."""
    return any(group.replacement is not None for group in _groups(world))


def _dead(world: CoordinatorWorld) -> bool:
    """A group's tombstones are being written."""
    return any(group.state.value == "Dead" for group in _groups(world))


def _expiring(world: CoordinatorWorld) -> bool:
    """Tombstones of expired offsets are being written."""
    return any(group.is_expiring for group in _groups(world))


class RareState(NamedTuple):
    """A rare state, and how histories go on from it."""

    is_reached: Callable[[CoordinatorWorld], bool]
    #: Number of drawn continuations.
    branches: int
    #: Kinds of steps: from this state, every ordered pair of steps of these kinds is played. Empty
    #: if no pairs are played.
    next_steps: tuple[str, ...] = ()


_LEADERSHIP: Final = ("fetch", "elect", "obey", "resign")
#: Rare states by name.
RARE_STATES: Final[dict[str, RareState]] = {
    "zombie": RareState(_zombie, 6),
    "loading": RareState(_loading, 6, (*_LEADERSHIP, "store")),
    "storing": RareState(_storing, 6),
    "stable": RareState(_stable, 6),
    "two_members": RareState(_two_members, 8),
    "replacing": RareState(_replacing, 10, (*_LEADERSHIP, "restart")),
    "dead": RareState(_dead, 6, (*_LEADERSHIP, "store")),
    "expiring": RareState(_expiring, 4, (*_LEADERSHIP, "store")),
}
