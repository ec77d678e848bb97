"""Rare states of the small world of replicas, from which a history branches.

A fault often needs two rare events close together. A drawn history that has reached the first one
continues several times from there (`replica_set`), so that fewer whole histories are needed until
the second event happens, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.replication.follower import FollowerReplica
from tidelog.sim.small.replica_set_world import ReplicaSetWorld


def _two_changes(world: ReplicaSetWorld) -> bool:
    """The controller may accept either of two changes (A8)."""
    if len(world.requests) < 2:
        return False
    may_be_accepted = world.register.may_be_accepted
    changes = [each.change for each in world.requests if may_be_accepted(each)]
    return any(change != changes[0] for change in changes)


def _lost_records(world: ReplicaSetWorld) -> bool:
    """An ISR member or eligible replica has lost records (V10, V63)."""
    reference = world.reference
    return any(
        member in reference.lost or recorded < reference.intact_from[member]
        for member, recorded in world.register.state.recorded().items()
    )


def _two_leaders(world: ReplicaSetWorld) -> bool:
    """Two brokers believe that they lead (V65)."""
    return len(world.leaders()) > 1


def _late_fetch(world: ReplicaSetWorld) -> bool:
    """A fetch is under way whose sender has given up its connection, or restarted (V63)."""
    return any(each.requests and not each.is_open for each in world.connections.values())


def _fetch_of_earlier_life(world: ReplicaSetWorld) -> bool:
    """A fetch is under way whose sender follows again under a newer broker epoch (V63)."""
    return any(
        each.requests
        and world.brokers[each.name[0]].following is not None
        and -1 != each.requests[0].broker_epoch < world.brokers[each.name[0]].broker_epoch
        for each in world.connections.values()
        if not each.is_open
    )


def _late_answer(world: ReplicaSetWorld) -> bool:
    """A response is under way whose state is no longer the published one (A9)."""
    return any(
        each.state is not None
        and each.state.leader_epoch == world.register.state.leader_epoch
        and each.state.partition_epoch < world.register.state.partition_epoch
        for each in world.verdicts
    )


def _late_read(world: ReplicaSetWorld) -> bool:
    """The leader reads for a closed connection, or for an earlier leader epoch (F7)."""
    return any(
        each.reading is not None
        and (not each.is_open or world.brokers[each.leader].role is not each.reading.role)
        for each in world.connections.values()
    )


def _half_done(world: ReplicaSetWorld) -> bool:
    """An operation on a follower's log has failed after a part of it was done (V66)."""
    return any(
        isinstance(broker.role, FollowerReplica)
        and broker.is_backing_off
        and broker.role.log_end_offset != len(broker.log)
        for broker in world.brokers.values()
    )


class Rarity(NamedTuple):
    """A rare state, and how a history continues where it first reaches this state."""

    is_reached: Callable[[ReplicaSetWorld], bool]
    #: Number of drawn continuations.
    branches: int
    #: Number of steps of which every order is played; 0 for none.
    depth: int = 0


#: Rare states by name: the rarer, the more continuations.
RARITIES: Final[dict[str, Rarity]] = {
    "two_changes": Rarity(_two_changes, 12, 2),
    "fetch_of_earlier_life": Rarity(_fetch_of_earlier_life, 12, 2),
    "late_answer": Rarity(_late_answer, 4, 2),
    "half_done": Rarity(_half_done, 4),
    "two_leaders": Rarity(_two_leaders, 4),
    "lost_records": Rarity(_lost_records, 4),
    "late_read": Rarity(_late_read, 6),
    "late_fetch": Rarity(_late_fetch, 3),
}
