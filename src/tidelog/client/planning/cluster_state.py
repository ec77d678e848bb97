"""The input of a plan: live brokers with racks and free disk space, partitions with sizes.

A moving partition counts with its target replicas, and no plan moves it again. `PlanError` is the
error of a request that no plan can meet; its message states a valid request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.core.wording import brokers_text


class PlanError(TidelogError):
    """The error for a request that no plan can meet; the message states a valid request."""


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition: its replicas, the preferred leader first, and the bytes that one copy costs."""

    tp: TopicPartition
    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    isr: tuple[int, ...] = ()
    size_bytes: int = 0
    #: Whether the partition is being reassigned; `replicas` are then the target.
    is_moving: bool = False
    #: Brokers that hold a replica only until the move is over.
    losing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All live brokers and all partitions.

    `racks` has every live broker, with None for a broker without a rack. `free_bytes` has the free
    disk space of each broker, without brokers that do not report it.
    """

    racks: Mapping[int, str | None]
    partitions: tuple[PlacedPartition, ...]
    free_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    def live(self) -> tuple[int, ...]:
        """The ids of the live brokers, ascending."""
        return tuple(sorted(self.racks))

    def of_topic(self, topic: str) -> list[PlacedPartition]:
        """Return the partitions of a topic; raise PlanError if it has none."""
        found = [each for each in self.partitions if each.tp.topic == topic]
        if not found:
            raise PlanError(f"there is no topic {topic!r}")
        return found

    def rack_names(self) -> dict[int, str]:
        """Return the rack of each live broker; a broker without a rack is a rack of its own.

        Raises PlanError if some brokers have a rack and others have none.
        """
        without = [broker for broker in self.live if self.racks[broker] is None]
        if without and len(without) < len(self.racks):
            raise PlanError(
                f"no rack is known of {brokers_text(without)}, but others have one: set broker.rack"
                " on all of them, or plan without racks (--no-racks)"
            )
        return {broker: self.racks[broker] or f"broker {broker}" for broker in self.live}


def without_racks(state: ClusterState) -> ClusterState:
    """Return the same cluster with all racks removed."""
    return ClusterState(dict.fromkeys(state.racks), state.partitions, state.free_bytes)


def rack_cap(replicas: int, racks: Mapping[int, str], targets: Iterable[int]) -> int:
    """Return the maximum number of a partition's replicas in one rack.

    The result is the smallest number with which the brokers in `targets` have room for all
    `replicas` replicas: with more racks, fewer replicas must share a rack.
    """
    sizes = Counter(racks[broker] for broker in targets)
    for cap in range(1, replicas + 1):
        if sum(min(cap, size) for size in sizes.values()) >= replicas:
            return cap
    return replicas


def check_replicas_alive(state: ClusterState, partition: PlacedPartition) -> None:
    """Raise PlanError if a partition keeps a replica on a dead broker.

    A controller accepts no target that names a dead broker.
    """
    dead = [broker for broker in partition.replicas if broker not in state.racks]
    if dead:
        raise PlanError(
            f"broker {dead[0]} is not alive and holds a replica of {partition.tp}: start it, or"
            f" decommission it (tidelog brokers decommission {dead[0]})"
        )
