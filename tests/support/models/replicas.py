"""One broker's replica for models: the real leader and follower decisions over a tuple as log.

A log is a tuple of (leader epoch, value). Time stands still: a member of the ISR may be called slow
whenever the model likes, everybody else is behind since for ever, so that the high watermark waits
for nobody who does not count. That is every behaviour that times could bring about, and more.
The order in which a leader looks at a fetch is that of
`tidelog.broker.replicas.fetching.fetch_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tests.support.models.explorer import REPLICAS, Table

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import KafkaError
from tidelog.core.types import NO_LEADER, EpochEnd, PartitionState
from tidelog.replication import commands, leader, truncation, watermark
from tidelog.replication.effects import (
    AdvanceLogStart,
    Append,
    AskLogStart,
    BackOff,
    Effects,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from tidelog.replication.follower import FetchPosition, FollowerReplica
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica
from tidelog.replication.progress import NEVER_MS

NOW_MS = 0
MAX_LAG_MS = 10


class Record(NamedTuple):
    """A record: the epoch of the leader that wrote it, and what it holds."""

    leader_epoch: int
    value: int


Log = tuple[Record, ...]


class Command(NamedTuple):
    """LeaderAndIsr for the partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class Fetch(NamedTuple):
    """A follower's request."""

    replica: int
    broker_epoch: int
    leader: int
    position: FetchPosition


class Answer(NamedTuple):
    """What the leader says to a fetch."""

    replica: int
    position: FetchPosition
    error: int = 0
    diverging: EpochEnd | None = None
    records: Log = ()
    high_watermark: int = 0


def command_of(state: PartitionState) -> Command:
    """Return the command about a published state."""
    return Command(state.leader, state.leader_epoch, state.isr, state.partition_epoch)


def everybody(broker_id: int) -> bool:
    """All brokers are alive."""
    return True


class Replica:
    """A replica on one broker."""

    __slots__ = ("broker_epoch", "epochs", "known", "log", "number", "resting", "role")

    def __init__(self, number: int, broker_epoch: int = 1) -> None:
        self.number = number
        self.broker_epoch = broker_epoch
        self.log: Log = ()
        self.epochs = LeaderEpochs()
        self.role: LeaderReplica | FollowerReplica | None = None
        #: Leader epoch and partition epoch of the last command obeyed (V30).
        self.known = (-1, -1)
        #: High watermark while there is no role.
        self.resting = 0

    def copy(self) -> Replica:
        """An independent copy."""
        other = type(self).__new__(type(self))
        other.number, other.broker_epoch = self.number, self.broker_epoch
        other.log, other.known, other.resting = self.log, self.known, self.resting
        other.epochs = self.epochs.copy()
        other.role = None if self.role is None else self.role.copy()
        return other

    def key(self) -> tuple[object, ...]:
        """The whole state as a value."""
        role = self.role
        return (
            self.number,
            self.broker_epoch,
            self.log,
            tuple(self.epochs.entries()),
            None if role is None else (type(role) is LeaderReplica, role.key()),
            self.known,
            self.resting,
        )

    @property
    def leading(self) -> LeaderReplica | None:
        """The role of a leader, None for others."""
        return self.role if isinstance(self.role, LeaderReplica) else None

    @property
    def high_watermark(self) -> int:
        """The offset after the last record known as committed."""
        return self.resting if self.role is None else self.role.high_watermark

    def committed(self) -> Log:
        """What it believes to be committed."""
        return self.log[: self.high_watermark]

    # roles

    def obey(
        self, command: Command, is_alive: Callable[[int], bool] = everybody, minimum: int = 1
    ) -> bool:
        """Carry out a command; False where it is not for us any more (V30, V31, V32)."""
        if not commands.is_current(*self.known, command.leader_epoch, command.partition_epoch):
            return False
        self.known = (command.leader_epoch, command.partition_epoch)
        role = self.role
        if role is not None and role.leader_epoch == command.leader_epoch:
            if isinstance(role, LeaderReplica):
                role.commanded(command.isr, REPLICAS, command.partition_epoch, is_alive, NOW_MS)
            return True
        self.rest()
        if command.leader == self.number:
            self._lead(command, is_alive, minimum)
        else:
            self._follow(command)
        return True

    def rest(self) -> None:
        """End the role."""
        self.resting = watermark.on_follower(self.high_watermark, 0, len(self.log))
        self.role = None

    def _lead(self, command: Command, is_alive: Callable[[int], bool], minimum: int) -> None:
        end = len(self.log)
        if self.epochs.latest_epoch != command.leader_epoch:
            self.epochs.assign(command.leader_epoch, end)
        role = LeaderReplica(
            broker_id=self.number,
            broker_epoch=self.broker_epoch,
            leader_epoch=command.leader_epoch,
            isr=IsrState(command.isr, command.partition_epoch),
            replicas=REPLICAS,
            epoch_start_offset=end,
            log_end_offset=end,
            high_watermark=self.resting,
            min_insync_replicas=minimum,
            max_lag_ms=MAX_LAG_MS,
            is_eligible=is_alive,
            now_ms=NOW_MS,
        )
        self.role, self.resting = role, 0
        role.examine(NOW_MS)

    def _follow(self, command: Command) -> None:
        role = FollowerReplica(
            leader=command.leader,
            leader_epoch=command.leader_epoch,
            partition_epoch=command.partition_epoch,
            log_start_offset=0,
            log_end_offset=len(self.log),
            latest_epoch=self.epochs.latest_epoch,
            high_watermark=self.resting,
        )
        self.role, self.resting = role, 0
        self._run(role, role.begin(), ())

    # the leader

    def write(self, value: int) -> None:
        """A client's record."""
        role = self.leading
        assert role is not None
        _let_time_pass(role)
        self._append((Record(role.leader_epoch, value),))
        role.appended(len(self.log), NOW_MS)

    def drop(self, member: int) -> None:
        """A member of the ISR has not caught up for too long (V62)."""
        role = self.leading
        assert role is not None
        role.followers[member].last_caught_up_ms = NEVER_MS
        role.examine(NOW_MS)

    def serve(self, fetch: Fetch) -> Answer | None:
        """Answer a follower's fetch with at most one record; None where we do not lead."""
        role = self.leading
        if role is None:
            return None
        _let_time_pass(role)
        position = fetch.position
        error = leader.epoch_error(role.leader_epoch, position.leader_epoch)
        if error:
            return Answer(fetch.replica, position, error)
        try:
            role.follower(fetch.replica, fetch.broker_epoch, NOW_MS)
            diverging = self.diverging(position)
            if diverging is not None:
                return Answer(fetch.replica, position, 0, diverging)
            role.fetched(fetch.replica, fetch.broker_epoch, position.fetch_offset, 0, NOW_MS)
        except KafkaError as refusal:
            return Answer(fetch.replica, position, refusal.code)
        records = self.log[position.fetch_offset : position.fetch_offset + 1]
        return Answer(fetch.replica, position, 0, None, records, role.high_watermark)

    def diverging(self, position: FetchPosition) -> EpochEnd | None:
        """Where a follower's log parts from ours."""
        return truncation.diverging_epoch(
            self.epochs, len(self.log), position.last_fetched_epoch, position.fetch_offset
        )

    # the follower

    def fetch(self) -> Fetch | None:
        """What a follower asks, None where it asks nothing."""
        role = self.role
        if not isinstance(role, FollowerReplica) or role.is_busy or role.leader < 0:
            return None
        return Fetch(self.number, self.broker_epoch, role.leader, role.position)

    def follow(self, answer: Answer) -> None:
        """Take the leader's answer."""
        role = self.role
        if not isinstance(role, FollowerReplica):
            return
        effects = role.answered(
            answer.position,
            answer.error,
            answer.diverging,
            self.epochs,
            answer.high_watermark,
            0,
            bool(answer.records),
        )
        self._run(role, effects, answer.records)

    def _run(self, role: FollowerReplica, effects: Effects, records: Log) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._append(records)
                    role.appended(len(self.log), self.epochs.latest_epoch)
                case TruncateTo() | TruncateFullyAndStartAt():
                    self.cut(effect.offset)
                    role.truncated(0, len(self.log), self.epochs.latest_epoch)
                case AskLogStart():
                    self._run(role, role.leader_log_starts_at(0), ())
                case _:
                    assert isinstance(effect, BackOff | AdvanceLogStart), effect

    # the log

    def _append(self, records: Log) -> None:
        for record in records:
            self.epochs.assign(record.leader_epoch, len(self.log))
            self.log = (*self.log, record)

    def cut(self, offset: int) -> None:
        """Lose what lies from `offset` on."""
        self.log = self.log[:offset]
        self.epochs.truncate_from_end(offset)

    # for the exploration

    def settle(self) -> Replica:
        """Forget everything that only times would reveal (see above); return the replica."""
        self.epochs.changed = False
        role = self.role
        if isinstance(role, LeaderReplica):
            for progress in role.followers.values():
                progress.last_caught_up_ms = NOW_MS if progress.in_target_isr else NEVER_MS
                progress.last_fetch_ms = progress.refused_until_ms = NEVER_MS
                progress.last_fetch_leader_end_offset = progress.log_start_offset = -1
        elif role is not None and not role.is_busy:
            role._leader_high_watermark = role._leader_log_start = 0
        return self

    def renamed(self, names: Mapping[int, int]) -> Replica:
        """The same replica in a world where brokers have other numbers."""
        other = self.copy()
        other.number = names[self.number]
        role = other.role
        if isinstance(role, FollowerReplica):
            role.leader = names.get(role.leader, role.leader)
        elif role is not None:
            role.broker_id = other.number
            role.isr = _renamed_isr(role.isr, names)
            progress = {names[number]: one for number, one in role.followers.items()}
            role.followers = {number: progress[number] for number in sorted(progress)}
            for number, one in role.followers.items():
                one.replica_id = number
            role._others = tuple(role.followers.values())
        return other

    def __str__(self) -> str:
        log = " ".join(f"{record.leader_epoch}:{chr(96 + record.value)}" for record in self.log)
        role, who = self.role, f"{self.number}"
        if self.broker_epoch > 1:
            who += f" (life {self.broker_epoch})"
        if isinstance(role, LeaderReplica):
            pending = [*role.isr.in_flight, *([role.isr.queued] if role.isr.queued else [])]
            wanted = "".join(f" or {list(change.isr)}" for change in pending)
            what = f"leads {role.leader_epoch}, ISR {list(role.isr.committed)}{wanted}"
        elif role is not None:
            what = f"follows {role.leader} in {role.leader_epoch}"
        else:
            what = "rests"
        return f"{who} {what}, [{log}] HW {self.high_watermark}"


def _let_time_pass(role: LeaderReplica) -> None:
    """Whoever is not confirmed as a member is behind for long, also one whose joining is slow."""
    for number, progress in role.followers.items():
        if number not in role.isr.committed:
            progress.last_caught_up_ms = NEVER_MS


class Replicas(Table[Replica]):
    """The replicas that occur, and what the real functions make of each, worked out once."""

    def __init__(self, *, one_life: bool) -> None:
        super().__init__()
        #: Brokers live one life each: that an earlier one was counted makes no difference.
        self._one_life = one_life
        self._known: dict[tuple[object, ...], int] = {}

    def keep(self, replica: Replica) -> int:
        """The number of a replica, which must not be changed from now on."""
        replica.settle()
        if self._one_life and replica.leading is not None:
            for progress in replica.leading.followers.values():
                progress.counted_broker_epoch = progress.broker_epoch = 1
        return self.number(replica.key(), replica)

    def apply(self, part: int, action: Callable[..., object], *arguments: object) -> int:
        """What becomes of a replica by `action(replica, *arguments)`."""
        known = self._known.get((part, action, *arguments))
        if known is None:
            replica = self.values[part].copy()
            action(replica, *arguments)
            known = self._known[part, action, *arguments] = self.keep(replica)
        return known


def renamed_members(members: Iterable[int], names: Mapping[int, int]) -> tuple[int, ...]:
    """The members of an ISR under other numbers, in order."""
    return tuple(sorted(names[member] for member in members))


def _renamed_isr(state: IsrState, names: Mapping[int, int]) -> IsrState:
    return IsrState(
        renamed_members(state.committed, names),
        state.partition_epoch,
        tuple(renamed_change(change, names) for change in state.in_flight),
        None if state.queued is None else renamed_change(state.queued, names),
        state.awaits,
        state.was_commanded,
    )


def renamed_change(change: IsrChange, names: Mapping[int, int]) -> IsrChange:
    """A proposed ISR under other numbers."""
    members = sorted(
        (names[member], epoch) for member, epoch in zip(change.isr, change.isr_epochs, strict=True)
    )
    return replace(
        change,
        isr=tuple(member for member, _ in members),
        isr_epochs=tuple(epoch for _, epoch in members),
    )


def renamed_state(state: PartitionState, names: Mapping[int, int]) -> PartitionState:
    """Published state under other numbers."""
    epochs = state.isr_epochs or (-1,) * len(state.isr)
    members = sorted((names[one], epoch) for one, epoch in zip(state.isr, epochs, strict=True))
    eligible = sorted(
        (names[one], epoch) for one, epoch in zip(state.elr, state.elr_epochs, strict=True)
    )
    return replace(
        state,
        leader=names.get(state.leader, state.leader),
        isr=tuple(member for member, _ in members),
        isr_epochs=tuple(epoch for _, epoch in members),
        elr=tuple(member for member, _ in eligible),
        elr_epochs=tuple(epoch for _, epoch in eligible),
        # Nothing depends on it.
        last_leader=NO_LEADER,
    )


def in_order(state: PartitionState) -> PartitionState:
    """Published state with its ISR in the order of the replicas: the order says nothing."""
    return renamed_state(state, {number: number for number in REPLICAS})
