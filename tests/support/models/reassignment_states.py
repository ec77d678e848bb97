"""States of `ReassignmentModel`, their parts, and what must hold of each.

A state is made of the store's nodes, the controller between two decisions, the registrations, and
the assignments that the administrator may expect; of every broker's replica, and the commands that
wait for it. Invariants hold always, or where the cluster does nothing more by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.models import reassignment_store as stores
from tests.support.models.cluster_states import NOTHING, ClusterStates
from tests.support.models.explorer import State, Step, Table
from tests.support.models.reassignment_store import Nodes

from tidelog.controller.controller import Controller
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    BrokerInfo,
    PartitionState,
)
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment

BROKERS = (1, 2, 3, 4)
VERSION = 3
#: No controller is in office.
GONE = NOTHING
MOVE, CHANGE, CANCEL, ALTER = "move", "change", "cancel", "alter"
TICKETS = {MOVE: 1, CHANGE: 2, CANCEL: 3, ALTER: 4}


class Bounds(NamedTuple):
    """How much happens."""

    original: tuple[int, ...] = (1, 2)
    target: tuple[int, ...] = (3, 4)
    #: A second target for the same partition; None: there is none.
    second: tuple[int, ...] | None = None
    cancels: bool = True
    #: The administrator asks through `/admin` instead of by requests.
    by_nodes: bool = False
    minimum: int = 1
    controller_deaths: int = 1
    #: Broker that may die once, and come back; None: none.
    mortal: int | None = None
    drops: int = 0
    #: Records that clients write, beside the one that is committed at the beginning.
    writes: int = 0
    #: Each fetch is a step of its own; otherwise a follower fetches until that changes nothing.
    splits: bool = False

    def __str__(self) -> str:
        what = [f"{list(self.original)} to {list(self.target)}"]
        what += [f"then {list(self.second)}"] if self.second else []
        what += ["cancelled"] if self.cancels else []
        what += ["by nodes"] if self.by_nodes else []
        what += [f"min ISR {self.minimum}"] if self.minimum > 1 else []
        what += [f"{self.controller_deaths} controllers die"]
        what += [f"{self.mortal} dies"] if self.mortal else []
        what += [f"{self.drops} fall behind"] if self.drops else []
        what += [f"{self.writes} written"] if self.writes else []
        what += ["single fetches"] if self.splits else []
        return ", ".join(what)


class Term(NamedTuple):
    """The controller, between two decisions."""

    epoch: int
    controller: Controller
    #: Requests of the administrator's that wait for a later decision.
    waiting: tuple[str, ...]


class Left(NamedTuple):
    """What may still happen."""

    asked: tuple[str, ...]
    controller_deaths: int
    may_die: bool
    drops: int
    writes: int
    #: Times that a leader asks for a member that has restarted since. In production it waits
    #: before it repeats that; without time, the member's next fetch is what ends it.
    mistakes: int = 1


class Effect(NamedTuple):
    """The end of a decision, or of the controller in the midst of it."""

    #: Transactions after which the controller died, -1 where it lives.
    died: int
    nodes: int
    term: int
    #: Commands by their number in the table, and by broker.
    commands: tuple[tuple[int, int], ...] = ()
    #: Errors of the administrator's requests by kind.
    said: tuple[tuple[str, int], ...] = ()
    altered: Any = None
    #: A cancel was accepted that R6 forbids.
    is_rash: bool = False


class World(NamedTuple):
    """A state, taken apart."""

    nodes: int
    term: int
    live: int
    goals: int
    left: int
    committed: int
    faults: int
    parts: tuple[int, ...]
    pending: tuple[int, ...]

    def packed(self) -> State:
        return (*self[:7], *self.parts, *self.pending)


def unpacked(state: State) -> World:
    """Take a state apart."""
    nodes, term, live, goals, left, committed, faults = state[:7]
    return World(nodes, term, live, goals, left, committed, faults, state[7:11], state[11:])


class ReassignmentStates(ClusterStates):
    """State: nodes, controller, registrations, accepted goals, what may happen, committed records,
    faults found on the way; then each broker's replica, and the commands that wait for it."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self.bounds = bounds
        self.name = f"reassignments, {bounds}"
        self.nodes: Table[Nodes] = Table()
        self.terms: Table[Term] = Table()
        self.lives: Table[tuple[int, ...]] = Table()
        self.goals: Table[tuple[tuple[int, ...], ...]] = Table()
        self.lefts: Table[Left] = Table()
        self._published: dict[int, tuple[PartitionState, TopicAssignment]] = {}

    def progress(self, world: World) -> Iterator[tuple[Step, World]]:
        """Every step that the cluster takes by itself."""
        raise NotImplementedError

    # parts

    def office(self, term: Term) -> int:
        asked = term.controller.image.reassignments
        of_node = None if asked is None else (asked.version, tuple(asked.entries.values()))
        key = (term.epoch, term.controller.key(), of_node, term.waiting)
        return self.terms.number(key, term)

    def infos(self, live: int) -> dict[int, BrokerInfo]:
        """The registrations; a broker that came back lost nothing."""
        known = self._infos.get(live)
        if known is None:
            known = self._infos[live] = {
                number: BrokerInfo(
                    number, life, (), previous_broker_epoch=NO_BROKER_EPOCH if life == 1 else 1
                )
                for number, life in zip(BROKERS, self.lives.values[live], strict=True)
                if life > 0
            }
        return known

    def published(self, nodes: int) -> tuple[PartitionState, TopicAssignment]:
        """The partition's state, and what the topic's node says."""
        known = self._published.get(nodes)
        if known is None:
            store = stores.ModelStore(self.nodes.values[nodes])
            known = self._published[nodes] = store.state(), store.assignment()
        return known

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants that do not hold."""
        world = unpacked(state)
        now, assignment = self.published(world.nodes)
        found = list(self.faults.values[world.faults])
        assigned = assignment.partitions[0]
        if now.leader != NO_LEADER and now.leader not in now.isr:
            found.append("LeaderInIsr")
        if not set(now.isr) <= set(assigned):
            found.append("LeaderInIsr")
        committed = self.logs.values[world.committed]
        for member in now.isr:
            replica = self.replica(world.parts[BROKERS.index(member)])
            if replica is None or replica.log[: len(committed)] != committed:
                found.append("StrongIsr")
        if not is_moving(assignment) and self._has_strangers(world, assigned):
            found.append("NodeLast")
        if not found and next(self.progress(world), None) is None:
            found += self._unfinished(world)
        return tuple(dict.fromkeys(found))

    def _has_strangers(self, world: World, assigned: tuple[int, ...]) -> bool:
        """Whether a broker that has not restarted has a replica that is not assigned to it."""
        return any(
            part != NOTHING and life == 1 and number not in assigned
            for number, part, life in zip(
                BROKERS, world.parts, self.lives.values[world.live], strict=True
            )
        )

    def _unfinished(self, world: World) -> Iterator[str]:
        """What is wrong where the cluster does nothing more by itself."""
        now, assignment = self.published(world.nodes)
        live = self.infos(world.live)
        if now.leader not in live and any(member in live for member in now.isr):
            yield "Leaderless"
        goals = self.goals.values[world.goals]
        is_over = not is_moving(assignment)
        if is_over and assignment.partitions[0] not in goals:
            yield "Exact"
        if not is_over and self._must_be_over(world, goals):
            yield "Liveness"
        if is_over:
            yield from self._leftovers(world, assignment.partitions[0])

    def _must_be_over(self, world: World, goals: Sequence[tuple[int, ...]]) -> bool:
        """Whether every replica of whatever is wanted is alive, or enough of those to return to."""
        live = self.infos(world.live)
        isr = self.published(world.nodes)[0].isr
        if all(replica in live for goal in goals for replica in goal):
            return any(member in live for member in isr)
        original = [replica for replica in self.bounds.original if replica in live]
        return (
            goals == (self.bounds.original,)
            and len(original) >= self.bounds.minimum
            and any(replica in isr for replica in original)
        )

    def _leftovers(self, world: World, assigned: tuple[int, ...]) -> Iterator[str]:
        """What is left of a reassignment that is over, in the store and on live brokers."""
        paths = [path for path, *_ in self.nodes.values[world.nodes]]
        if layout.REASSIGN_PARTITIONS in paths or layout.CANCEL_REASSIGNMENTS in paths:
            yield "NothingLeft"
        for number in self.infos(world.live):
            replica = self.replica(world.parts[BROKERS.index(number)])
            if (replica is not None) != (number in assigned) or (
                replica is not None and set(replica.replicas) != set(assigned)
            ):
                yield "NothingLeft"

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        return " ".join(str(part) for part in step)

    def describe(self, state: State) -> str:
        """The nodes, the goals, and every replica."""
        world = unpacked(state)
        now, assignment = self.published(world.nodes)
        parts = [self.replica(part) for part in world.parts]
        waits = [n for n, part in zip(BROKERS, world.pending, strict=True) if part != NOTHING]
        return (
            f"goals {list(self.goals.values[world.goals])}; node {assignment.partitions[0]} "
            f"+{assignment.adding.get(0, ())} -{assignment.removing.get(0, ())} of "
            f"{assignment.original.get(0, ())}; state {now.leader}@{now.leader_epoch}."
            f"{now.partition_epoch} ISR {list(now.isr)} to {now.reassigned_to}; "
            f"lives {self.lives.values[world.live]}; commands for {waits}; "
            f"{'; '.join(str(each) for each in parts if each is not None)}; "
            f"{len(self.logs.values[world.committed])} committed"
        )


def is_moving(assignment: TopicAssignment) -> bool:
    """Whether the topic's node has a reassignment."""
    return bool(assignment.adding or assignment.removing or assignment.original)
