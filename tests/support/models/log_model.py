"""Model 1, log and truncation: three replicas through elections, truncations and zombie leaders.

Real: the leader's and the follower's decisions, truncation, which commands are obeyed, elections,
the judgement of AlterPartition. Commands stay around: they come late, twice, in any order or never.
A fetch with its answer is one step; with `split` it is two messages that stay around likewise, of
each follower the newest two of either kind.
A change of the ISR is asked for and decided in one step here; what becomes of it in between is the
matter of `isr_model`. A broker whose session is lost leaves the ISR and goes on as it was: its
session is over before it knows.

Bounds: records written, leader epochs. Partition epochs do not count changes here but follow the
leader epoch: every change of the ISR within one is known to its leader at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations
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
    Answer,
    Command,
    Fetch,
    Log,
    Replica,
    Replicas,
    command_of,
    in_order,
    renamed_members,
    renamed_state,
)

from tidelog.controller import lifecycle
from tidelog.controller.elections import election as elections
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.partitions import isr as judging
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, BrokerInfo, PartitionState
from tidelog.replication import isr as isr_rules

BROKERS = {number: BrokerInfo(number, 1, ()) for number in REPLICAS}
VERSION = 3
_ORDERS = tuple(permutations(REPLICAS))


class Bounds(NamedTuple):
    """How much happens."""

    #: Records in a log, at most.
    log_size: int = 2
    #: Records that clients write, in all.
    records: int = 2
    #: The highest leader epoch; the first is 0.
    max_epoch: int = 2
    #: Fetches and answers are messages of their own.
    split: bool = False

    def __str__(self) -> str:
        parts = f"{self.log_size}/{self.records}/{self.max_epoch}"
        return f"{parts}, fetches split" if self.split else parts


DEFAULT = Bounds()
Message = Fetch | Answer


class LogModel:
    """State: published, commands, messages, records written, committed, and the three replicas."""

    def __init__(self, bounds: Bounds = DEFAULT, *, one_life: bool = True) -> None:
        self.bounds = bounds
        self.name = f"log and truncation {bounds}"
        self.published: Table[PartitionState] = Table()
        self.commands: Table[tuple[Command, ...]] = Table()
        self.messages: Table[tuple[Message, ...]] = Table()
        self.logs: Table[Log] = Table()
        self.replicas = Replicas(one_life=one_life)
        self._renamed_published = Renamed(
            lambda part, names: self._publish(renamed_state(self.published.values[part], names))
        )
        #: Where replicas begin in a state, and what before them speaks of replicas by number.
        self._first_replica = 5
        self._renamed_parts: tuple[tuple[int, Renamed], ...] = (
            (0, self._renamed_published),
            (1, Renamed(self._rename_commands)),
            (2, Renamed(self._rename_messages)),
        )
        self._renamed_replicas = Renamed(
            lambda part, names: self.replicas.keep(self.replicas.values[part].renamed(names))
        )
        self._elected: dict[int, list[tuple[Step, int]]] = {}
        self._obeyed: dict[tuple[int, int], int] = {}
        self._fetched: dict[tuple[int, int], tuple[int, int]] = {}
        self._served: dict[tuple[int, Fetch], tuple[int, Answer | None]] = {}
        self._more: dict[tuple[int, Message], int] = {}
        self._altered: dict[tuple[int, int], tuple[int, int]] = {}
        self._pruned: dict[tuple[int, int, int, int], int] = {}
        #: Invariants that do not hold, by what they look at of a state.
        self._wrong: dict[tuple[int, ...], tuple[str, ...]] = {}

    # parts

    def _publish(self, state: PartitionState) -> int:
        state = replace(in_order(state), partition_epoch=state.leader_epoch, mzxid=0)
        return self.published.number(state, state)

    def _rename_commands(self, part: int, names: dict[int, int]) -> int:
        renamed = tuple(
            one._replace(
                leader=names.get(one.leader, one.leader), isr=renamed_members(one.isr, names)
            )
            for one in self.commands.values[part]
        )
        return self.commands.number(renamed, renamed)

    def _rename_messages(self, part: int, names: dict[int, int]) -> int:
        return self._send(
            one._replace(replica=names[one.replica], leader=names[one.leader])
            if isinstance(one, Fetch)
            else one._replace(replica=names[one.replica])
            for one in self.messages.values[part]
        )

    def _send(self, messages: Iterable[Message]) -> int:
        unique = tuple(sorted(dict.fromkeys(messages), key=repr))
        return self.messages.number(unique, unique)

    # the exploration

    def first(self) -> State:
        """Replica 1 leads in epoch 0, all are in sync, everybody knows."""
        state = lifecycle.first_state(REPLICAS, BROKERS, 1)
        assert state is not None
        replicas = [Replica(number) for number in REPLICAS]
        for replica in replicas:
            replica.obey(command_of(state))
        return (
            self._publish(state),
            self.commands.number((), ()),
            self._send(()),
            0,
            self.logs.number((), ()),
            *(self.replicas.keep(replica) for replica in replicas),
        )

    def canonical(self, state: State) -> State:
        """The least of its renamings, by the replicas first."""
        replicas = state[self._first_replica :]
        least = state
        for index in range(1, len(RENAMINGS)):
            moved = [0, 0, 0]
            for number, part in zip(RENAMINGS[index].values(), replicas, strict=True):
                moved[number - 1] = self._renamed_replicas.under(index, part)
            if moved[0] > least[self._first_replica]:
                continue
            others = list(state[: self._first_replica])
            for position, renamed in self._renamed_parts:
                others[position] = renamed.under(index, others[position])
            other = (*others, *moved)
            if (moved, others) < (
                list(least[self._first_replica :]),
                list(least[: self._first_replica]),
            ):
                least = other
        return least

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """Elections, commands, records, fetches, changes of the ISR."""
        published, told, messages, written, committed, *replicas = state
        for step, after in self._elections(published):
            sent = (*self.commands.values[told], command_of(self.published.values[after]))
            yield step, self._state(after, sent, messages, written, committed, replicas)
        for index, part in enumerate(replicas):
            for command in self.commands.values[told]:
                after = self.replicas.apply(part, Replica.obey, command)
                if after != part:
                    left = self.commands.values[told]
                    now = self._with(replicas, index, after)
                    yield (
                        ("obey", index + 1, command),
                        self._state(published, left, messages, written, committed, now),
                    )
            leading = self.replicas.values[part].leading
            if leading is not None:
                yield from self._led(state, index)
        if self.bounds.split:
            yield from self._exchanges(state)
        else:
            yield from self._fetches(state)

    def _with(self, replicas: list[int], index: int, part: int) -> list[int]:
        changed = replicas.copy()
        changed[index] = part
        return changed

    def _state(
        self,
        published: int,
        told: tuple[Command, ...],
        messages: int,
        written: int,
        committed: int,
        replicas: list[int],
    ) -> State:
        for index, part in enumerate(replicas):
            role = self.replicas.values[part].leading
            while role is not None and role.isr.queued is not None:
                part, published = self._alter(part, published)
                role = self.replicas.values[part].leading
                replicas = self._with(replicas, index, part)
        # Commands that every broker would ignore make no difference.
        known = min(self.replicas.values[part].known for part in replicas)
        kept = tuple(one for one in told if (one.leader_epoch, one.partition_epoch) > known)
        for part in replicas:
            log = self.replicas.values[part]
            if log.leading is not None and log.high_watermark > len(self.logs.values[committed]):
                claimed = log.committed()
                committed = self.logs.number(claimed, claimed)
        return (
            published, self.commands.number(kept, kept), messages, written, committed, *replicas,
        )  # fmt: skip

    # the controller

    def _elections(self, published: int) -> list[tuple[Step, int]]:
        """Every state that the controller may publish next by itself."""
        known = self._elected.get(published)
        if known is None:
            known = self._elected[published] = []
            state = self.published.values[published]
            if state.leader_epoch < self.bounds.max_epoch:
                found = {self._publish(after): step for step, after in self._electable(state)}
                known.extend((step, after) for after, step in found.items())
        return known

    def _electable(self, state: PartitionState) -> Iterator[tuple[Step, PartitionState]]:
        for order in _ORDERS:
            if state.leader == NO_LEADER:
                back = elections.elect(state, Circumstances(order, BROKERS, 1))
                if back is not None:
                    yield ("return",), back.state
                continue
            if elections.prefers_another(state, order):
                preferred = elections.elect_preferred(state, Circumstances(order, BROKERS, 1))
                if preferred is not None:
                    yield ("prefer", order[0]), preferred.state
            for lost in REPLICAS:
                others = {number: info for number, info in BROKERS.items() if number != lost}
                election = elections.elect(state, Circumstances(order, others, 1))
                if election is not None:
                    yield ("lose", lost), election.state

    # leaders

    def _led(self, state: State, index: int) -> Iterator[tuple[Step, State]]:
        published, told, messages, written, committed, *replicas = state
        part, commands = replicas[index], self.commands.values[told]
        replica = self.replicas.values[part]
        role = replica.leading
        assert role is not None
        if written < self.bounds.records and len(replica.log) < self.bounds.log_size:
            value = written + 1
            after = self.replicas.apply(part, Replica.write, value)
            now = self._with(replicas, index, after)
            yield (
                ("write", index + 1, value),
                self._state(published, commands, messages, value, committed, now),
            )
        if not role.isr.in_flight:
            for follower in role.followers.values():
                member = follower.replica_id
                if follower.in_target_isr and follower.log_end_offset != role.log_end_offset:
                    after = self.replicas.apply(part, Replica.drop, member)
                    now = self._with(replicas, index, after)
                    yield (
                        ("drop", index + 1, member),
                        self._state(published, commands, messages, written, committed, now),
                    )

    def _alter(self, part: int, published: int) -> tuple[int, int]:
        """The queued change goes to the controller, is judged, and the leader hears of it."""
        known = self._altered.get((part, published))
        if known is None:
            known = self._altered[part, published] = self._judge(part, published)
        return known

    def _judge(self, part: int, published: int) -> tuple[int, int]:
        replica = self.replicas.values[part].copy()
        role = replica.leading
        assert role is not None and role.isr.queued is not None
        change = role.isr.queued
        role.change_sent(change)
        state = self.published.values[published]
        wanted = judging.Proposal(
            replica.number,
            change.leader_epoch,
            change.partition_epoch,
            change.isr,
            change.isr_epochs,
            change.leader_recovery_state,
        )
        verdict = judging.judge(wanted, state, REPLICAS, BROKERS, 1, VERSION)
        if verdict.state is None:
            role.change_refused(change, verdict.error, 0)
            return self.replicas.keep(replica), published
        after = verdict.state
        role.change_accepted(change, after.isr, after.leader_epoch, after.partition_epoch, 0)
        # Epochs of the partition stay what they were: see above.
        role.isr = replace(role.isr, partition_epoch=change.partition_epoch)
        if role.isr.queued is not None:
            queued = replace(role.isr.queued, partition_epoch=change.partition_epoch)
            role.isr = replace(role.isr, queued=queued)
        return self.replicas.keep(replica), self._publish(after)

    # followers

    def _fetches(self, state: State) -> Iterator[tuple[Step, State]]:
        published, told, messages, written, committed, *replicas = state
        for index, part in enumerate(replicas):
            fetch = self.replicas.values[part].fetch()
            if fetch is None or fetch.leader == index + 1:
                continue
            there = fetch.leader - 1
            served, followed = self._fetch(replicas[there], part)
            if (served, followed) != (replicas[there], part):
                now = self._with(self._with(replicas, there, served), index, followed)
                yield (
                    ("fetch", index + 1, fetch.leader),
                    self._state(
                        published, self.commands.values[told], messages, written, committed, now
                    ),
                )

    def _fetch(self, leading: int, following: int) -> tuple[int, int]:
        known = self._fetched.get((leading, following))
        if known is None:
            leader = self.replicas.values[leading].copy()
            follower = self.replicas.values[following].copy()
            fetch = follower.fetch()
            assert fetch is not None
            answer = leader.serve(fetch)
            if answer is not None:
                follower.follow(answer)
            known = self._fetched[leading, following] = (
                self.replicas.keep(leader),
                self.replicas.keep(follower),
            )
        return known

    def _exchanges(self, state: State) -> Iterator[tuple[Step, State]]:
        """Fetches are sent, served and answered, each as often as may be."""
        published, told, messages, written, committed, *replicas = state
        commands, sent = self.commands.values[told], self.messages.values[messages]
        for index, part in enumerate(replicas):
            fetch = self.replicas.values[part].fetch()
            if fetch is not None and fetch not in sent:
                after = self._with_message(messages, fetch)
                yield (
                    ("ask", index + 1, fetch.leader),
                    self._state(published, commands, after, written, committed, replicas),
                )
        for message in sent:
            index = (message.leader if isinstance(message, Fetch) else message.replica) - 1
            part, after = replicas[index], messages
            if isinstance(message, Fetch):
                served, answer = self._serve(part, message)
                if answer is not None:
                    after = self._with_message(messages, answer)
                step: Step = ("serve", index + 1, message)
            else:
                served = self.replicas.apply(part, Replica.follow, message)
                step = ("take", index + 1, message)
            if served != part or after != messages:
                now = self._with(replicas, index, served)
                yield step, self._state(published, commands, after, written, committed, now)

    def _serve(self, part: int, fetch: Fetch) -> tuple[int, Answer | None]:
        """The leader after a fetch, and its answer where that may change anything."""
        known = self._served.get((part, fetch))
        if known is None:
            replica = self.replicas.values[part].copy()
            answer = replica.serve(fetch)
            matters = answer is not None and answer.error in (
                ErrorCode.NONE,
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
            known = self.replicas.keep(replica), answer if matters else None
            self._served[part, fetch] = known
        return known

    def _with_message(self, messages: int, new: Message) -> int:
        known = self._more.get((messages, new))
        if known is None:
            sent = self.messages.values[messages]
            known = self._more[messages, new] = self._send((*self._fresh(sent, new), new))
        return known

    @staticmethod
    def _fresh(sent: tuple[Message, ...], new: Message) -> tuple[Message, ...]:
        """Of what a follower asked, and was answered, the last two stay around."""
        alike = [one for one in sent if type(one) is type(new) and one.replica == new.replica]
        if len(alike) < 2:
            return sent
        oldest = min(alike, key=lambda one: (one.position.leader_epoch, repr(one)))
        return tuple(one for one in sent if one is not oldest)

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants of rule A15 that do not hold."""
        published, _, _, _, committed, *replicas = state
        known = (published, committed, *replicas)
        names = self._wrong.get(known)
        if names is None:
            names = tuple(
                name
                for name, holds in (
                    ("TypeOk", self._type_ok),
                    ("WeakIsr", self._weak_isr),
                    ("StrongIsr", self._strong_isr),
                    ("LeaderInIsr", self._leader_in_isr),
                    ("OneLeader", self._one_leader),
                )
                if not holds(
                    self.published.values[published],
                    [self.replicas.values[part] for part in replicas],
                    self.logs.values[committed],
                )
            )
            self._wrong[known] = names
        return names

    @staticmethod
    def _type_ok(state: PartitionState, replicas: list[Replica], committed: Log) -> bool:
        """Epochs rise along each log and agree with its history, marks lie within it, and what a
        role believes of its log is so."""
        for replica in replicas:
            epochs = [record.leader_epoch for record in replica.log]
            role = replica.role
            if epochs != sorted(epochs) or replica.known[0] > state.leader_epoch:
                return False
            if any(replica.epochs.epoch_at(at) != epoch for at, epoch in enumerate(epochs)):
                return False
            if not 0 <= replica.high_watermark <= len(replica.log):
                return False
            if role is not None and role.log_end_offset != len(replica.log):
                return False
        return True

    @staticmethod
    def _weak_isr(state: PartitionState, replicas: list[Replica], committed: Log) -> bool:
        """Members of a leader's maximal ISR have what it calls committed."""
        for replica in replicas:
            role = replica.leading
            if role is None:
                continue
            mark = role.high_watermark
            members = {*role.isr.committed}.union(
                *(change.isr for change in isr_rules.changes(role.isr))
            )
            if any(replicas[one - 1].log[:mark] != replica.log[:mark] for one in members):
                return False
        return True

    @staticmethod
    def _strong_isr(state: PartitionState, replicas: list[Replica], committed: Log) -> bool:
        """Members of the published ISR have all that any leader ever called committed."""
        size = len(committed)
        return all(replicas[one - 1].log[:size] == committed for one in state.isr) and all(
            one.committed() == committed[: one.high_watermark]
            for one in replicas
            if one.leading is not None
        )

    @staticmethod
    def _leader_in_isr(state: PartitionState, replicas: list[Replica], committed: Log) -> bool:
        """A published leader is a member of the ISR, and that within the assignment."""
        return set(state.isr) <= set(REPLICAS) and (
            state.leader == NO_LEADER or state.leader in state.isr
        )

    @staticmethod
    def _one_leader(state: PartitionState, replicas: list[Replica], committed: Log) -> bool:
        """No two replicas lead in one epoch, and in the published one only the published leader."""
        epochs = [one.leading.leader_epoch for one in replicas if one.leading is not None]
        return len(epochs) == len(dict.fromkeys(epochs)) and all(
            one.number == state.leader
            for one in replicas
            if one.leading is not None and one.leading.leader_epoch == state.leader_epoch
        )

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        match step:
            case ("return",):
                return "controller: brokers are back, elects a leader"
            case ("prefer", number):
                return f"controller: makes {number} the leader"
            case ("lose", number):
                return f"controller: the session of {number} is over"
            case ("obey", number, command):
                return (
                    f"controller -> {number}: leader {command.leader} epoch "
                    f"{command.leader_epoch} ISR {list(command.isr)}"
                )
            case ("write", number, value):
                return f"client -> {number}: record {chr(96 + value)}"
            case ("drop", number, member):
                return f"{number}: {member} is too slow for the ISR"
            case ("fetch", number, leader):
                return f"{number} -> {leader}: fetch, and its answer"
            case ("ask", number, leader):
                return f"{number} -> {leader}: fetch, on its way"
        return f"{step[1]} gets {step[2]}"

    def describe(self, state: State) -> str:
        """Published state and the replicas."""
        published, _, _, _, committed, *replicas = state
        now = self.published.values[published]
        parts = "; ".join(str(self.replicas.values[part]) for part in replicas)
        sure = "".join(chr(96 + record.value) for record in self.logs.values[committed])
        return (
            f"published {now.leader} in {now.leader_epoch} ISR {list(now.isr)}; "
            f"committed [{sure}]; {parts}"
        )
