"""Model 9, log directories: replicas that are missing, and those that may be created empty (D3).

Real: `Controller`, with all that it knows, decides, writes and sends; the brokers' checks of
commands and `placement`; leaders, followers, truncation. A broker has two log directories, and the
partition's replica in one of them. That directory fails while the broker runs, is bad at a start,
is replaced by an empty one, is repaired or put back. A controller dies between two decisions, or
before its commands are sent; the next one forgets who lacks what. Commands arrive late, twice or
never: they wait, are merged, lose their response, or outlive their controller. The partition is
created in the first steps, so that its creation may be cut short anywhere.

Bounds: failures, replacements, restarts, deaths of controllers, lost responses, records, members
that fall behind, and restarts that shorten a log. Replicas are not alike: no renaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.support.controller.values import TP, settings, topic_id
from tests.support.models.cluster_states import NOTHING
from tests.support.models.directory_states import (
    GONE,
    Bounds,
    DirectoryStates,
    Effect,
    Host,
    Late,
    Left,
    World,
    delayed,
    overtaken,
    unpacked,
)
from tests.support.models.explorer import State, Step
from tests.support.models.isr_model import give_up, send_due
from tests.support.models.moving_replicas import Assigned, MovingReplica
from tests.support.models.reassignment_model import answer_of, fetch, learn, proposed
from tests.support.models.replicas import Replica

from tidelog.controller.commands import Commands
from tidelog.controller.controller import Controller
from tidelog.controller.elections.leaders import RecreateReplicas
from tidelog.controller.elections.recoveries import (
    LogEndsReported,
    RecoveryBegun,
    RecoveryWaitOver,
)
from tidelog.controller.events import Event
from tidelog.controller.producer_ids import ProducerIdsRead
from tidelog.controller.records import LastProducerId, Topic
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LeaderAndIsrAnswered, LogDirEventsRead
from tidelog.controller.state_writes import NO_STATE, WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Written
from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, CleanEpochs
from tidelog.replication import commands
from tidelog.replication.commands import OfflineReplica, Placement
from tidelog.wire.messages.alter_partition import AlterPartitionResponse
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

_TOPIC_ID = topic_id("t")


class DirectoryModel(DirectoryStates):
    """The steps; states are described in `DirectoryStates`."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._decided: dict[tuple[object, ...], list[Effect]] = {}
        self._fetched: dict[tuple[int, int], tuple[int, int]] = {}
        self._merged: dict[tuple[int, int], int] = {}
        self._obeyed: dict[tuple[object, ...], tuple[int, list[Event]]] = {}

    # the exploration

    def first(self) -> State:
        """The topic's node was written; there is no controller, no state and no replica."""
        if not self.bounds.is_begun:
            return self._beginning()
        state = self._beginning()
        obeyed = ["obeys"] * len(self.brokers)
        fetched = ["fetches"] * (len(self.brokers) - 1)
        for wanted in ("elected", *obeyed, "writes", *fetched):
            state = next(
                after
                for step, after in self.successors(state)
                if step[0] == wanted and step[-1] != "dies"
            )
        return state

    def _beginning(self) -> State:
        bounds = self.bounds
        hosts = tuple(Host(is_up=number not in bounds.late) for number in bounds.replicas)
        left = Left(*bounds[4:])
        nothing = (NOTHING,) * len(hosts)
        late = self.lates.number((), ())
        return World(
            NOTHING,
            GONE,
            0,
            self.hosts.number(hosts, hosts),
            self.lefts.number(left, left),
            self.logs.number((), ()),
            self.faults.number((), ()),
            late,
            nothing,
            nothing,
        ).packed()

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
            epoch = world.epoch + 1
            elected = world._replace(epoch=epoch)
            yield from self._ends(elected, ("elected", epoch), self._load(elected))
        else:
            yield from self._controls(world)
            yield from self._alters(world)
            for index in range(len(self.brokers)):
                if world.pending[index] != NOTHING:
                    yield from self._obeys(world, index)
        for index in range(len(self.brokers)):
            yield from self._fetches(world, index)

    # the controller

    def _load(self, world: World) -> list[Effect]:
        controller = Controller(
            replace(
                settings(),
                controller_epoch=world.epoch,
                min_insync_replicas=self.bounds.minimum,
            )
        )
        states = {} if world.published == NOTHING else {0: self.published.values[world.published]}
        topic = Topic("t", _TOPIC_ID, {0: self.bounds.replicas})
        events = (
            TopicsRead(["t"], [TopicFound(topic, states)]),
            DeletionsRead([]),
            ProducerIdsRead(LastProducerId(last_id=-1, version=0)),
            BrokersRead(self.infos(world.hosts)),
        )
        term = self.office(world.epoch, controller)
        key = (world.published, term, "load", world.hosts)
        return self._decide(key, world.published, term, events)

    def _controls(self, world: World) -> Iterator[tuple[Step, World]]:
        controller = self.terms.values[world.term].controller
        image = controller.image
        if controller.has_work:
            yield from self._decides(world, ("goes on",))
        infos = self.infos(world.hosts)
        if infos != image.brokers:
            yield from self._decides(world, ("reads brokers", world.hosts), BrokersRead(infos))
        for index, host in enumerate(self.hosts.values[world.hosts]):
            if host.is_unreported:
                read = self.with_host(world, index, host._replace(is_unreported=False))
                number = self.brokers[index]
                yield from self._decides(
                    read, ("reads of a failure", number), LogDirEventsRead([number])
                )
        recovery = image.recoveries.get(TP)
        if recovery is not None and not recovery.is_due:
            over = RecoveryWaitOver([RecoveryBegun(TP, recovery.serial)])
            yield from self._decides(world, ("has waited",), over)

    def _decides(self, world: World, step: Step, *events: Event) -> Iterator[tuple[Step, World]]:
        key = (world.published, world.term, step)
        yield from self._ends(world, step, self._decide(key, world.published, world.term, events))

    def _decide(
        self, key: tuple[object, ...], published: int, term: int, events: Sequence[Event]
    ) -> list[Effect]:
        """A decision about these events: carried out, or cut off after its write."""
        known = self._decided.get(key)
        if known is None:
            known = self._decided[key] = list(self._effects(published, term, events))
        return known

    def _effects(self, published: int, number: int, events: Sequence[Event]) -> Iterator[Effect]:
        epoch, before = self.terms.values[number]
        controller = before.copy()
        for event in events:
            controller.offer(event)
        decision = controller.decide()
        recreates = any(isinstance(order, RecreateReplicas) for order in decision.orders)
        assert len(decision.writes) <= 1, decision.writes
        for write in decision.writes:
            assert isinstance(write, WritePartitionState), write
            now = NO_STATE
            if published != NOTHING:
                now = self.published.values[published].partition_epoch
            # Only one controller writes here, and it knows what it wrote.
            assert write.expected_epoch == now, write
            state = write.state.written_by(0)
            published = self.published.number(state, state)
            yield Effect(True, published, GONE)
        effects = controller.applied(decision, [Written() for _ in decision.writes])
        altered = [
            message for _, message in effects.answers if isinstance(message, AlterPartitionResponse)
        ]
        sent = tuple(
            (
                broker_id,
                controller.image.brokers[broker_id].broker_epoch,
                self.command(each),
            )
            for broker_id, each in effects.commands.items()
            if each.full or each.roles or each.log_ends
        )
        yield Effect(
            False,
            published,
            self.office(epoch, controller),
            sent,
            altered[0] if altered else None,
            recreates,
        )

    def _ends(
        self, world: World, step: Step, effects: Sequence[Effect]
    ) -> Iterator[tuple[Step, World]]:
        left = self.lefts.values[world.left]
        for effect in effects:
            if not effect.has_died:
                yield step, self._after(world, effect)
            elif left.controller_deaths:
                yield (*step, "dies"), self._died(world._replace(published=effect.published))

    def _died(self, world: World) -> World:
        """The controller is gone; what it had sent may still arrive."""
        left = self.lefts.values[world.left]
        world = self.with_left(world, left._replace(controller_deaths=left.controller_deaths - 1))
        late = self.lates.values[world.late]
        for index, sent in enumerate(world.pending):
            life = self.hosts.values[world.hosts][index].life
            late = delayed(late, Late(index, sent, world.epoch, life))
        world = world._replace(term=GONE, pending=(NOTHING,) * len(self.brokers))
        return self.with_late(world, late)

    def _after(self, world: World, effect: Effect) -> World:
        """Return what follows from a decision: its commands are under way."""
        if effect.recreates and self.has_copy(world):
            world = self.with_fault(world, "RecreatedWhereNoneIs")
        hosts = self.hosts.values[world.hosts]
        pending, late = list(world.pending), self.lates.values[world.late]
        for broker_id, life, sent in effect.commands:
            index = self.brokers.index(broker_id)
            if hosts[index].is_up and life == hosts[index].life:
                late = delayed(late, Late(index, pending[index], world.epoch, life))
                pending[index] = self._merge(pending[index], sent)
            else:
                late = delayed(late, Late(index, sent, world.epoch, life))
        world = world._replace(published=effect.published, term=effect.term, pending=tuple(pending))
        return self.with_late(world, late)

    def _merge(self, first: int, later: int) -> int:
        """The number of the commands that wait after `later`, as production merges them."""
        if first == NOTHING:
            return later
        known = self._merged.get((first, later))
        if known is None:
            merged = _copied(self.commands.values[first])
            merged.merge(_copied(self.commands.values[later]))
            known = self._merged[first, later] = self.command(merged)
        return known

    # brokers

    def _obeys(self, world: World, index: int) -> Iterator[tuple[Step, World]]:
        """A broker carries out what waits for it; the controller has its answers, or none."""
        sent = world.pending[index]
        number = self.brokers[index]
        life = self.hosts.values[world.hosts][index].life
        late = self.lates.values[world.late]
        message = delayed(late, Late(index, sent, world.epoch, life))[-1]
        after, answers = self._carry_out(world, message)
        pending = (*world.pending[:index], NOTHING, *world.pending[index + 1 :])
        step = ("obeys", number, sent, world.parts[index], world.hosts)
        yield from self._decides(after._replace(pending=pending), step, *answers)
        left = self.lefts.values[world.left]
        if left.lost_answers:
            unheard = self.with_left(after, left._replace(lost_answers=left.lost_answers - 1))
            yield ("obeys unheard", number, sent), unheard

    def _obeys_late(self, world: World, message: Late) -> tuple[Step, World]:
        """A broker gets what was sent long ago; its answer reaches no controller."""
        rest = [each for each in self.lates.values[world.late] if each != message]
        after, _ = self._carry_out(self.with_late(world, rest), message)
        return ("obeys late", self.brokers[message.host], message.sent), after

    def _carry_out(self, world: World, message: Late) -> tuple[World, list[Event]]:
        """Give commands to a broker; return its answers."""
        index, number = message.host, self.brokers[message.host]
        host = self.hosts.values[world.hosts][index]
        if self.refuses(message, host):
            return world, []
        late = self.lates.values[world.late]
        if late:
            world = self.with_late(world, overtaken(late, message))
        world = self.with_host(world, index, host._replace(obeyed=message.epoch))
        before = world.parts[index]
        part, answers = self._answered(number, before, message.sent, host)
        if before == NOTHING != part and self._is_counted_on(world, number):
            world = self.with_fault(world, "MemberCreated")
        return self.with_part(world, index, part), answers

    def _answered(self, number: int, part: int, sent: int, host: Host) -> tuple[int, list[Event]]:
        """A broker's replica after commands, and its answers."""
        key = (number, part, sent, host.life, host.has_failed, host.offline)
        known = self._obeyed.get(key)
        if known is None:
            known = self._obeyed[key] = self._answers(number, part, sent, host)
        return known

    def _answers(self, number: int, part: int, sent: int, host: Host) -> tuple[int, list[Event]]:
        found, waits = self.replica(part), self.commands.values[sent]
        replica = None if found is None else found.copy()
        answers: list[Event] = []
        role = waits.roles.get(TP)
        if role is not None:
            replica, error = self._take_role(number, replica, role.state, host)
            answers.append(LeaderAndIsrAnswered(number, host.life, [(TP, error)]))
        if waits.log_ends:
            ends = {TP: self.log_end(replica, host)}
            answers.append(LogEndsReported(number, host.life, ends))
        return self.keep(replica), answers

    def _is_counted_on(self, world: World, number: int) -> bool:
        """Whether committed records are believed to be on a broker."""
        members = eligible_replicas.members(self.published.values[world.published])
        return number in members and bool(self.logs.values[world.committed])

    def _take_role(
        self,
        number: int,
        replica: MovingReplica | None,
        state: LeaderAndIsrPartitionState,
        host: Host,
    ) -> tuple[MovingReplica | None, ErrorCode]:
        if min(state.leader_epoch, state.partition_epoch) < 0:
            return replica, ErrorCode.INVALID_REQUEST
        place = commands.placement(
            broker_id=number,
            own_topic_id=None if replica is None else _TOPIC_ID,
            offline=host.offline,
            has_failed_directory=host.has_failed,
            topic_id=_TOPIC_ID,
            leader_epoch=state.leader_epoch,
            is_new=state.is_new,
            leader=state.leader,
            isr=(*state.isr, *state.eligible),
        )
        if place is Placement.LOST:
            return None, ErrorCode.REPLICA_NOT_AVAILABLE
        if place is Placement.OFFLINE:
            return None, ErrorCode.KAFKA_STORAGE_ERROR
        if replica is None:
            replica = MovingReplica(number, host.life, self.bounds.minimum, self.brokers)
        is_current = replica.assign(
            Assigned(
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                state.partition_epoch,
                tuple(state.replicas),
                bool(state.eligible),
            )
        )
        return replica, ErrorCode.NONE if is_current else ErrorCode.STALE_CONTROLLER_EPOCH

    def _alters(self, world: World) -> Iterator[tuple[Step, World]]:
        """A leader asks for another ISR; the response arrives at once."""
        left = self.lefts.values[world.left]
        for index, number in enumerate(self.brokers):
            leader = self.replica(world.parts[index])
            change = None if leader is None else leader.due()
            if change is None or not self.hosts.values[world.hosts][index].is_up:
                continue
            assert leader is not None
            asking = world
            if self._is_mistaken(leader, change.isr, change.isr_epochs, world):
                if not left.mistakes:
                    continue
                asking = self.with_left(world, left._replace(mistakes=left.mistakes - 1))
            step = ("asks for", number, change)
            sent = self.replicas.apply(world.parts[index], send_due)
            asked = proposed(number, leader.broker_epoch, change)
            for effect in self._decide(
                (world.published, world.term, step), world.published, world.term, [asked]
            ):
                part = self.replicas.apply(sent, give_up)
                if not effect.has_died:
                    assert effect.altered is not None
                    part = self.replicas.apply(sent, learn, change, answer_of(effect.altered))
                for label, after in self._ends(asking, step, [effect]):
                    yield label, self.with_part(after, index, part)

    def _is_mistaken(
        self,
        leader: MovingReplica,
        isr: Sequence[int],
        epochs: Sequence[int],
        world: World,
    ) -> bool:
        """Whether a change has a member that is not there as the leader counted it: in production
        the leader waits before it repeats that, and learns of the member's next life."""
        hosts = self.hosts.values[world.hosts]
        for member, epoch in zip(isr, epochs, strict=True):
            host = hosts[self.brokers.index(member)]
            is_as_counted = host.is_up and epoch in (NO_BROKER_EPOCH, host.life)
            if member != leader.number and not is_as_counted:
                return True
        return leader.broker_epoch != hosts[self.brokers.index(leader.number)].life

    def _fetches(self, world: World, index: int) -> Iterator[tuple[Step, World]]:
        """A follower fetches until that changes nothing."""
        follower = self.replica(world.parts[index])
        hosts = self.hosts.values[world.hosts]
        asked = None if follower is None else follower.fetch()
        if asked is None or not hosts[index].is_up:
            return
        at = self.brokers.index(asked.leader)
        leader = self.replica(world.parts[at])
        if leader is None or leader.leading is None or not hosts[at].is_up:
            return
        key = (world.parts[at], world.parts[index])
        known = self._fetched.get(key)
        if known is None:
            assert follower is not None
            known = key
            for _ in range(3):
                leader, follower = leader.copy(), follower.copy()
                fetch(leader, follower)
                known = (self.keep(leader), self.keep(follower))
            self._fetched[key] = known
        if known != key:
            after = self.with_part(self.with_part(world, at, known[0]), index, known[1])
            yield ("fetches", asked.replica, asked.leader), after

    # what befalls the cluster

    def _befalls(self, world: World) -> Iterator[tuple[Step, World]]:
        left = self.lefts.values[world.left]
        if world.term != GONE and left.controller_deaths:
            yield ("dies",), self._died(world)
        for message in self.lates.values[world.late]:
            yield self._obeys_late(world, message)
        for index, host in enumerate(self.hosts.values[world.hosts]):
            if host.is_up:
                yield from self._ended(world, index, host, left)
            else:
                yield from self._started(world, index, host, left)
        for index, number in enumerate(self.brokers):
            replica = self.replica(world.parts[index])
            role = None if replica is None else replica.leading
            if role is None or not self.hosts.values[world.hosts][index].is_up:
                continue
            if left.writes:
                after = self.replicas.apply(world.parts[index], Replica.write, left.writes)
                changed = self.with_left(world, left._replace(writes=left.writes - 1))
                yield ("writes", number), self.with_part(changed, index, after)
            for member, progress in role.followers.items() if left.drops else ():
                is_behind = progress.log_end_offset != role.log_end_offset
                if is_behind and progress.in_target_isr and not role.isr.in_flight:
                    after = self.replicas.apply(world.parts[index], Replica.drop, member)
                    changed = self.with_left(world, left._replace(drops=left.drops - 1))
                    yield ("drops", number, member), self.with_part(changed, index, after)

    def _ended(
        self, world: World, index: int, host: Host, left: Left
    ) -> Iterator[tuple[Step, World]]:
        """A running broker's directory fails, or the broker dies or stops."""
        number, part = self.brokers[index], world.parts[index]
        if left.failures and not host.has_failed and NOTHING in (host.shelf, part):
            failed = host._replace(has_failed=True, is_unreported=True)
            if part != NOTHING:
                shelf = self.replicas.apply(part, MovingReplica.rest)
                offline = OfflineReplica(_TOPIC_ID, self.replicas.values[part].known[0])
                failed = failed._replace(shelf=shelf, offline=offline)
                after = self.with_part(world, index, NOTHING)
            else:
                after = world
            after = self.with_left(after, left._replace(failures=left.failures - 1))
            yield ("a directory fails", number), self.with_host(after, index, failed)
        if left.restarts:
            world = self.with_left(world, left._replace(restarts=left.restarts - 1))
            dead = host._replace(
                is_up=False,
                offline=None,
                is_unreported=False,
                obeyed=NOTHING,
                marked=CleanEpochs(),
            )
            yield ("dies", number), self._down(world, index, dead)
            if not host.has_failed:
                # A directory that failed gets no mark of the clean shutdown (E3).
                marked = host.proof.followed_by(host.life)
                stopped = self._down(world, index, dead._replace(marked=marked))
                yield ("stops", number), stopped

    def _down(self, world: World, index: int, host: Host) -> World:
        """A broker is gone, with its session; commands for it arrive nowhere."""
        part = world.parts[index]
        if part != NOTHING:
            world = self.with_part(world, index, self.replicas.apply(part, MovingReplica.rest))
        message = Late(index, world.pending[index], world.epoch, host.life)
        late = delayed(self.lates.values[world.late], message)
        pending = (*world.pending[:index], NOTHING, *world.pending[index + 1 :])
        world = self.with_host(world._replace(pending=pending), index, host)
        return self.with_late(world, late)

    def _started(
        self, world: World, index: int, host: Host, left: Left
    ) -> Iterator[tuple[Step, World]]:
        """A broker starts, with its directories as they are, or as an operator left them."""
        part = world.parts[index]
        up = host._replace(
            life=host.life + 1, is_up=True, proof=CleanEpochs(), marked=CleanEpochs()
        )
        whole = up._replace(has_failed=False, proof=host.marked)
        good, spent = up._replace(has_failed=False), left._replace(failures=left.failures - 1)
        replaced = left._replace(replacements=left.replacements - 1)
        #: What is done; the host, its replica, the bounds that are left.
        starts: list[tuple[str, Host, int, Left]] = []
        if host.has_failed:
            starts.append(("bad", up, part, left))
            both = self.greater(part, host.shelf)
            starts.append(("repaired", good._replace(shelf=NOTHING), both, left))
            if left.replacements:
                starts.append(("replaced", good, part, replaced))
        else:
            starts.append(("whole", whole, part, left))
            if host.shelf != NOTHING:
                both = self.greater(part, host.shelf)
                starts.append(("put back", good._replace(shelf=NOTHING), both, left))
            elif part != NOTHING:
                away = good._replace(shelf=part)
                if left.failures:
                    starts.append(("bad", away._replace(has_failed=True), NOTHING, spent))
                if left.replacements:
                    starts.append(("replaced", away, NOTHING, replaced))
            if left.cuts and part != NOTHING and host.marked.last == NO_BROKER_EPOCH:
                less = left._replace(cuts=left.cuts - 1)
                log = self.replicas.values[part].log
                for size in range(len(log)):
                    cut = self.replicas.apply(part, Replica.cut, size)
                    starts.append((f"with {size} records", whole, cut, less))
        for how, begun, rest, budget in starts:
            if rest != NOTHING:
                rest = self.replicas.apply(rest, MovingReplica.restart, begun.life)
            after = self.with_part(self.with_left(world, budget), index, rest)
            yield ("starts", self.brokers[index], how), self.with_host(after, index, begun)


def _copied(each: Commands) -> Commands:
    return replace(
        each, roles=dict(each.roles), stops=dict(each.stops), log_ends=dict(each.log_ends)
    )
