"""Model 2, the ISR: one leader, its followers, a controller, and every message between them.

Real: the leader's decisions (pending changes, maximal ISR, high watermark, who joins and leaves),
the controller's judgement of AlterPartition and its own elections. Requests, answers and commands
stay around: they come late, twice, in any order or never. Leadership stays with replica 1, so a
follower's log is the beginning of the leader's, and its end says all; the controller takes members
out of the ISR by itself, which begins a new leader epoch.

With `superseded` changes, a request may also stay without an answer, as far as its leader knows.
Then the leader asks again, or supersedes the change by a newer one. The controller may refuse a
member, whose session it believes to be over.

Bounds: records written, partition epochs, changes that are superseded at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tests.support.models.explorer import (
    RENAMINGS,
    REPLICAS,
    Renamed,
    State,
    Step,
    Table,
)
from tests.support.models.replicas import (
    Command,
    Fetch,
    Replica,
    Replicas,
    command_of,
    everybody,
    in_order,
    renamed_change,
    renamed_members,
    renamed_state,
)

from tidelog.controller import lifecycle
from tidelog.controller.elections import election as elections
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.partitions import isr as judging
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerInfo, PartitionState
from tidelog.replication import isr as isr_rules
from tidelog.replication.follower import FetchPosition
from tidelog.replication.isr import Awaits, IsrChange

LEADER = 1
#: What was committed, once it was with too few confirmed members.
STARVED = -1
FOLLOWERS = REPLICAS[1:]
BROKERS = {number: BrokerInfo(number, 1, ()) for number in REPLICAS}
VERSION = 3
#: The leader keeps its number.
_SWAP = next(i for i, names in enumerate(RENAMINGS) if i and names[LEADER] == LEADER)


class Bounds(NamedTuple):
    """How much happens."""

    #: The highest offset.
    max_offset: int = 2
    #: The highest partition epoch; the first is 0.
    max_version: int = 3
    #: min.insync.replicas
    minimum: int = 1
    #: Changes of unknown outcome that newer ones may supersede at a time; 0: no request is lost.
    superseded: int = 0
    #: The ISR at the beginning.
    first_isr: tuple[int, ...] = REPLICAS
    #: Whether the controller takes members out of the ISR by itself.
    loses: bool = True
    #: Messages of earlier leader epochs stay around, although every receiver must ignore them.
    keeps_void: bool = False

    def __str__(self) -> str:
        void = ", void messages kept" if self.keeps_void else ""
        lost = f", {self.superseded} superseded" if self.superseded else ""
        first = "" if self.first_isr == REPLICAS else f", first ISR {list(self.first_isr)}"
        alone = "" if self.loses else ", no losses"
        bounds = f"{self.max_offset}/{self.max_version}, min ISR {self.minimum}"
        return f"{bounds}{first}{lost}{alone}{void}"


DEFAULT = Bounds()


def superseding(max_version: int = 1, minimum: int = 1) -> Bounds:
    """A leader alone in the ISR lets one follower join, and then the other instead."""
    return Bounds(1, max_version, minimum, superseded=1, first_isr=(LEADER,), loses=False)


class Outcome(NamedTuple):
    """The controller's answer to a change."""

    change: IsrChange
    error: ErrorCode
    state: PartitionState | None


class Messages(NamedTuple):
    """All that was ever sent and can still matter, in a fixed order."""

    requests: tuple[IsrChange, ...] = ()
    answers: tuple[Outcome, ...] = ()
    commands: tuple[Command, ...] = ()


class IsrModel:
    """State: published, messages, the leader, log ends of both followers, what was committed.

    What was committed is an offset; STARVED once the high watermark has moved while the confirmed
    ISR was below the minimum.
    """

    def __init__(self, bounds: Bounds = DEFAULT) -> None:
        self.bounds = bounds
        self.name = f"ISR {bounds}"
        self.published: Table[PartitionState] = Table()
        self.messages: Table[Messages] = Table()
        self.leaders = Replicas(one_life=True)
        self._renamed_published = Renamed(
            lambda part, names: self._publish(renamed_state(self.published.values[part], names))
        )
        self._renamed_messages = Renamed(self._rename_messages)
        self._renamed_leaders = Renamed(
            lambda part, names: self.leaders.keep(self.leaders.values[part].renamed(names))
        )
        self._decided: dict[tuple[int, ...], list[tuple[Step, int, int]]] = {}
        self._kept: dict[tuple[int, ...], int] = {}

    # parts

    def _publish(self, state: PartitionState) -> int:
        state = replace(in_order(state), mzxid=0)
        return self.published.number(state, state)

    def _send(
        self,
        requests: Iterable[IsrChange],
        answers: Iterable[Outcome],
        commands: Iterable[Command],
    ) -> int:
        messages = Messages(
            tuple(sorted(dict.fromkeys(requests), key=_order)),
            tuple(sorted(dict.fromkeys(answers), key=lambda one: (_order(one.change), repr(one)))),
            tuple(sorted(dict.fromkeys(commands))),
        )
        return self.messages.number(messages, messages)

    def _rename_messages(self, part: int, names: dict[int, int]) -> int:
        messages = self.messages.values[part]
        return self._send(
            (renamed_change(one, names) for one in messages.requests),
            (
                Outcome(
                    renamed_change(one.change, names),
                    one.error,
                    None if one.state is None else renamed_state(one.state, names),
                )
                for one in messages.answers
            ),
            (one._replace(isr=renamed_members(one.isr, names)) for one in messages.commands),
        )

    # the exploration

    def first(self) -> State:
        """Epoch 0, all are in sync, the leader knows."""
        state = lifecycle.first_state(REPLICAS, BROKERS, 1)
        assert state is not None
        isr = self.bounds.first_isr
        state = replace(state, isr=isr, isr_epochs=(1,) * len(isr))
        leader = Replica(LEADER)
        leader.obey(command_of(state), minimum=self.bounds.minimum)
        return self._publish(state), self._send((), (), ()), self.leaders.keep(leader), 0, 0, 0

    def canonical(self, state: State) -> State:
        """The lesser of the two ways to number the followers."""
        published, messages, leader, one, other, committed = state
        if one < other:
            return state
        swapped = (
            self._renamed_published.under(_SWAP, published),
            self._renamed_messages.under(_SWAP, messages),
            self._renamed_leaders.under(_SWAP, leader),
            other,
            one,
            committed,
        )
        return min(state, swapped) if one == other else swapped

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What the leader, its followers and the controller may do."""
        yield from self._written_and_fetched(state)
        yield from self._proposed(state)
        yield from self._controlled(state)
        yield from self._heard(state)

    def _led(self, state: State, leader: int, *ends: int) -> State:
        """The state with another leader; what is sure is noted."""
        published, messages, before, one, other, committed = state
        if ends:
            one, other = ends
        replica = self.leaders.values[leader]
        moved = replica.high_watermark > self.leaders.values[before].high_watermark
        role = replica.leading
        assert role is not None
        if moved and len(role.isr.committed) < min(self.bounds.minimum, len(REPLICAS)):
            committed = STARVED
        if committed != STARVED:
            committed = max(committed, replica.high_watermark)
        return published, messages, leader, one, other, committed

    def _written_and_fetched(self, state: State) -> Iterator[tuple[Step, State]]:
        _, _, part, *ends, _ = state
        size = len(self.leaders.values[part].log)
        if size < self.bounds.max_offset:
            after = self.leaders.apply(part, Replica.write, size + 1)
            yield ("write",), self._led(state, after)
        for index, number in enumerate(FOLLOWERS):
            end = ends[index]
            after = self.leaders.apply(part, fetch_from, number, end, 1)
            moved = ends.copy()
            moved[index] = min(end + 1, size)
            if after != part or moved != ends:
                yield ("fetch", number, end), self._led(state, after, *moved)

    def _proposed(self, state: State) -> Iterator[tuple[Step, State]]:
        """Members are called slow, changes leave for the controller."""
        published, messages, part, one, other, committed = state
        role = self.leaders.values[part].leading
        assert role is not None
        if isr_rules.may_propose(role.isr):
            for follower in role.followers.values():
                member = follower.replica_id
                if follower.in_target_isr and follower.log_end_offset != role.log_end_offset:
                    after = self.leaders.apply(part, Replica.drop, member)
                    yield ("drop", member), self._led(state, after)
        change = role.isr.queued or isr_rules.repetition(role.isr)
        if change is not None:
            after = self.leaders.apply(part, send_due)
            sent = self.messages.values[messages]
            told = self._send((*sent.requests, change), sent.answers, sent.commands)
            yield ("send", change.isr), (published, told, after, one, other, committed)
        if role.isr.awaits is Awaits.RESPONSE and len(role.isr.in_flight) <= self.bounds.superseded:
            after = self.leaders.apply(part, give_up)
            yield ("give up", role.isr.in_flight[-1].isr), self._led(state, after)

    def _controlled(self, state: State) -> Iterator[tuple[Step, State]]:
        """The controller takes a request, or a member out of the ISR."""
        published, messages, part, *rest = state
        role = self.leaders.values[part].leading
        assert role is not None
        known = self._decided.get((published, messages, role.leader_epoch))
        if known is None:
            known = self._decided[published, messages, role.leader_epoch] = list(
                self._decisions(published, messages, part)
            )
        for step, after, told in known:
            yield step, (after, told, part, *rest)

    def _decisions(
        self, published: int, messages: int, part: int
    ) -> Iterator[tuple[Step, int, int]]:
        now, sent = self.published.values[published], self.messages.values[messages]
        for change in sent.requests:
            for brokers in self._views(change, sent):
                verdict = judge(change, now, brokers)
                if verdict.is_new and now.partition_epoch >= self.bounds.max_version:
                    continue
                after = now if verdict.state is None else verdict.state
                commands = sent.commands
                is_refused = verdict.error is not ErrorCode.NONE
                if verdict.error is ErrorCode.INVALID_UPDATE_VERSION or (
                    is_refused and verdict.is_new
                ):
                    commands = (*commands, command_of(after))
                outcome = Outcome(change, verdict.error, None if is_refused else verdict.state)
                number = self._publish(after)
                answers = (*sent.answers, outcome)
                told = self._forget(number, sent.requests, answers, commands, part)
                if (number, told) != (published, messages):
                    step = ("judge", change.isr, change.partition_epoch, verdict.error)
                    yield step, number, told
        if self.bounds.loses and now.partition_epoch < self.bounds.max_version:
            for lost in FOLLOWERS:
                others = {number: info for number, info in BROKERS.items() if number != lost}
                election = elections.elect(now, Circumstances(REPLICAS, others, 1))
                if election is not None:
                    number = self._publish(election.state)
                    commands = (*sent.commands, command_of(election.state))
                    told = self._forget(number, sent.requests, sent.answers, commands, part)
                    yield ("lose", lost), number, told

    def _views(self, change: IsrChange, sent: Messages) -> Iterator[Mapping[int, BrokerInfo]]:
        """What a controller may know of the brokers when it judges a change."""
        yield BROKERS
        has_refused = any(one.error is ErrorCode.INELIGIBLE_REPLICA for one in sent.answers)
        if self.bounds.superseded and not has_refused:
            for lost in change.isr:
                if lost != LEADER:
                    yield {number: info for number, info in BROKERS.items() if number != lost}

    def _heard(self, state: State) -> Iterator[tuple[Step, State]]:
        """The leader hears an answer or a command."""
        published, messages, part, one, other, committed = state
        sent = self.messages.values[messages]
        for answer in sent.answers:
            after = self.leaders.apply(part, _learn, answer)
            if after != part:
                told = self._left(published, messages, after)
                yield (
                    ("answer", answer.change.isr, answer.error),
                    self._led((published, told, part, one, other, committed), after),
                )
        for command in sent.commands:
            minimum = self.bounds.minimum
            after = self.leaders.apply(part, Replica.obey, command, everybody, minimum)
            if after != part:
                told = self._left(published, messages, after)
                yield (
                    ("command", command),
                    self._led((published, told, part, one, other, committed), after),
                )

    def _left(self, published: int, messages: int, part: int) -> int:
        """What is left of the messages."""
        role = self.leaders.values[part].leading
        assert role is not None
        known = self._kept.get((published, messages, role.leader_epoch))
        if known is None:
            known = self._kept[published, messages, role.leader_epoch] = self._forget(
                published, *self.messages.values[messages], part
            )
        return known

    def _forget(
        self,
        published: int,
        requests: Iterable[IsrChange],
        answers: Iterable[Outcome],
        commands: Iterable[Command],
        part: int,
    ) -> int:
        """Send these, without what an earlier leader epoch makes void for whoever gets it."""
        if self.bounds.keeps_void:
            return self._send(requests, answers, commands)
        asked = self.published.values[published].leader_epoch
        role = self.leaders.values[part].leading
        assert role is not None
        return self._send(
            (one for one in requests if one.leader_epoch >= asked),
            (one for one in answers if one.change.leader_epoch >= role.leader_epoch),
            (one for one in commands if one.leader_epoch >= role.leader_epoch),
        )

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants that do not hold."""
        published, _, part, *ends, committed = state
        now = self.published.values[published]
        leader = self.leaders.values[part]
        role = leader.leading
        assert role is not None
        held = dict(zip(REPLICAS, (len(leader.log), *ends), strict=True))
        found = []
        if role.log_end_offset != len(leader.log) or not 0 <= role.high_watermark <= len(
            leader.log
        ):
            found.append("TypeOk")
        if any(held[member] < role.high_watermark for member in now.isr):
            found.append("ValidHighWatermark")
        if committed == STARVED:
            found.append("MinimumConfirmed")
        if any(held[member] < committed for member in now.isr):
            found.append("StrongIsr")
        if role.high_watermark < committed:
            found.append("HighWatermarkRises")
        if now.leader not in now.isr or not set(now.isr) <= set(REPLICAS):
            found.append("LeaderInIsr")
        if role.isr.partition_epoch > now.partition_epoch or (
            role.isr.partition_epoch == now.partition_epoch
            and sorted(role.isr.committed) != sorted(now.isr)
        ):
            # A partition epoch is one state: at most one change was accepted for it.
            found.append("OneChangePerEpoch")
        return tuple(found)

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        match step:
            case ("write",):
                return "client -> 1: a record"
            case ("fetch", number, end):
                return f"{number} -> 1: fetch from {end}, and its answer"
            case ("drop", member):
                return f"1: {member} is too slow for the ISR"
            case ("send", members):
                return f"1 -> controller: ISR {list(members)}?"
            case ("give up", members):
                return f"1: no answer about ISR {list(members)}"
            case ("judge", members, epoch, error):
                return f"controller: ISR {list(members)} upon partition epoch {epoch}: {error.name}"
            case ("lose", member):
                return f"controller: the session of {member} is over"
            case ("answer", members, error):
                return f"controller -> 1: answer about ISR {list(members)}: {error.name}"
        command: Command = step[1]
        return (
            f"controller -> 1: command {command.leader_epoch}.{command.partition_epoch}, "
            f"ISR {list(command.isr)}"
        )

    def describe(self, state: State) -> str:
        """Published state, the leader, log ends of the followers."""
        published, _, part, one, other, committed = state
        now = self.published.values[published]
        return (
            f"published {now.leader_epoch}.{now.partition_epoch} ISR {list(now.isr)}; "
            f"{self.leaders.values[part]}; ends of 2 and 3: {one}, {other}; "
            f"{committed} committed"
        )


def judge(
    change: IsrChange, state: PartitionState, brokers: Mapping[int, BrokerInfo]
) -> judging.ProposalVerdict:
    """What the controller makes of a change that broker 1 asks for."""
    wanted = judging.Proposal(
        LEADER,
        change.leader_epoch,
        change.partition_epoch,
        change.isr,
        change.isr_epochs,
        change.leader_recovery_state,
    )
    return judging.judge(wanted, state, REPLICAS, brokers, 1, VERSION)


def _order(change: IsrChange) -> tuple[object, ...]:
    return change.leader_epoch, change.partition_epoch, change.isr, change.isr_epochs


def fetch_from(leader: Replica, number: int, end: int, life: int) -> None:
    """A follower whose log is the beginning of the leader's fetches from its end."""
    role = leader.leading
    assert role is not None
    epoch = leader.log[end - 1].leader_epoch if end else -1
    leader.serve(Fetch(number, life, LEADER, FetchPosition(role.leader_epoch, end, epoch)))


def send_due(leader: Replica) -> None:
    """The change that waits, or the one to be asked for again, leaves for the controller."""
    role = leader.leading
    assert role is not None
    change = role.isr.queued or isr_rules.repetition(role.isr)
    assert change is not None
    role.change_sent(change)


def give_up(leader: Replica) -> None:
    """The request for the newest change has no answer in time, or its connection is gone."""
    role = leader.leading
    assert role is not None
    role.change_unanswered(role.isr.in_flight[-1], 0)


def _learn(leader: Replica, answer: Outcome) -> None:
    """As the broker takes an answer: the change may be anyone's that it once asked for."""
    role = leader.leading
    assert role is not None
    if answer.state is None:
        role.change_refused(answer.change, answer.error, 0)
        return
    state = answer.state
    role.change_accepted(answer.change, state.isr, state.leader_epoch, state.partition_epoch, 0)
    leader.known = max(leader.known, (role.leader_epoch, role.isr.partition_epoch))
