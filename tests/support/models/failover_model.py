"""Model 3, failover of controllers: terms of office over one store, the old one still acting.

Real: `Controller` with what it decides, writes and tells; `StoreWriter` with its conditional
transactions, conflicts and unknown outcomes, over a store of two nodes; the leader's decisions;
which commands are obeyed. A controller is elected while others still decide and write. Requests,
answers and commands stay around: they come late, twice, in any order or never; a request may reach
any controller. Replica 1 leads, 2 keeps up, 3 falls behind, is lost, comes back.

Bounds: terms of office, records, partition epochs. Replicas are not alike here: no renaming.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from tests.support.controller.values import TP, settings, topic, topic_id
from tests.support.models.explorer import REPLICAS, State, Step, Table
from tests.support.models.isr_model import LEADER, fetch_from, send_due
from tests.support.models.replicas import Command, Replica, Replicas, command_of

from tidelog.broker.controller.store_writer import DeposedError, StoreWriter
from tidelog.controller import lifecycle
from tidelog.controller.controller import Controller
from tidelog.controller.decision import Decision, Effects
from tidelog.controller.events import Event
from tidelog.controller.partitions.alter_partition import AlterPartitionAsked
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Outcome
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, BrokerInfo, PartitionState
from tidelog.metadata import layout
from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Node,
    Op,
    OpResult,
    OutcomeUnknown,
    SetData,
    Stat,
    TransactionFailed,
)
from tidelog.replication import commands
from tidelog.replication.isr import IsrChange
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

SLOW = 3
VERSION = 3
STATE_PATH = layout.partition_state_path(TP)
#: What the store's answer to a transaction may be.
ANSWERED, APPLIED_UNANSWERED, LOST = "answered", "applied, its answer lost", "lost"
GONE = -1
#: The session of replica 3 ends; later it re-registers.
_NEXT_LIFE = {1: -1, -1: 2}


class Bounds(NamedTuple):
    """How much happens."""

    terms: int = 2
    records: int = 1
    max_version: int = 2

    def __str__(self) -> str:
        return f"{self.terms} terms, {self.records} records, partition epochs to {self.max_version}"


DEFAULT = Bounds()


class Told(NamedTuple):
    """A command with the epoch of the controller that sent it."""

    controller_epoch: int
    command: Command


class Said(NamedTuple):
    """A controller's answer to a change."""

    change: IsrChange
    error: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class Messages(NamedTuple):
    """All that was ever sent and can still matter."""

    requests: tuple[IsrChange, ...] = ()
    answers: tuple[Said, ...] = ()
    commands: tuple[Told, ...] = ()


class Term(NamedTuple):
    """A controller in office, as far as it knows; a decision of it is being written."""

    epoch: int
    controller: Controller
    decision: Decision | None
    #: The change that the decision answers.
    asked: IsrChange | None


History = tuple[PartitionState, ...]


class ModelStore:
    """Two nodes: the controller epoch, and the state of the partition."""

    def __init__(self, controller_epoch: int, state: PartitionState, mood: str) -> None:
        self.nodes = {
            layout.CONTROLLER_EPOCH: Node(b"", _stat(controller_epoch)),
            STATE_PATH: Node(layout.encode_partition_state(state), _stat(state.partition_epoch)),
        }
        self._mood = mood

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes as they are."""
        return [self.nodes.get(path) for path in paths]

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing; the first answer may not arrive."""
        mood, self._mood = self._mood, ANSWERED
        if mood == LOST:
            raise OutcomeUnknown(STATE_PATH)
        after = dict(self.nodes)
        results = []
        for index, op in enumerate(ops):
            assert isinstance(op, Check | SetData), op
            version = after[op.path].stat.version
            if op.version not in (ANY_VERSION, version):
                raise TransactionFailed(index, BadVersion(op.path))
            if isinstance(op, SetData):
                after[op.path] = Node(op.data, _stat(version + 1))
            results.append(OpResult(op.path, after[op.path].stat))
        self.nodes = after
        if mood == APPLIED_UNANSWERED:
            raise OutcomeUnknown(STATE_PATH)
        return results

    def state(self) -> PartitionState:
        """What is published."""
        node = self.nodes[STATE_PATH]
        return layout.decode_partition_state(STATE_PATH, node.data, node.stat)


class _Silent:
    """A tracer without followers."""

    def event(self, name: str, **details: object) -> None:
        """Nothing."""

    def mark(self, name: str) -> None:
        """Nothing."""


class FailoverModel:
    """State: published states, controller epoch, terms, life of replica 3, messages, the leader and
    the controller epoch that it knows, the log end of 3, committed, deposed writes."""

    def __init__(self, bounds: Bounds = DEFAULT) -> None:
        self.bounds = bounds
        self.name = f"failover of controllers, {bounds}"
        self.histories: Table[History] = Table()
        self.terms: Table[Term] = Table()
        self.offices: Table[tuple[int, ...]] = Table()
        self.messages: Table[Messages] = Table()
        self.leaders = Replicas(one_life=False)
        self._decided: dict[tuple[object, ...], int] = {}
        self._written: dict[tuple[object, ...], tuple[int, int, int, bool]] = {}

    # parts

    def _publish(self, history: History) -> int:
        return self.histories.number(history, history)

    def _office(self, terms: Sequence[int]) -> int:
        ordered = tuple(sorted(terms))
        return self.offices.number(ordered, ordered)

    def _term(self, term: Term) -> int:
        decision = term.decision
        made: tuple[object, ...] = ()
        if decision is not None:
            made = (
                tuple(decision.writes),
                tuple(
                    tuple((r.error, r.subject, r.write) for r in one.results)
                    for one in decision.answers
                ),
                tuple(decision.orders),
            )
        return self.terms.number((term.epoch, term.controller.key(), made, term.asked), term)

    def _send(self, messages: Messages, leader: int) -> int:
        role = self.leaders.values[leader].leading
        assert role is not None
        epoch = role.leader_epoch
        left = Messages(
            tuple(sorted(dict.fromkeys(messages.requests), key=repr)),
            tuple(
                sorted(
                    (
                        one
                        for one in dict.fromkeys(messages.answers)
                        if one.change.leader_epoch >= epoch
                    ),
                    key=repr,
                )
            ),
            tuple(
                sorted(
                    one
                    for one in dict.fromkeys(messages.commands)
                    if one.command.leader_epoch >= epoch
                )
            ),
        )
        return self.messages.number(left, left)

    # the exploration

    def first(self) -> State:
        """Term 1 has loaded a partition in full health."""
        state = lifecycle.first_state(REPLICAS, registered(1), 1)
        assert state is not None
        leader = Replica(LEADER)
        leader.obey(command_of(state))
        part = self.leaders.keep(leader)
        term = self._elected(1, state, 1)
        return (
            self._publish((state,)),
            1,
            self._office((term,)),
            1,
            self._send(Messages(), part),
            part,
            1,
            0,
            0,
            0,
        )

    def canonical(self, state: State) -> State:
        """Return a state as it is: no two states are equivalent."""
        return state

    def _elected(self, epoch: int, state: PartitionState, life: int) -> int:
        """A controller that has read everything and decides for the first time (V41)."""
        controller = Controller(replace(settings(), controller_epoch=epoch))
        controller.offer(TopicsRead(["t"], [TopicFound(topic(), {0: state})]))
        controller.offer(BrokersRead(registered(life)))
        return self._term(Term(epoch, controller, controller.decide(), None))

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What controllers, the store, the leader and its followers may do."""
        yield from self._controllers(state)
        yield from self._leader(state)
        yield from self._heard(state)

    def _controllers(self, state: State) -> Iterator[tuple[Step, State]]:
        history, epoch, office, life, messages, *rest = state
        published = self.histories.values[history]
        in_office = self.offices.values[office]
        if epoch < self.bounds.terms:
            new = self._elected(epoch + 1, published[-1], life)
            after = self._office((*in_office, new))
            yield ("elected", epoch + 1), (history, epoch + 1, after, life, messages, *rest)
        if life in _NEXT_LIFE:
            changed = _NEXT_LIFE[life]
            yield ("session", changed), (history, epoch, office, changed, messages, *rest)
        for index, number in enumerate(in_office):
            term = self.terms.values[number]
            others = [*in_office[:index], *in_office[index + 1 :]]
            if term.decision is not None:
                yield from self._writes(state, number, others)
                continue
            for change in self.messages.values[messages].requests:
                after = self._decide(number, change, asked(change))
                yield (
                    ("takes", term.epoch, change.isr),
                    (history, epoch, self._office((*others, after)), life, messages, *rest),
                )
            after = self._decide(number, life, BrokersRead(registered(life)))
            if after != number:
                yield (
                    ("reads", term.epoch),
                    (history, epoch, self._office((*others, after)), life, messages, *rest),
                )

    def _decide(self, number: int, what: object, event: Event) -> int:
        """The term with a decision about one event; the term itself where that says nothing."""
        known = self._decided.get((number, what))
        if known is None:
            term = self.terms.values[number]
            controller = term.controller.copy()
            controller.offer(event)
            decision = controller.decide()
            change = what if isinstance(what, IsrChange) else None
            nothing = not (decision.writes or decision.orders)
            if change is None and nothing:
                known = number
            else:
                known = self._term(Term(term.epoch, controller, decision, change))
            self._decided[number, what] = known
        return known

    def _writes(self, state: State, number: int, others: list[int]) -> Iterator[tuple[Step, State]]:
        """A decision becomes durable, or does not; what follows from it is sent."""
        history, epoch, _, life, messages, part, heard, end, committed, deposed = state
        term = self.terms.values[number]
        decision = term.decision
        assert decision is not None
        if any(
            isinstance(one, WritePartitionState)
            and one.state.partition_epoch > self.bounds.max_version
            for one in decision.writes
        ):
            return
        for mood in (ANSWERED, APPLIED_UNANSWERED, LOST) if decision.writes else (ANSWERED,):
            key = (number, history, epoch, messages, part, mood)
            known = self._written.get(key)
            if known is None:
                known = self._written[key] = self._write(*key)
            published, after, told, was_deposed = known
            terms = others if after == GONE else [*others, after]
            yield (
                ("writes", term.epoch, mood, after == GONE),
                (
                    published, epoch, self._office(terms), life, told, part, heard, end, committed,
                    deposed or was_deposed,
                ),
            )  # fmt: skip

    def _write(
        self, number: int, history: int, epoch: int, messages: int, part: int, mood: str
    ) -> tuple[int, int, int, bool]:
        term = self.terms.values[number]
        assert term.decision is not None
        published = self.histories.values[history]
        store = ModelStore(epoch, published[-1], mood)
        # A term knows the version that it made the controller epoch's node have.
        writer = StoreWriter(store, None, _Silent(), term.epoch)  # type: ignore[arg-type]  # a fake stands in
        try:
            outcomes = finished(writer.write(term.decision.writes))
        except DeposedError:
            outcomes = None
        now = store.state()
        if now.partition_epoch > published[-1].partition_epoch:
            published = (*published, now)
        was_deposed = len(published) > len(self.histories.values[history]) and term.epoch < epoch
        sent = self.messages.values[messages]
        if outcomes is None:
            return self._publish(published), GONE, messages, was_deposed
        controller = term.controller.copy()
        effects = controller.applied(term.decision, outcomes)
        sent = told_by(term, effects, sent)
        # A conflict is decided again on what was found; that is a decision of its own.
        decision = controller.decide() if controller.has_work else None
        after = self._term(Term(term.epoch, controller, decision, None))
        return self._publish(published), after, self._send(sent, part), was_deposed

    # the leader

    def _led(self, state: State, part: int, end: int | None = None) -> State:
        history, epoch, office, life, messages, _, heard, before, committed, deposed = state
        committed = max(committed, self.leaders.values[part].high_watermark)
        end = before if end is None else end
        return history, epoch, office, life, messages, part, heard, end, committed, deposed

    def _leader(self, state: State) -> Iterator[tuple[Step, State]]:
        _, _, _, life, messages, part, _, end, _, _ = state
        leader = self.leaders.values[part]
        role = leader.leading
        assert role is not None
        size = len(leader.log)
        if size < self.bounds.records:
            after = self.leaders.apply(part, _write, size + 1)
            yield ("write",), self._led(state, after)
        if life > 0:
            after = self.leaders.apply(part, fetch_from, SLOW, end, life)
            if after != part or end < size:
                yield ("fetch", end), self._led(state, after, min(end + 1, size))
        follower = role.followers[SLOW]
        is_behind = follower.log_end_offset != role.log_end_offset
        if is_behind and follower.in_target_isr and not role.isr.in_flight:
            after = self.leaders.apply(part, Replica.drop, SLOW)
            yield ("drop",), self._led(state, after)
        change = role.isr.queued
        if change is not None:
            after = self.leaders.apply(part, send_due)
            sent = self.messages.values[messages]
            told = self._send(sent._replace(requests=(*sent.requests, change)), after)
            moved = list(self._led(state, after))
            moved[4] = told
            yield ("send", change.isr), tuple(moved)

    def _heard(self, state: State) -> Iterator[tuple[Step, State]]:
        """The leader hears an answer, or a command."""
        _, _, _, _, messages, part, heard, _, _, _ = state
        sent = self.messages.values[messages]
        for said in sent.answers:
            after = self.leaders.apply(part, _learn, said)
            if after != part:
                yield ("answer", said.change.isr, said.error), self._after(state, after, heard)
        for told in sent.commands:
            error = commands.request_error(
                known_controller_epoch=heard,
                controller_epoch=told.controller_epoch,
                own_broker_epoch=1,
                is_registered=True,
                broker_epoch=1,
            )
            if error:
                continue
            after = self.leaders.apply(part, Replica.obey, told.command)
            if after != part or told.controller_epoch > heard:
                yield ("command", told), self._after(state, after, told.controller_epoch)

    def _after(self, state: State, part: int, heard: int) -> State:
        moved = list(self._led(state, part))
        moved[4] = self._send(self.messages.values[state[4]], part)
        moved[6] = heard
        return tuple(moved)

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants that do not hold."""
        history, epoch, _, _, messages, part, _, end, committed, deposed = state
        published = self.histories.values[history]
        now = published[-1]
        leader = self.leaders.values[part]
        role = leader.leading
        assert role is not None
        found = []
        if deposed:
            found.append("DeposedWritesNothing")
        if now.controller_epoch > epoch or role.log_end_offset != len(leader.log):
            found.append("TypeOk")
        if now.leader not in now.isr or not set(now.isr) <= set(REPLICAS):
            found.append("LeaderInIsr")
        if SLOW in now.isr and end < max(committed, role.high_watermark):
            found.append("StrongIsr")
        if any(
            before.partition_epoch + 1 != after.partition_epoch
            or (before.leader, before.leader_epoch) > (after.leader, after.leader_epoch)
            for before, after in pairwise(published)
        ):
            found.append("OneChangePerEpoch")
        states = {one.partition_epoch: one for one in published}
        sent = self.messages.values[messages]
        if not all(_is_published(one.command, states) for one in sent.commands):
            found.append("OnlyPublishedIsTold")
        if not all(_is_published(_claim(one), states) for one in sent.answers if not one.error):
            found.append("OnlyPublishedIsTold")
        return tuple(dict.fromkeys(found))

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        match step:
            case ("elected", epoch):
                return f"a controller is elected, epoch {epoch}; it loads and decides"
            case ("session", life):
                return "the session of 3 is over" if life < 0 else "3 registers anew"
            case ("takes", epoch, members):
                return f"controller {epoch} decides about ISR {list(members)}"
            case ("reads", epoch):
                return f"controller {epoch} reads the registrations and decides"
            case ("writes", epoch, mood, deposed):
                ending = "it is deposed" if deposed else "and tells"
                return f"controller {epoch} writes ({mood}), {ending}"
            case ("write",):
                return "client -> 1: a record; 2 fetches it"
            case ("fetch", end):
                return f"3 -> 1: fetch from {end}, and its answer"
            case ("drop",):
                return "1: 3 is too slow for the ISR"
            case ("send", members):
                return f"1 -> controller: ISR {list(members)}?"
            case ("answer", members, error):
                return f"controller -> 1: answer about ISR {list(members)}: {ErrorCode(error).name}"
        told: Told = step[1]
        return (
            f"controller {told.controller_epoch} -> 1: command {told.command.leader_epoch}."
            f"{told.command.partition_epoch}, ISR {list(told.command.isr)}"
        )

    def describe(self, state: State) -> str:
        """Published state, who is in office, the leader, the log end of 3."""
        history, epoch, office, life, _, part, _, end, committed, _ = state
        now = self.histories.values[history][-1]
        terms = [self.terms.values[one] for one in self.offices.values[office]]
        in_office = ", ".join(f"{one.epoch}{' writing' if one.decision else ''}" for one in terms)
        return (
            f"controller epoch {epoch}, in office: {in_office or 'nobody'}; published "
            f"{now.leader_epoch}.{now.partition_epoch} ISR {list(now.isr)} by "
            f"{now.controller_epoch}; {self.leaders.values[part]}; 3 in life {life} ends at {end}; "
            f"{committed} committed"
        )


def _stat(version: int) -> Stat:
    return Stat(czxid=0, mzxid=0, version=version, ephemeral_owner=0)


def finished(story: Coroutine[Any, Any, list[Outcome]]) -> list[Outcome]:
    """What a coroutine returns that waits for nothing."""
    try:
        story.send(None)
    except StopIteration as done:
        outcomes: list[Outcome] = done.value
        return outcomes
    raise AssertionError("the store made somebody wait")


def registered(life: int) -> dict[int, BrokerInfo]:
    """The registrations: 3 in that life, negative while it has none."""
    infos = {number: BrokerInfo(number, 1, ()) for number in REPLICAS}
    if life < 0:
        del infos[SLOW]
    else:
        infos[SLOW] = BrokerInfo(SLOW, life, (), previous_broker_epoch=NO_BROKER_EPOCH)
    return infos


def asked(change: IsrChange) -> AlterPartitionAsked:
    """The leader's request."""
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
    request = AlterPartitionRequest(LEADER, 1, [RequestTopicData(topic_id("t"), partitions=[data])])
    return AlterPartitionAsked(1, VERSION, request)


def told_by(term: Term, effects: Effects, sent: Messages) -> Messages:
    """Return the messages with a controller's commands to the leader."""
    answers, told = list(sent.answers), list(sent.commands)
    for _, message in effects.answers:
        assert isinstance(message, AlterPartitionResponse) and term.asked is not None
        answers.extend(
            Said(
                term.asked,
                int(data.error_code),
                data.leader_epoch,
                tuple(data.isr),
                data.partition_epoch,
            )
            for each in message.topics
            for data in each.partitions
        )
    role = effects.commands[LEADER].roles.get(TP) if LEADER in effects.commands else None
    if role is not None:
        state = role.state
        command = Command(state.leader, state.leader_epoch, tuple(state.isr), state.partition_epoch)
        told.append(Told(term.epoch, command))
    return Messages(sent.requests, tuple(answers), tuple(told))


def _is_published(command: Command, states: dict[int, PartitionState]) -> bool:
    state = states.get(command.partition_epoch)
    return state is not None and command_of(state) == command


def _claim(said: Said) -> Command:
    return Command(LEADER, said.leader_epoch, said.isr, said.partition_epoch)


def _write(leader: Replica, value: int) -> None:
    leader.write(value)
    fetch_from(leader, 2, len(leader.log), 1)


def _learn(leader: Replica, said: Said) -> None:
    role = leader.leading
    assert role is not None
    if said.error:
        role.change_refused(said.change, ErrorCode(said.error), 0)
        return
    role.change_accepted(said.change, said.isr, said.leader_epoch, said.partition_epoch, 0)
    leader.known = max(leader.known, (role.leader_epoch, role.isr.partition_epoch))
