"""Random walks of three replicas and a controller, with messages lost, doubled and reordered.

The real leader and follower decisions over plain lists as logs. After each step, whatever any
leader calls committed must be on every member of the published ISR (StrongIsr of the published
specification, rule A15). The walks are told apart by their seeds; rules taken away one by one must
be missed by at least one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import EpochEnd
from tidelog.replication import commands, isr, truncation, watermark
from tidelog.replication.effects import (
    Append,
    AskLogStart,
    BackOff,
    Effects,
    RetryAlterPartition,
    SendAlterPartition,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from tidelog.replication.follower import FetchPosition, FollowerReplica
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica, epoch_error

BROKERS = (1, 2, 3)
LAG_MS = 10
STEPS = 800


class Command(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class Fetch(NamedTuple):
    leader: int
    replica: int
    position: FetchPosition


class Answer(NamedTuple):
    replica: int
    position: FetchPosition
    error: int
    diverging: EpochEnd | None
    records: tuple[tuple[int, int], ...]
    high_watermark: int


class Replica:
    """One broker's replica: its log holds (leader epoch, unique value)."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log: list[tuple[int, int]] = []
        self.epochs = LeaderEpochs()
        self.role: LeaderReplica | FollowerReplica | None = None
        self.known = (-1, -1)
        self.high_watermark = 0

    def mark(self) -> int:
        return self.high_watermark if self.role is None else self.role.high_watermark

    def append(self, records: tuple[tuple[int, int], ...]) -> None:
        for epoch, value in records:
            self.epochs.assign(epoch, len(self.log))
            self.log.append((epoch, value))

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.truncate_from_end(offset)


class Walk:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.replicas = {number: Replica(number) for number in BROKERS}
        self.published = Command(1, 0, BROKERS, 0)
        self.commands: list[Command] = [self.published]
        self.fetches: list[Fetch] = []
        self.answers: list[Answer] = []
        self.changes: list[IsrChange] = []
        self.outcomes: list[tuple[IsrChange, int, Command]] = []
        self.now_ms = 0
        self.values = 0
        self.committed_most = 0
        #: How eager each replica is to fetch.
        self.eagerness = {number: self.random.choice((0.05, 0.3, 1.0)) for number in BROKERS}

    def run(self) -> None:
        steps = (
            (self.elect, 1),
            (self.obey, 6),
            (self.produce, 4),
            (self.fetch, 12),
            (self.serve, 12),
            (self.follow, 12),
            (self.decide, 4),
            (self.learn, 4),
            (self.wait, 1),
        )
        # Each history has habits of its own: what is rare in one is common in another.
        weights = [weight * self.random.choice((1, 1, 1, 3)) for _, weight in steps]
        for step in self.random.choices([step for step, _ in steps], weights, k=STEPS):
            step()
            self.check()

    def check(self) -> None:
        for replica in self.replicas.values():
            if not isinstance(replica.role, LeaderReplica):
                continue
            mark = replica.role.high_watermark
            self.committed_most = max(self.committed_most, mark)
            for member in self.published.isr:
                own, other = replica.log[:mark], self.replicas[member].log[:mark]
                assert own == other, (
                    f"leader {replica.number} of epoch {replica.role.leader_epoch} has committed "
                    f"{own}, member {member} has {other}"
                )

    def pick(self, queue: list[Any]) -> Any:
        """A message, out of order; it may stay and come again, or be lost."""
        if not queue:
            return None
        index = self.random.randrange(min(len(queue), 4))
        message = queue[index]
        chance = self.random.random()
        if chance < 0.85:
            del queue[index]
        if chance < 0.1:
            return None
        del queue[8:]
        return message

    # the controller

    def elect(self) -> None:
        old = self.published
        leader = self.random.choice(old.isr)
        members = old.isr
        if len(members) > 1 and self.random.random() < 0.5:
            out = self.random.choice([member for member in members if member != leader])
            members = tuple(member for member in members if member != out)
        self.publish(Command(leader, old.leader_epoch + 1, members, old.partition_epoch + 1))

    def publish(self, command: Command) -> None:
        self.published = command
        self.commands = [command, *self.commands[:3]]

    def decide(self) -> None:
        change = self.pick(self.changes)
        if change is None:
            return
        now = self.published
        if change.leader_epoch < now.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif sorted(change.isr) == sorted(now.isr):
            error = ErrorCode.NONE
        elif change.partition_epoch < now.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        else:
            self.published = Command(
                now.leader, now.leader_epoch, change.isr, now.partition_epoch + 1
            )
            self.commands = [self.published, *self.commands[:3]]
            error = ErrorCode.NONE
        self.outcomes.append((change, error, self.published))

    # brokers

    def obey(self) -> None:
        replica = self.replicas[self.random.choice(BROKERS)]
        command = self.random.choice(self.commands)
        if not commands.is_current(*replica.known, command.leader_epoch, command.partition_epoch):
            return
        replica.known = (command.leader_epoch, command.partition_epoch)
        role = replica.role
        if role is not None and role.leader_epoch == command.leader_epoch:
            if isinstance(role, LeaderReplica):
                self.lead(
                    replica,
                    role.commanded(
                        command.isr, BROKERS, command.partition_epoch, self.alive, self.now_ms
                    ),
                )
            return
        replica.high_watermark = replica.mark()
        if command.leader == replica.number:
            self.begin_leading(replica, command)
        else:
            self.begin_following(replica, command)

    def begin_leading(self, replica: Replica, command: Command) -> None:
        replica.epochs.assign(command.leader_epoch, len(replica.log))
        role = replica.role = LeaderReplica(
            broker_id=replica.number,
            broker_epoch=replica.number,
            leader_epoch=command.leader_epoch,
            isr=IsrState(command.isr, command.partition_epoch),
            replicas=BROKERS,
            epoch_start_offset=len(replica.log),
            log_end_offset=len(replica.log),
            high_watermark=watermark.on_follower(replica.high_watermark, 0, len(replica.log)),
            min_insync_replicas=1,
            max_lag_ms=LAG_MS,
            is_eligible=self.alive,
            now_ms=self.now_ms,
        )
        self.lead(replica, role.examine(self.now_ms))

    def begin_following(self, replica: Replica, command: Command) -> None:
        role = replica.role = FollowerReplica(
            leader=command.leader,
            leader_epoch=command.leader_epoch,
            partition_epoch=command.partition_epoch,
            log_start_offset=0,
            log_end_offset=len(replica.log),
            latest_epoch=replica.epochs.latest_epoch,
            high_watermark=watermark.on_follower(replica.high_watermark, 0, len(replica.log)),
        )
        self.change_log(replica, role, role.begin(), ())

    def alive(self, broker_id: int) -> bool:
        return True

    def lead(self, replica: Replica, effects: Effects) -> None:
        role = replica.role
        assert isinstance(role, LeaderReplica)
        for effect in effects:
            if isinstance(effect, SendAlterPartition):
                role.change_sent(effect.change)
                self.changes.append(effect.change)
            elif isinstance(effect, RetryAlterPartition):
                self.changes.append(effect.change)
        # A change whose request or answer was lost is asked for again.
        if role.isr.in_flight and not self.changes and not self.outcomes:
            self.changes.extend(role.isr.in_flight)

    def learn(self) -> None:
        outcome = self.pick(self.outcomes)
        if outcome is None:
            return
        change, error, state = outcome
        for replica in self.replicas.values():
            role = replica.role
            if isinstance(role, LeaderReplica) and role.leader_epoch == change.leader_epoch:
                if error:
                    effects = role.change_refused(change, error, self.now_ms)
                else:
                    effects = role.change_accepted(
                        change, state.isr, state.leader_epoch, state.partition_epoch, self.now_ms
                    )
                    epochs = (role.leader_epoch, role.isr.partition_epoch)
                    replica.known = max(replica.known, epochs)
                self.lead(replica, effects)

    def wait(self) -> None:
        self.now_ms += self.random.randrange(1, LAG_MS)
        for replica in self.replicas.values():
            if isinstance(replica.role, LeaderReplica):
                self.lead(replica, replica.role.examine(self.now_ms))

    def produce(self) -> None:
        for replica in self.replicas.values():
            role = replica.role
            if isinstance(role, LeaderReplica) and self.random.random() < 0.5:
                self.values += 1
                replica.append(((role.leader_epoch, self.values),))
                self.lead(replica, role.appended(len(replica.log), self.now_ms))

    def fetch(self) -> None:
        replica = self.replicas[self.random.choice(BROKERS)]
        role = replica.role
        if self.random.random() > self.eagerness[replica.number]:
            return
        if isinstance(role, FollowerReplica) and not role.is_busy:
            self.fetches.append(Fetch(role.leader, replica.number, role.position))

    def serve(self) -> None:
        fetch = self.pick(self.fetches)
        if fetch is None:
            return
        leader = self.replicas[fetch.leader]
        role = leader.role
        position = fetch.position
        if not isinstance(role, LeaderReplica):
            return
        error: int = epoch_error(role.leader_epoch, position.leader_epoch)
        diverging = None
        records: tuple[tuple[int, int], ...] = ()
        if not error:
            try:
                diverging = truncation.diverging_epoch(
                    leader.epochs,
                    len(leader.log),
                    position.last_fetched_epoch,
                    position.fetch_offset,
                )
                if diverging is None:
                    effects = role.fetched(
                        fetch.replica, fetch.replica, position.fetch_offset, 0, self.now_ms
                    )
                    self.lead(leader, effects)
                    first = position.fetch_offset
                    records = tuple(leader.log[first : first + self.random.randrange(3)])
            except KafkaError as refusal:
                error = refusal.code
        self.answers.append(
            Answer(fetch.replica, position, error, diverging, records, role.high_watermark)
        )

    def follow(self) -> None:
        answer = self.pick(self.answers)
        if answer is None:
            return
        replica = self.replicas[answer.replica]
        role = replica.role
        if isinstance(role, FollowerReplica):
            effects = role.answered(
                answer.position,
                answer.error,
                answer.diverging,
                replica.epochs,
                answer.high_watermark,
                0,
                bool(answer.records),
            )
            self.change_log(replica, role, effects, answer.records)

    def change_log(
        self,
        replica: Replica,
        role: FollowerReplica,
        effects: Effects,
        records: tuple[tuple[int, int], ...],
    ) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                replica.append(records)
                role.appended(len(replica.log), replica.epochs.latest_epoch)
            elif isinstance(effect, TruncateTo | TruncateFullyAndStartAt):
                replica.cut(effect.offset)
                role.truncated(0, len(replica.log), replica.epochs.latest_epoch)
            elif isinstance(effect, AskLogStart):
                self.change_log(replica, role, role.leader_log_starts_at(0), ())
            else:
                assert isinstance(effect, BackOff)


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_what_is_committed_is_on_every_member_of_the_isr(first_seed: int) -> None:
    committed = 0
    for seed in range(first_seed, first_seed + 50):
        walk = Walk(seed)
        walk.run()
        committed += walk.committed_most
    assert committed > 500


def breaks(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def stale_accepted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(FollowerReplica, "answered", _unfenced)

    replacements: dict[str, tuple[Any, str, Any]] = {
        "truncate to high watermark": (
            truncation,
            "offset_on_becoming_follower",
            lambda end, mark: mark,
        ),
        "divergence not looked for": (truncation, "diverging_epoch", lambda *asked: None),
        "expand without the epoch rule": (isr, "reached", lambda leo, mark, start: leo >= mark),
        "optimistic shrink": (isr, "maximal_isr", isr.target_isr),
        "pending expansion ignored": (isr, "maximal_isr", lambda state: state.committed),
        "older commands obeyed": (commands, "is_current", lambda *epochs: True),
        "acknowledged at once": (
            watermark,
            "high_watermark",
            lambda log_end_offset, followers, now_ms, max_lag_ms: log_end_offset,
        ),
    }
    if name == "stale answers taken":
        return stale_accepted
    owner, attribute, replacement = replacements[name]
    return lambda patch: patch.setattr(owner, attribute, replacement)


_answered = FollowerReplica.answered


def _unfenced(self: FollowerReplica, position: FetchPosition, *rest: Any) -> Effects:
    return _answered(self, self.position, *rest)


@pytest.mark.parametrize(
    "name",
    [
        "truncate to high watermark",
        "divergence not looked for",
        "expand without the epoch rule",
        "optimistic shrink",
        "pending expansion ignored",
        "older commands obeyed",
        "acknowledged at once",
        "stale answers taken",
    ],
)
def test_without_a_rule_some_walk_loses_what_was_committed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(name)(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(600):
            Walk(seed).run()
