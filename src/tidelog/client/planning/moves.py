"""The moves of a plan, and the document that `tidelog reassign execute` and Kafka's tool execute.

A move copies the whole partition to each broker that has no replica yet. A move that only changes
the order of replicas copies nothing (R21).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.client.planning.cluster_state import ClusterState, PlacedPartition, PlanError
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The change of one partition's replicas; `after[0]` is its preferred leader."""

    tp: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    #: Bytes of one copy of the partition.
    size_bytes: int
    reason: str
    #: Whether the current leader stays a replica, and another replica becomes the preferred leader.
    #: A leader that the move removes needs no election, because its leadership passes to the
    #: preferred replica.
    needs_election: bool = False

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers to which the move adds a replica."""
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def moved_bytes(self) -> int:
        """Bytes copied to all added brokers together."""
        return self.size_bytes * len(self.added)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves in the order of their partitions, and partitions that cannot move as requested."""

    moves: tuple[PlannedMove, ...]
    #: Partitions that keep a replica because the other brokers are too few.
    staying: tuple[TopicPartition, ...] = ()
    #: Partitions that cannot move because they keep a replica on a dead broker.
    blocked: tuple[TopicPartition, ...] = ()

    @property
    def moved_bytes(self) -> int:
        """Bytes that all moves copy."""
        return sum(each.moved_bytes for each in self.moves)

    @property
    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas that the plan requests for each partition."""
        return {each.tp: each.after for each in self.moves}

    @property
    def expected(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas before the plan; a partition with other replicas is not moved (R18)."""
        return {each.tp: each.before for each in self.moves}

    def document(self) -> dict[str, Any]:
        """Return the document that executes the plan."""
        reasons = {each.tp: each.reason for each in self.moves}
        return reassignment_document(self.targets, self.expected, reasons)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The replicas that a plan chooses for a partition, and the reason for the choice."""

    replicas: tuple[int, ...]
    reason: str


def plan_of(
    state: ClusterState,
    chosen: Mapping[TopicPartition, Chosen],
    staying: Sequence[TopicPartition] = (),
    blocked: Sequence[TopicPartition] = (),
) -> MovePlan:
    """Return the plan that gives partitions these replicas; unchanged partitions are omitted.

    Raises PlanError if a partition is already moving, or if a broker lacks room.
    """
    moves = []
    for partition in sorted(state.partitions, key=lambda each: each.tp):
        wanted = chosen.get(partition.tp)
        if wanted is None or wanted.replicas == partition.replicas:
            continue
        if partition.is_moving:
            raise PlanError(
                f"{partition.tp} is on the move to {_ids(partition.replicas)}: wait for it (tidelog"
                " reassign list), or cancel it"
            )
        assert len({*wanted.replicas}) == len(wanted.replicas), "a broker has one replica at most"
        moves.append(_move(partition, wanted))
    _check_room(state, moves)
    return MovePlan(tuple(moves), tuple(sorted(staying)), tuple(sorted(blocked)))


def _move(partition: PlacedPartition, wanted: Chosen) -> PlannedMove:
    return PlannedMove(
        partition.tp,
        partition.replicas,
        wanted.replicas,
        partition.size_bytes,
        wanted.reason,
        partition.leader in wanted.replicas[1:],
    )


def _check_room(state: ClusterState, moves: Iterable[PlannedMove]) -> None:
    received: dict[int, int] = {}
    for move in moves:
        for broker in move.added:
            received[broker] = received.get(broker, 0) + move.size_bytes
    for broker in sorted(received):
        free = state.free_bytes.get(broker)
        if free is not None and received[broker] > free:
            raise PlanError(
                f"broker {broker} has {free:,} bytes free and would receive {received[broker]:,}:"
                " free some space, add a broker, or name another one"
            )


def reassignment_document(
    replicas: Mapping[TopicPartition, Sequence[int]],
    expected: Mapping[TopicPartition, Sequence[int]],
    reasons: Mapping[TopicPartition, str] | None = None,
) -> dict[str, Any]:
    """Return the document that kafka-reassign-partitions and `tidelog reassign` execute.

    `tidelog reassign` refuses the document if a partition's replicas differ from `expected` (R18).
    Both programs ignore `reason`.
    """
    entries = []
    for tp in sorted(replicas):
        entry: dict[str, Any] = {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas[tp]),
            "expected_replicas": list(expected[tp]),
            "log_dirs": ["any"] * len(replicas[tp]),
        }
        if reasons is not None:
            entry["reason"] = reasons[tp]
        entries.append(entry)
    return {"version": 1, "partitions": entries}


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))
