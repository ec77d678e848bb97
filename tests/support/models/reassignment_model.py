"""Model 8, reassignments: a move, a change of its target and a cancel, over controllers that die.

Real: `Controller` with all that it decides, writes and sends; `StoreReader` and `StoreWriter`; the
roles and deletions that brokers obey, merged while they wait; leaders, followers and truncation.
The administrator asks by request, or by nodes in the store. A controller dies between any two
writes, or before its commands are sent; the next one loads what the store has. A broker dies and
comes back with its log. A response to the ISR change of a leader arrives at once, or never.

Bounds: requests, deaths, records, members that fall behind. Replicas are not alike: no renaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.support.controller.values import TP, reassign, settings, topic_id
from tests.support.models import reassignment_store as stores
from tests.support.models.cluster_states import NOTHING
from tests.support.models.explorer import State, Step
from tests.support.models.isr_model import give_up, send_due
from tests.support.models.moving_replicas import Assigned, MovingReplica, commands_key, obey
from tests.support.models.reassignment_states import (
    ALTER,
    BROKERS,
    CANCEL,
    CHANGE,
    GONE,
    MOVE,
    TICKETS,
    VERSION,
    Bounds,
    Effect,
    Left,
    ReassignmentStates,
    Term,
    World,
    is_moving,
    unpacked,
)
from tests.support.models.reassignment_store import Nodes
from tests.support.models.replicas import Replica

from tidelog.controller import lifecycle
from tidelog.controller.commands import Commands
from tidelog.controller.controller import Controller
from tidelog.controller.events import Event
from tidelog.controller.partitions.alter_partition import AlterPartitionAsked
from tidelog.controller.producer_ids import ProducerIdsRead
from tidelog.controller.reassignments.progress import SweepDue
from tidelog.controller.records import LastProducerId
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.core.errors import ErrorCode
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    ReassignmentEntry,
)
from tidelog.metadata import layout
from tidelog.replication.isr import IsrChange
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)


class ReassignmentModel(ReassignmentStates):
    """The steps; states are described in `ReassignmentStates`."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._decided: dict[tuple[object, ...], list[Effect]] = {}
        self._fetched: dict[tuple[int, int], tuple[int, int]] = {}
        self._obeyed: dict[tuple[int, int, int, int], tuple[int, list[Event]]] = {}
        self._merged: dict[tuple[int, int], int] = {}
        self._targets = {MOVE: bounds.target, CHANGE: bounds.second, CANCEL: bounds.original}

    # the exploration

    def first(self) -> State:
        """A partition in full health, and a controller that has loaded it."""
        bounds = self.bounds
        lives = (1,) * len(BROKERS)
        live = self.lives.number(lives, lives)
        infos = self.infos(live)
        members = {number: infos[number] for number in bounds.original}
        state = lifecycle.first_state(bounds.original, members, 1)
        assert state is not None
        nodes, _ = stores.elected(stores.first_nodes(state, bounds.original, bounds.minimum))
        role = Assigned(state.leader, 0, state.isr, 0, bounds.original, False)
        first: dict[int, MovingReplica] = {}
        for number in bounds.original:
            first[number] = MovingReplica(number, 1, bounds.minimum, BROKERS)
            first[number].assign(role)
        leader = first.pop(state.leader)
        leader.write(1)
        for _ in range(3):
            for follower in first.values():
                fetch(leader, follower)
        assert leader.high_watermark == 1
        first[state.leader] = leader
        parts = [self.keep(first.get(number)) for number in BROKERS]
        left = Left(
            (), bounds.controller_deaths, bounds.mortal is not None, bounds.drops, bounds.writes
        )
        [loaded] = [e for e in self._load(self.nodes.number(nodes, nodes), live, 1) if e.died < 0]
        world = World(
            loaded.nodes,
            loaded.term,
            live,
            self.goals.number((bounds.original,), (bounds.original,)),
            self.lefts.number(left, left),
            self.logs.number(leader.committed(), leader.committed()),
            self.faults.number((), ()),
            tuple(parts),
            (NOTHING,) * 4,
        )
        return self._after(world, loaded).packed()

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What the cluster does, and what befalls it."""
        world = unpacked(state)
        for step, after in self.progress(world):
            yield step, after.packed()
        for step, after in self._befalls(world):
            yield step, after.packed()

    def progress(self, world: World) -> Iterator[tuple[Step, World]]:
        """What the cluster does by itself."""
        if world.term == GONE:
            yield from self._elects(world)
        else:
            yield from self._controls(world)
            yield from self._alters(world)
            for index in range(len(BROKERS)):
                yield from self._obeys(world, index)
        for index in range(len(BROKERS)):
            yield from self._fetches(world, index)

    # the controller

    def _elects(self, world: World) -> Iterator[tuple[Step, World]]:
        nodes, epoch = stores.elected(self.nodes.values[world.nodes])
        number = self.nodes.number(nodes, nodes)
        yield from self._ends(world, ("elected", epoch), self._load(number, world.live, epoch))

    def _load(self, nodes: int, live: int, epoch: int) -> list[Effect]:
        controller = Controller(replace(settings(), controller_epoch=epoch))
        found = self.nodes.values[nodes]
        events = (
            stores.topics_read(found),
            DeletionsRead([]),
            ProducerIdsRead(LastProducerId(last_id=-1, version=0)),
            *stores.requests_read(found),
            BrokersRead(self.infos(live)),
        )
        term = self.office(Term(epoch, controller, ()))
        return self._decide(nodes, term, ("load", live), events)

    def _controls(self, world: World) -> Iterator[tuple[Step, World]]:
        term = self.terms.values[world.term]
        image = term.controller.image
        if term.controller.has_work:
            yield from self._decides(world, ("goes on",))
        infos = self.infos(world.live)
        if len(infos) != len(image.brokers) or any(
            infos[number].broker_epoch != broker.broker_epoch
            for number, broker in image.brokers.items()
            if number in infos
        ):
            yield from self._decides(world, ("reads brokers", world.live), BrokersRead(infos))
        if self.bounds.by_nodes:
            asked, cancel = stores.requests_read(self.nodes.values[world.nodes])
            if asked.found != image.reassignments:
                yield from self._decides(world, ("reads the moves",), asked)
            if cancel.is_requested != image.cancels_all:
                yield from self._decides(world, ("reads the cancel",), cancel)
        if image.moving and not term.controller.has_work:
            swept = self._decide(world.nodes, world.term, ("sweeps",), [SweepDue()])
            if any(each.died >= 0 for each in swept):
                yield from self._ends(world, ("sweeps",), swept)

    def _decides(self, world: World, step: Step, *events: Event) -> Iterator[tuple[Step, World]]:
        yield from self._ends(world, step, self._decide(world.nodes, world.term, step, events))

    def _decide(self, nodes: int, number: int, what: Step, events: Sequence[Event]) -> list[Effect]:
        """A decision about these events: carried out, or cut off before any of its writes."""
        key = (nodes, number, what)
        known = self._decided.get(key)
        if known is None:
            known = self._decided[key] = list(self._effects(nodes, number, what, events))
        return known

    def _effects(
        self, nodes: int, number: int, what: Step, events: Sequence[Event]
    ) -> Iterator[Effect]:
        term, before = self.terms.values[number], self.nodes.values[nodes]
        controller = term.controller.copy()
        for event in events:
            controller.offer(event)
        decision = controller.decide()
        if decision.writes:
            for died in range(len(decision.writes) + 1):
                left, _ = stores.written(before, term.epoch, decision.writes, died)
                yield Effect(died, self.nodes.number(left, left), GONE)
        after, outcomes = stores.written(before, term.epoch, decision.writes, None)
        assert outcomes is not None
        effects = controller.applied(decision, outcomes)
        asked = (what[0],) if what[0] in self._targets else ()
        said, altered = [], None
        for ticket, message in effects.answers:
            if isinstance(message, AlterPartitionResponse):
                altered = message
                continue
            [kind] = [kind for kind, own in TICKETS.items() if own == ticket]
            [[result]] = [topic.partitions for topic in message.responses]
            said.append((kind, int(result.error_code)))
        waiting = tuple(
            kind for kind in (*term.waiting, *asked) if kind not in [kind for kind, _ in said]
        )
        is_rash = (CANCEL, 0) in said and self._is_rash(before, controller)
        yield Effect(
            -1,
            self.nodes.number(after, after),
            self.office(Term(term.epoch, controller, waiting)),
            tuple(self._sent(effects.commands)),
            tuple(said),
            altered,
            is_rash,
        )

    def _sent(self, sent: Mapping[int, Commands]) -> Iterator[tuple[int, int]]:
        """Roles and deletions; clients' metadata makes no difference here."""
        for broker_id, each in sent.items():
            if each.full or each.roles or each.stops:
                yield broker_id, self.commands.number(commands_key(each), each)

    def _is_rash(self, nodes: Nodes, controller: Controller) -> bool:
        """Whether a cancel takes a partition from those who have it to those who have not (R6)."""
        isr = stores.ModelStore(nodes).state().isr
        is_online = any(member in controller.image.brokers for member in isr)
        return is_online and not any(member in self.bounds.original for member in isr)

    def _ends(
        self, world: World, step: Step, effects: Sequence[Effect]
    ) -> Iterator[tuple[Step, World]]:
        left = self.lefts.values[world.left]
        for effect in effects:
            if effect.died < 0:
                yield step, self._after(world, effect)
            elif left.controller_deaths:
                dead = self._died(world._replace(nodes=effect.nodes), step)
                yield (*step, "dies after", effect.died), dead

    def _died(self, world: World, step: Step = ()) -> World:
        """The controller is gone, and what it had not sent."""
        left = self.lefts.values[world.left]
        left = left._replace(controller_deaths=left.controller_deaths - 1)
        waiting = () if world.term == GONE else self.terms.values[world.term].waiting
        goals = list(self.goals.values[world.goals])
        for kind in (*waiting, *step[:1]):
            target = self._targets.get(kind)
            goals += [] if target is None else [target]  # it may have been carried out
        return world._replace(
            term=GONE,
            left=self.lefts.number(left, left),
            goals=self._goals(goals),
            pending=(NOTHING,) * 4,
        )

    def _goals(self, goals: Sequence[tuple[int, ...]]) -> int:
        kept = tuple(sorted(dict.fromkeys(goals)))
        return self.goals.number(kept, kept)

    def _after(self, world: World, effect: Effect) -> World:
        """Return what follows from a decision: commands wait, the administrator has answers."""
        pending = list(world.pending)
        for broker_id, sent in effect.commands:
            index = BROKERS.index(broker_id)
            if broker_id in self.infos(world.live):
                pending[index] = self._merge(pending[index], sent)
        goals = self.goals.values[world.goals]
        for kind, error in effect.said:
            target = self._targets[kind]
            assert target is not None
            if error == ErrorCode.NONE:
                goals = (target,)
        if effect.is_rash:
            world = self._with_fault(world, "CancelStaysOnline")
        return world._replace(
            nodes=effect.nodes,
            term=effect.term,
            goals=self._goals(goals),
            pending=tuple(pending),
        )

    def _with_fault(self, world: World, name: str) -> World:
        return world._replace(faults=self.faults_with(world.faults, name))

    def _merge(self, first: int, later: int) -> int:
        """The number of the commands that wait after `later`, as production merges them."""
        if first == NOTHING:
            return later
        known = self._merged.get((first, later))
        if known is None:
            before, after = self.commands.values[first], self.commands.values[later]
            merged = replace(before, roles=dict(before.roles), stops=dict(before.stops))
            merged.merge(replace(after, roles=dict(after.roles), stops=dict(after.stops)))
            known = self._merged[first, later] = self.commands.number(commands_key(merged), merged)
        return known

    # brokers

    def _with_part(self, world: World, index: int, part: int) -> World:
        """Another replica of a broker's; what its leader commits is committed."""
        parts = (*world.parts[:index], part, *world.parts[index + 1 :])
        world = world._replace(parts=parts)
        committed = self.committed_with(world.committed, part)
        if committed is None:
            return self._with_fault(world, "WeakIsr")
        return world._replace(committed=committed)

    def _obeys(self, world: World, index: int) -> Iterator[tuple[Step, World]]:
        waits = world.pending[index]
        if waits == NOTHING:
            return
        number = BROKERS[index]
        infos = self.infos(world.live)
        key = (index, world.parts[index], waits, world.live)
        known = self._obeyed.get(key)
        if known is None:
            before = self.replica(world.parts[index])
            replica = None if before is None else before.copy()
            made, answers = obey(
                number, replica, self.commands.values[waits], infos, self.bounds.minimum
            )
            known = self._obeyed[key] = (self.keep(made), answers)
        part, answers = known
        pending = (*world.pending[:index], NOTHING, *world.pending[index + 1 :])
        after = self._with_part(world, index, part)._replace(pending=pending)
        is_gone = part == NOTHING != world.parts[index]
        if is_gone and number in self.published(world.nodes)[0].isr:
            # The controller decides on the answer in this step, and may shrink the ISR by it.
            after = self._with_fault(after, "StrongIsr")
        yield from self._decides(after, ("obeys", *key), *answers)

    def _alters(self, world: World) -> Iterator[tuple[Step, World]]:
        for index, number in enumerate(BROKERS):
            replica = self.replica(world.parts[index])
            change = None if replica is None else replica.due()
            if change is None:
                continue
            assert replica is not None
            step = (ALTER, number, change)
            asking = world
            if self._is_mistaken(replica, change, world.live):
                left = self.lefts.values[world.left]
                if not left.mistakes:
                    continue
                asking = self._with_left(world, left._replace(mistakes=left.mistakes - 1))
            asked = proposed(number, replica.broker_epoch, change)
            sent = self.replicas.apply(world.parts[index], send_due)
            for effect in self._decide(world.nodes, world.term, step, [asked]):
                part = self.replicas.apply(sent, give_up)
                if effect.died < 0:
                    assert effect.altered is not None
                    part = self.replicas.apply(sent, learn, change, answer_of(effect.altered))
                for label, after in self._ends(asking, step, [effect]):
                    yield label, self._with_part(after, index, part)

    def _is_mistaken(self, leader: MovingReplica, change: IsrChange, live: int) -> bool:
        """Whether a change has a member that restarted since, and has not fetched since either."""
        role = leader.leading
        assert role is not None
        for member, epoch in zip(change.isr, change.isr_epochs, strict=True):
            life = self.lives.values[live][BROKERS.index(member)]
            progress = role.followers.get(member)
            if progress is None or epoch in (NO_BROKER_EPOCH, life):
                continue
            if progress.broker_epoch != life:
                return True
        return False

    def _fetches(self, world: World, index: int) -> Iterator[tuple[Step, World]]:
        follower = self.replica(world.parts[index])
        asked = None if follower is None else follower.fetch()
        if asked is None or asked.leader not in self.infos(world.live):
            return
        at = BROKERS.index(asked.leader)
        leader = self.replica(world.parts[at])
        if leader is None or leader.leading is None:
            return
        key = (world.parts[at], world.parts[index])
        known = self._fetched.get(key)
        if known is None:
            assert follower is not None
            known = key
            for _ in range(1 if self.bounds.splits else len(BROKERS)):
                leader, follower = leader.copy(), follower.copy()
                fetch(leader, follower)
                known = (self.keep(leader), self.keep(follower))
            self._fetched[key] = known
        if known != key:
            after = self._with_part(self._with_part(world, at, known[0]), index, known[1])
            yield ("fetches", asked.replica, asked.leader), after

    # what befalls the cluster

    def _befalls(self, world: World) -> Iterator[tuple[Step, World]]:
        left = self.lefts.values[world.left]
        if world.term != GONE:
            yield from self._asks(world, left)
        if MOVE not in left.asked:
            return  # nothing of this concerns reassignments yet
        if world.term != GONE and left.controller_deaths:
            yield ("dies",), self._died(world)
        yield from self._lives(world, left)
        for index, number in enumerate(BROKERS):
            replica = self.replica(world.parts[index])
            role = None if replica is None else replica.leading
            if role is None:
                continue
            if left.writes:
                after = self.replicas.apply(world.parts[index], Replica.write, left.writes + 1)
                changed = self._with_left(world, left._replace(writes=left.writes - 1))
                yield ("writes", number), self._with_part(changed, index, after)
            for member, progress in role.followers.items() if left.drops else ():
                is_behind = progress.log_end_offset != role.log_end_offset
                if is_behind and progress.in_target_isr and not role.isr.in_flight:
                    after = self.replicas.apply(world.parts[index], Replica.drop, member)
                    changed = self._with_left(world, left._replace(drops=left.drops - 1))
                    yield ("drops", number, member), self._with_part(changed, index, after)

    def _with_left(self, world: World, left: Left) -> World:
        return world._replace(left=self.lefts.number(left, left))

    def _asks(self, world: World, left: Left) -> Iterator[tuple[Step, World]]:
        """The administrator asks for each thing once; a change and a cancel need a move."""
        wanted = [MOVE] if MOVE not in left.asked else []
        assignment = self.published(world.nodes)[1]
        if not wanted and is_moving(assignment):
            wanted += [CHANGE] if self.bounds.second and CHANGE not in left.asked else []
            wanted += [CANCEL] if self.bounds.cancels and CANCEL not in left.asked else []
        for kind in wanted:
            asking = left._replace(asked=tuple(sorted((*left.asked, kind))))
            after = self._with_left(world, asking)
            target = self._targets[kind]
            if self.bounds.by_nodes:
                yield from self._writes_node(after, kind)
            else:
                named = None if kind == CANCEL else target
                request = reassign(TP, named, ticket=TICKETS[kind])
                yield from self._decides(after, (kind,), request)

    def _writes_node(self, world: World, kind: str) -> Iterator[tuple[Step, World]]:
        nodes, target = self.nodes.values[world.nodes], self._targets[kind]
        assert target is not None
        path, data = layout.CANCEL_REASSIGNMENTS, b""
        if kind != CANCEL:
            path = layout.REASSIGN_PARTITIONS
            data = layout.encode_reassignments([ReassignmentEntry(TP, target)])
        if any(known == path for known, *_ in nodes):
            return  # one at a time
        after = stores.with_node(nodes, path, data)
        goals = self._goals((*self.goals.values[world.goals], target))
        yield (
            ("node", kind),
            world._replace(nodes=self.nodes.number(after, after), goals=goals),
        )

    def _lives(self, world: World, left: Left) -> Iterator[tuple[Step, World]]:
        mortal = self.bounds.mortal
        if mortal is None:
            return
        index = BROKERS.index(mortal)
        lives = self.lives.values[world.live]
        life = lives[index]
        if life == 1 and left.may_die:
            now, world = -1, self._with_left(world, left._replace(may_die=False))
        elif life < 0:
            now = 2
        else:
            return
        after = (*lives[:index], now, *lives[index + 1 :])
        live = self.lives.number(after, after)
        alive = tuple(self.infos(live))
        parts = []
        for at, part in enumerate(world.parts):
            if at == index and part != NOTHING:
                part = self.replicas.apply(part, MovingReplica.restart, abs(now))
            if part != NOTHING:
                part = self.replicas.apply(part, MovingReplica.learn, alive)
            parts.append(part)
        pending = (*world.pending[:index], NOTHING, *world.pending[index + 1 :])
        yield (
            ("session", mortal, now),
            world._replace(
                live=live,
                parts=tuple(parts),
                pending=pending,
            ),
        )


def fetch(leader: Replica, follower: Replica) -> None:
    asked = follower.fetch()
    answer = None if asked is None else leader.serve(asked)
    if answer is not None:
        follower.follow(answer)


def proposed(leader: int, broker_epoch: int, change: IsrChange) -> AlterPartitionAsked:
    """A leader's request."""
    data = RequestPartitionData(
        partition_index=0,
        leader_epoch=change.leader_epoch,
        new_isr_with_epochs=[
            BrokerState(member, epoch)
            for member, epoch in zip(change.isr, change.isr_epochs, strict=True)
        ],
        leader_recovery_state=change.leader_recovery_state,
        partition_epoch=change.partition_epoch,
    )
    topic = RequestTopicData(topic_id("t"), partitions=[data])
    request = AlterPartitionRequest(leader, broker_epoch, [topic])
    return AlterPartitionAsked(TICKETS[ALTER], VERSION, request)


class Said(NamedTuple):
    """The controller's answer to a change of the ISR."""

    error: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    has_eligible: bool


def answer_of(message: AlterPartitionResponse) -> Said:
    if message.error_code:
        return Said(int(message.error_code), -1, (), -1, False)
    [[data]] = [topic.partitions for topic in message.topics]
    return Said(
        int(data.error_code),
        data.leader_epoch,
        tuple(data.isr),
        data.partition_epoch,
        data.has_eligible,
    )


def learn(leader: Replica, change: IsrChange, said: Said) -> None:
    role = leader.leading
    assert role is not None
    if said.error:
        role.change_refused(change, ErrorCode(said.error), 0)
        return
    role.change_accepted(
        change, said.isr, said.leader_epoch, said.partition_epoch, 0, said.has_eligible
    )
    leader.known = max(leader.known, (role.leader_epoch, role.isr.partition_epoch))
