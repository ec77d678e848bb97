"""Transactional ids with their producers, partitions that take markers, and coordinators in turn.

The real coordinator over a list as its log. Producers do what clients do, at random moments:
initialise, add, end, and send old requests again; two producers share an id. Appends are refused,
late, or cut from the log's uncommitted end by a failover; markers are late, doubled or reordered;
producer ids come late or not at all. Epochs begin near their end, so that rotation is usual.

After each step the stored states equal a replay of the committed log (LogIsMemory), and each effect
is compared with what the log says (DecidedFirst, AnsweredDecided, CompleteMeansMarked, OneOutcome,
UniqueIdentity, Fenced). At the end nothing hangs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from tidelog.core.coordinator_shard import CoordinatorAppend, Now, Reply, SetTimer
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.txn.asked import TransactionAsked
from tidelog.txn.effects import (
    NeedProducerId,
    SendMarkers,
    TransactionTimer,
    TransactionTimerKind,
)
from tidelog.txn.partition import TransactionPartition
from tidelog.txn.records import Transaction, TransactionRecord
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

Identity = tuple[int, int]
PARTITIONS = tuple(TopicPartition("in", number) for number in range(3))
NAMES = ("a", "b")
NOBODY: Identity = (-1, -1)
TIMEOUT_MS = 4_000
SETTINGS = TransactionSettings(
    timeout_interval_ms=500, expiration_interval_ms=10_000, id_expiration_ms=60_000
)
REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
#: For each kind of record, the kinds that may follow it in the log; None stands for a tombstone.
FOLLOWERS: dict[int | None, set[int | None]] = {
    None: {0},
    0: {0, 1, 3, None},
    1: {1, 2, 3},
    2: {4},
    3: {5},
    4: {0, 1, 3, None},
    5: {0, 1, 3, None},
}


@dataclass
class Producer:
    """A client; the other one with the same id may have fenced it."""

    name: str
    version: int
    identity: Identity = NOBODY
    sent: list[tuple[Any, frozenset[TopicPartition]]] = field(default_factory=list)


@dataclass
class Marked:
    """What one partition knows of one producer id."""

    epoch: int = -1
    coordinator_epoch: int = -1
    #: The number of the open transaction, by the record that began it.
    open: int | None = None


class TxnWalk:
    """One random walk."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.level = random.choice((0, 1, 2))
        self.log: list[TransactionRecord] = []
        self.now_ms = 1_000_000
        self.leader_epoch = 0
        self.next_id = 100
        self.seen: Counter[str] = Counter()
        self.producers = [Producer(name, random.choice((4, 5))) for name in NAMES for _ in range(2)]
        self.asked: dict[int, tuple[Producer, TransactionAsked[Any]]] = {}
        self.tickets = 0
        self.wants: list[int] = []
        self.timers: dict[TransactionTimer, int] = {}
        self.uncommitted: list[CoordinatorAppend] = []
        self.markers: list[tuple[SendMarkers, TopicPartition]] = []
        self.leaders: dict[tuple[TopicPartition, int], Marked] = {}
        self.written: set[tuple[TopicPartition, int, int, bool]] = set()
        #: Of each transaction, the first marker's outcome, and whether its epoch was not raised.
        self.outcomes: dict[tuple[str, int], tuple[bool, bool]] = {}
        self.given: dict[tuple[str, Identity], Identity | int] = {}
        self.dead: set[tuple[str, Identity]] = set()
        for name in NAMES:
            epoch = random.choice((0, 32_762))
            first = Transaction(
                self.fresh(), epoch, -1, self.next_id - 1, -1, TIMEOUT_MS,
                TransactionPhase.EMPTY, frozenset(), self.now_ms, -1,
            )  # fmt: skip
            self.log.append(TransactionRecord(name, first))
        self.lead()

    # The coordinator.

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def fresh(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def lead(self) -> None:
        self.leader_epoch += 1
        self.coordinator = TransactionPartition(0, self.leader_epoch, SETTINGS, self.level)
        self.timers, self.wants, self.uncommitted = {}, [], []
        for record in self.log:
            self.coordinator.replay(record)
        self.take(self.coordinator.loaded(self.now))

    def fail_over(self) -> None:
        """End the leadership: the next leader has a part of the uncommitted records."""
        self.seen["failover"] += 1
        for append in self.uncommitted[: self.random.randint(0, len(self.uncommitted))]:
            self.write(append)
        self.take(self.coordinator.unload())
        # What the last one sent is still on its way.
        self.lead()

    def write(self, append: CoordinatorAppend) -> None:
        for record in append.records:
            self.check_record(record)
            self.log.append(record)

    def last(self, name: str) -> Transaction | None:
        for record in reversed(self.log):
            if record.transactional_id == name:
                return record.value
        return None

    # Effects.

    def take(self, effects: tuple[Any, ...]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self.answered(effect)
            elif isinstance(effect, CoordinatorAppend):
                assert effect.leader_epoch == self.leader_epoch, "no append of another epoch"
                self.uncommitted.append(effect)
            elif isinstance(effect, NeedProducerId):
                self.wants.append(effect.number)
            elif isinstance(effect, SetTimer):
                self.timers[effect.name] = effect.deadline_ms
            elif isinstance(effect, SendMarkers):
                self.check_decided(effect)
                self.markers += [(effect, tp) for tp in effect.partitions]

    def check_decided(self, markers: SendMarkers) -> None:
        last = self.last(markers.transactional_id)
        assert last is not None and last.phase.is_prepared, "DecidedFirst"
        found = (last.producer_id, last.producer_epoch, last.phase is last.phase.PREPARE_COMMIT)
        sent = (markers.producer_id, markers.producer_epoch, markers.is_commit)
        assert found == sent, "DecidedFirst: the marker is the decision's"

    def check_record(self, record: TransactionRecord) -> None:
        former, value = self.last(record.transactional_id), record.value
        kind = None if value is None else int(value.phase)
        before = None if former is None else int(former.phase)
        assert kind in FOLLOWERS[before], f"OneOutcome: {before} before {kind}"
        if kind in (4, 5):
            assert former is not None
            for tp in former.partitions:
                marker = (tp, former.producer_id, former.producer_epoch, kind == 4)
                assert marker in self.written, "CompleteMeansMarked"

    def answered(self, reply: Reply) -> None:
        producer, asked = self.asked.pop(reply.ticket)
        answer, message, name = reply.answer, asked.message, asked.transactional_id
        if isinstance(message, AddPartitionsToTxnTransaction):
            codes = {
                each.partition_error_code for each in answer.topic_results[0].results_by_partition
            }
            if codes == {ErrorCode.NONE}:
                self.seen["add"] += 1
                self.begun(
                    name, (message.producer_id, message.producer_epoch), asked.named_partitions
                )
            return
        code = ErrorCode(answer.error_code)
        self.seen[code.name] += 1
        if code is not ErrorCode.NONE:
            return
        if isinstance(message, InitProducerIdRequest):
            expected = (message.producer_id, message.producer_epoch)
            identity = (answer.producer_id, answer.producer_epoch)
            last = self.last(name)
            assert last is not None, "AnsweredDecided"
            assert identity == (last.producer_id, last.producer_epoch), "the log's identity"
            self.give(name, identity, expected if expected != NOBODY else reply.ticket)
            for other in (each for each in self.given if each[0] == name):
                if other[1] != identity:
                    self.dead.add(other)
            producer.identity = identity
        else:
            self.ended(producer, asked, (answer.producer_id, answer.producer_epoch))

    def give(self, name: str, identity: Identity, key: Identity | int) -> None:
        assert 0 <= identity[1] < 32_767, "UniqueIdentity: the highest epoch is nobody's"
        assert self.given.setdefault((name, identity), key) == key, "UniqueIdentity"

    def begun(self, name: str, identity: Identity, partitions: frozenset[TopicPartition]) -> None:
        """A confirmed producer writes at once: its transaction is open in these partitions."""
        assert (name, identity) not in self.dead, "Fenced: an add of an earlier producer"
        last = self.last(name)
        assert last is not None and partitions <= last.partitions, "an add is stored (T27)"
        for tp in partitions:
            marked = self.leaders.setdefault((tp, identity[0]), Marked())
            marked.epoch = max(marked.epoch, identity[1])
            marked.open = self.number_of(name)

    def number_of(self, name: str) -> int:
        """The position of the record that began the present transaction of an id."""
        records = [(n, each) for n, each in enumerate(self.log) if each.transactional_id == name]
        begun = [
            number
            for (_, former), (number, each) in pairwise(records)
            if each.value is not None
            and each.value.phase is TransactionPhase.ONGOING
            and (former.value is None or former.value.phase is not TransactionPhase.ONGOING)
        ]
        return begun[-1]

    def ended(
        self, producer: Producer, asked: TransactionAsked[EndTxnRequest], identity: Identity
    ) -> None:
        message = asked.message
        name, old = asked.transactional_id, (message.producer_id, message.producer_epoch)
        assert (name, old) not in self.dead, "Fenced: the end of an earlier producer"
        last = self.last(name)
        kinds = (2, 4) if message.committed else (3, 5)
        assert last is not None and last.phase in kinds, "AnsweredDecided"
        self.seen["commit" if message.committed else "abort"] += 1
        if asked.version >= 5:
            rotates = last.next_producer_id != -1
            stored = (
                (last.next_producer_id, 0) if rotates else (last.producer_id, last.producer_epoch)
            )
            assert identity == stored, "the identity of the next transaction is in the log (T19)"
            self.give(name, identity, old)
            self.seen["rotation"] += identity[0] != old[0]
            if producer.identity == old:
                producer.identity = identity

    # Steps.

    def step(self) -> None:
        choose = self.random.choices(
            (self.send, self.commit, self.mark, self.send_again, self.give_id, self.refuse,
             self.late, self.fire, self.fail_over, self.pass_time),
            (40, 30, 25, 8, 12, 3, 3, 6, 2, 4),
        )[0]  # fmt: skip
        choose()
        self.check_memory()

    def check_memory(self) -> None:
        replayed: dict[str, Transaction | None] = {}
        for record in self.log:
            replayed[record.transactional_id] = record.value
        stored = {
            name: each.stored
            for name, each in self.coordinator.ids.items()
            if each.stored is not None
        }
        assert stored == {name: each for name, each in replayed.items() if each}, "LogIsMemory"

    def send(self) -> None:
        (producer,) = self.random.choices(self.producers, (12, 1, 12, 1))
        (kind,) = self.random.choices(("init", "add", "end"), (1, 8, 8))
        partitions: frozenset[TopicPartition] = frozenset()
        if kind == "init" or producer.identity == NOBODY:
            expected = producer.identity if self.random.random() < 0.5 else NOBODY
            message: Any = InitProducerIdRequest(producer.name, TIMEOUT_MS, *expected)
        elif kind == "add":
            chosen = self.random.sample(PARTITIONS, self.random.randint(1, 2))
            partitions = frozenset(chosen)
            topic = AddPartitionsToTxnTopic("in", [tp.partition for tp in chosen])
            message = AddPartitionsToTxnTransaction(
                producer.name, *producer.identity, False, [topic]
            )
        else:
            commits = self.random.random() < 0.6
            message = EndTxnRequest(producer.name, *producer.identity, commits)
        producer.sent.append((message, partitions))
        self.ask(producer, message, partitions)

    def send_again(self) -> None:
        """Send an old request again, as after a lost response, or as a zombie does."""
        producer = self.random.choice(self.producers)
        if producer.sent:
            recent = producer.sent[-3:] if self.random.random() < 0.7 else producer.sent
            self.ask(producer, *self.random.choice(recent))

    def ask(self, producer: Producer, message: Any, partitions: frozenset[TopicPartition]) -> None:
        self.tickets += 1
        asked = TransactionAsked(self.tickets, producer.name, message, producer.version, partitions)
        self.asked[self.tickets] = (producer, asked)
        before = len(self.uncommitted)
        self.take(self.coordinator.ask(asked, self.now))
        if isinstance(message, InitProducerIdRequest):
            self.check_stale(producer.name, message, len(self.uncommitted) > before)

    def check_stale(self, name: str, message: InitProducerIdRequest, appends: bool) -> None:
        """A fenced producer must not end what its successor does (T6)."""
        expected, last = (message.producer_id, message.producer_epoch), self.last(name)
        if last is None or (name, expected) not in self.dead:
            return
        current = (last.producer_id, last.producer_epoch)
        is_retry = self.given.get((name, current)) == expected
        assert is_retry or not appends, "Fenced: an earlier producer initialises"

    def commit(self) -> None:
        if self.uncommitted:
            append = self.uncommitted.pop(0)
            self.write(append)
            self.take(self.coordinator.committed(append.number, self.now))

    def refuse(self) -> None:
        if self.uncommitted:
            append = self.uncommitted.pop()  # refused before the next one is appended
            self.seen["refused"] += 1
            error = self.random.choice(REFUSALS)
            self.take(self.coordinator.failed(append.number, error, self.now))

    def late(self) -> None:
        if self.uncommitted:
            self.seen["late"] += 1
            number = self.random.choice(self.uncommitted).number
            error = ErrorCode.REQUEST_TIMED_OUT
            self.take(self.coordinator.timed_out(number, error, self.now))

    def give_id(self) -> None:
        if self.wants:
            number = self.wants.pop(self.random.randrange(len(self.wants)))
            fresh = None if self.random.random() < 0.1 else self.fresh()
            self.take(self.coordinator.producer_id_given(number, fresh, self.now))

    def fire(self) -> None:
        if self.timers:
            name = self.random.choice(sorted(self.timers, key=str))
            deadline_ms = self.timers.pop(name)
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.coordinator.timer_fired(name, deadline_ms, self.now))
            self.seen[name.kind.value] += 1

    def pass_time(self) -> None:
        self.now_ms += self.random.choices((1, 100, TIMEOUT_MS + 1), (8, 4, 1))[0]

    def mark(self) -> None:
        """Deliver a marker to its partition's leader, and perhaps its answer to the sender."""
        if not self.markers:
            return
        index = self.random.randrange(len(self.markers))
        marker, tp = self.markers[index]
        if self.random.random() < 0.8:
            del self.markers[index]
        entry = self.leaders.setdefault((tp, marker.producer_id), Marked())
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return  # fenced: the sender is no coordinator any longer
        is_older = marker.producer_epoch < entry.epoch
        is_same = marker.client_version == 2 and marker.producer_epoch == entry.epoch
        if is_older or (is_same and entry.open is not None and entry.epoch < 32_767):
            return
        entry.epoch, entry.coordinator_epoch = marker.producer_epoch, marker.coordinator_epoch
        if entry.open is not None:
            whole = (marker.transactional_id, entry.open)
            is_plain = marker.client_version == 0
            first = self.outcomes.setdefault(whole, (marker.is_commit, is_plain))
            # A late marker of an earlier transaction with the same epoch: Kafka's protocol before
            # the epoch rises with each transaction (KIP-890), so a sender must not repeat it.
            is_torn = first[0] is not marker.is_commit
            self.seen["torn"] += is_torn
            assert not is_torn or first[1] or is_plain, "torn"
            entry.open = None
        self.written.add((tp, marker.producer_id, marker.producer_epoch, marker.is_commit))
        if marker.coordinator_epoch == self.leader_epoch and self.random.random() < 0.9:
            self.take(
                self.coordinator.marked(
                    marker.transactional_id, marker.number, frozenset({tp}), self.now
                )
            )
        elif marker.coordinator_epoch == self.leader_epoch:
            self.markers.append((marker, tp))  # the answer is lost: the sender sends again

    # The whole walk.

    def walk(self, steps: int) -> None:
        """Take random steps, then end all faults: nothing may hang."""
        for _ in range(steps):
            self.step()
        for _ in range(60):
            self.now_ms += TIMEOUT_MS + 1
            while self.wants:
                self.take(
                    self.coordinator.producer_id_given(self.wants.pop(0), self.fresh(), self.now)
                )
            for name in sorted(self.timers, key=str):
                if name.kind is not TransactionTimerKind.EXPIRY:
                    deadline_ms = self.timers.pop(name)
                    self.take(self.coordinator.timer_fired(name, deadline_ms, self.now))
            while self.uncommitted:
                self.commit()
                self.check_memory()
            for _ in range(4 * len(self.markers)):
                self.mark()
        for coordinated in self.coordinator.ids.values():
            assert coordinated.pending is None and not coordinated.waiting, "NothingHangs"
            assert coordinated.stored is not None and coordinated.stored.phase.is_settled, (
                f"NothingHangs: {coordinated.stored}"
            )
        assert not self.asked, "NothingHangs: each request has an answer"
