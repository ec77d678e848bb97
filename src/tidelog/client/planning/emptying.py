"""Plans that empty brokers (R17): `decommissioned` for removal, `drained` for maintenance.

A replica on an emptied broker moves to the best remaining broker, so the partition keeps its number
of replicas. A partition whose preferred leader moves gets another in-sync preferred leader, if
possible. If the remaining brokers are too few for a partition's replicas, decommissioning fails,
and draining keeps the replica as a follower. Draining skips a partition with a replica on a dead
broker, because a controller accepts no target that names a dead broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from tidelog.client.planning.cluster_state import (
    ClusterState,
    PlacedPartition,
    PlanError,
    check_replicas_alive,
)
from tidelog.client.planning.moves import Chosen, MovePlan, plan_of
from tidelog.client.planning.placement import PlannedPlacement, leader_first
from tidelog.core.types import TopicPartition
from tidelog.core.wording import brokers_text

_MOST_NAMED = 5


def decommissioned(state: ClusterState, leaving: AbstractSet[int]) -> MovePlan:
    """Return the moves that leave no replica on these brokers, alive or dead.

    Raises PlanError with the topics whose replicas the other live brokers cannot hold. Raises
    PlanError for a broker that is neither live nor holds a replica.
    """
    _check_known(state, leaving)
    stay = _staying_brokers(state, leaving)
    _check_enough(state, leaving, stay)
    placement = PlannedPlacement(state)
    chosen: dict[TopicPartition, Chosen] = {}
    for partition in _largest_first(state, leaving):
        kept = [broker for broker in partition.replicas if broker not in leaving]
        check_replicas_alive(state, PlacedPartition(partition.tp, tuple(kept)))
        missing = len(partition.replicas) - len(kept)
        replicas = placement.add_best(partition.tp, kept, stay, missing)
        if partition.replicas[0] in leaving:
            replicas = leader_first(replicas, placement.best_leader(partition, replicas))
        placement.assign(partition.tp, replicas)
        chosen[partition.tp] = Chosen(replicas, _reason(partition, leaving, "decommissioned"))
    return plan_of(state, chosen)


def drained(state: ClusterState, leaving: AbstractSet[int], leaders_only: bool = False) -> MovePlan:
    """Return the moves that take leaderships, and if possible replicas, off brokers in `leaving`.

    A partition for which the other brokers are too few keeps its replica as a follower, last in
    order, and is listed in `MovePlan.staying`. `MovePlan.blocked` lists partitions that stay
    unchanged because a replica is on a dead broker. With `leaders_only` only leaderships move,
    without a copy. Raises PlanError for a dead broker, and if no other broker is live.
    """
    for broker in sorted(leaving):
        if broker not in state.racks:
            live = ", ".join(map(str, state.live))
            raise PlanError(
                f"there is no live broker {broker} to drain; live are {live} (a dead broker is"
                " decommissioned)"
            )
    stay = _staying_brokers(state, leaving)
    placement = PlannedPlacement(state)
    chosen: dict[TopicPartition, Chosen] = {}
    staying, blocked = [], []
    for partition in _largest_first(state, leaving):
        if any(broker not in state.racks for broker in partition.replicas):
            blocked.append(partition.tp)
            continue
        kept = [broker for broker in partition.replicas if broker not in leaving]
        own = [broker for broker in partition.replicas if broker in leaving]
        replicas = tuple(kept)
        if not leaders_only:
            replicas = placement.add_best(partition.tp, kept, stay, len(own))
        able = replicas
        if len(replicas) < len(partition.replicas):
            replicas += tuple(own[: len(partition.replicas) - len(replicas)])
            staying.append(partition.tp)
        if able and (partition.replicas[0] in leaving or _leads_for_another(partition, able)):
            replicas = leader_first(replicas, placement.best_leader(partition, able))
        placement.assign(partition.tp, replicas)
        chosen[partition.tp] = Chosen(replicas, _reason(partition, leaving, "drained"))
    return plan_of(state, chosen, staying, blocked)


def _leads_for_another(partition: PlacedPartition, able: Sequence[int]) -> bool:
    """Return whether a replica in `able` must become the preferred leader.

    This is so if the current leader is not in `able` and the preferred replica is not in sync, but
    a replica in `able` is.
    """
    if partition.leader in able or partition.replicas[0] in partition.isr:
        return False
    return any(broker in partition.isr for broker in able)


def _staying_brokers(state: ClusterState, leaving: AbstractSet[int]) -> list[int]:
    stay = [broker for broker in state.live if broker not in leaving]
    if not stay:
        raise PlanError("no live broker would remain: leave at least one")
    return stay


def _largest_first(state: ClusterState, leaving: AbstractSet[int]) -> list[PlacedPartition]:
    """Return the partitions with replicas on these brokers, the largest first."""
    there = [each for each in state.partitions if not leaving.isdisjoint(each.replicas)]
    return sorted(there, key=lambda each: (-each.size_bytes, each.tp))


def _reason(partition: PlacedPartition, leaving: AbstractSet[int], word: str) -> str:
    own = [broker for broker in partition.replicas if broker in leaving]
    return f"{brokers_text(own, 'is', 'are')} {word}"


def _check_known(state: ClusterState, leaving: AbstractSet[int]) -> None:
    known = {*state.racks}
    for each in state.partitions:
        known |= {*each.replicas, *each.losing}
    for broker in sorted(leaving):
        if broker not in known:
            names = ", ".join(map(str, sorted(known)))
            raise PlanError(
                f"there is no broker {broker}: it is not alive, and no partition is assigned to it;"
                f" there are {names}"
            )


def _check_enough(state: ClusterState, leaving: AbstractSet[int], stay: list[int]) -> None:
    """Raise PlanError with the topics whose replicas the brokers in `stay` cannot hold."""
    wanted: dict[str, int] = {}
    for partition in _largest_first(state, leaving):
        topic, count = partition.tp.topic, len(partition.replicas)
        if count > len(stay):
            wanted[topic] = max(count, wanted.get(topic, 0))
    if not wanted:
        return
    names = [f"{topic} ({wanted[topic]} replicas)" for topic in sorted(wanted)]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    remain = "only broker" if len(stay) == 1 else "only brokers"
    gone = ", ".join(map(str, sorted(leaving)))
    raise PlanError(
        f"without broker {gone} there {'is' if len(stay) == 1 else 'are'} {remain}"
        f" {', '.join(map(str, stay))}, too few for {', '.join(names[:_MOST_NAMED])}{more}: add"
        " brokers, or lower the number first (tidelog topics alter TOPIC --replication-factor"
        f" {len(stay)})"
    )
