"""What the clients of a run asked for and were told: the material of the checkers.

Every operation has a begin, an end and an outcome; an unanswered one stays open, for it may still
take effect. Knows nothing of brokers. Record numbers are unique in a run, so a record read
anywhere leads back to the operation that sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidelog.core.types import TopicId
from tidelog.history.operations import Operation


class Outcome(Enum):
    """What a client knows about its operation."""

    OPEN = "open"
    #: Acknowledged.
    DONE = "done"
    #: Certainly without effect.
    REFUSED = "refused"
    #: With effect or not; it may even come later.
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Produce:
    """One batch, over all its attempts."""

    client: int
    topic: str
    partition: int
    acks: int
    producer_id: int
    numbers: tuple[int, ...]
    begin_ns: int
    #: When each attempt was sent.
    sent_ns: list[int] = field(default_factory=list)
    end_ns: int = -1
    outcome: Outcome = Outcome.OPEN
    #: Of the first record; -1 where the broker did not tell.
    base_offset: int = -1
    #: Of its records, by the wall clock of the client.
    timestamp_ms: int = -1

    @property
    def is_idempotent(self) -> bool:
        """Whether its producer has an id, so that repetitions are recognised."""
        return self.producer_id >= 0

    def __str__(self) -> str:
        kind = "idempotent " if self.is_idempotent else ""
        return (
            f"{kind}batch {list(self.numbers)} for {self.topic}-{self.partition} (acks {self.acks},"
            f" {self.outcome.value}, offset {self.base_offset}, {len(self.sent_ns)} attempts)"
        )


@dataclass(slots=True)
class TopicLife:
    """One incarnation of a topic."""

    name: str
    topic_id: TopicId
    created_ns: int
    #: When its deletion was first asked for; -1 while nobody has.
    deletion_begun_ns: int = -1


class ClientHistory:
    """All operations of one run."""

    def __init__(self) -> None:
        self.produces: list[Produce] = []
        #: Every record ever sent, with its operation.
        self.by_number: dict[int, Produce] = {}
        self.topics: dict[TopicId, TopicLife] = {}
        #: What consumers and members of groups did, as histories have it.
        self.operations: list[Operation] = []
        #: Below which offset records may be gone by request, by topic id and partition.
        self.deleted_before: dict[tuple[TopicId, int], int] = {}
        #: Partitions (topic, number) whose removal was asked for, and that may be there again.
        self.removed: dict[tuple[str, int], None] = {}
        #: Which client was given each producer id.
        self._producer_ids: dict[int, int] = {}
        self._consumers = 0
        self.acknowledged_records = 0
        self.read_records = 0
        #: Acknowledged repetitions of a batch that an earlier attempt had stored.
        self.suppressed_duplicates = 0
        self.on_acknowledged: list[Callable[[Produce], None]] = []
        #: (client, topic id, partition, first offset, record numbers)
        self.on_read: list[Callable[[int, TopicId, int, int, Sequence[int]], None]] = []
        #: (batch refused as out of sequence with none open before it, broker id)
        self.on_sequence_refused: list[Callable[[Produce, int], None]] = []
        #: (topic id, partition, position of a consumer, log start that it was sent on to)
        self.on_log_start: list[Callable[[TopicId, int, int, int], None]] = []
        #: Whether what is acknowledged is kept: losses stay within the fault budget.
        self.keeps_promises = True
        #: (what a client was told that breaks a promise)
        self.on_broken_promise: list[Callable[[str], None]] = []
        #: (what a client was told that it must never be told)
        self.on_anomaly: list[Callable[[str], None]] = []

    def new_consumer(self, client: int) -> str:
        """The name of one more consumer, as a process of its own."""
        self._consumers += 1
        return f"consumer-{client}-{self._consumers}"

    def producer_id_given(self, client: int, producer_id: int) -> None:
        """A client was given a producer id, which nobody else was nor will be (G3)."""
        known = self._producer_ids.get(producer_id)
        if known is not None:
            self.anomaly(
                f"producer id {producer_id} was given to client {client}, after client {known}"
            )
        self._producer_ids[producer_id] = client

    def produce_begins(self, operation: Produce) -> None:
        """A batch is about to be sent for the first time."""
        self.produces.append(operation)
        for number in operation.numbers:
            if number in self.by_number:
                raise ValueError(f"record number {number} is used twice")
            self.by_number[number] = operation

    def produce_ends(
        self, operation: Produce, outcome: Outcome, now_ns: int, base_offset: int = -1
    ) -> None:
        """The client knows as much as it ever will."""
        operation.outcome = outcome
        operation.end_ns = now_ns
        operation.base_offset = base_offset
        if outcome is Outcome.DONE:
            self.acknowledged_records += len(operation.numbers)
            for callback in self.on_acknowledged:
                callback(operation)

    def read(
        self, client: int, topic_id: TopicId, partition: int, offset: int, numbers: Sequence[int]
    ) -> None:
        """A consumer was given records, the first of them at `offset`."""
        self.read_records += len(numbers)
        for callback in self.on_read:
            callback(client, topic_id, partition, offset, numbers)

    def sequence_refused(self, operation: Produce, broker_id: int) -> None:
        """A broker lacks what its producer had acknowledged before a batch, or has more."""
        for callback in self.on_sequence_refused:
            callback(operation, broker_id)

    def anomaly(self, what: str) -> None:
        """A client was told something that it must never be told."""
        for callback in self.on_anomaly:
            callback(what)

    def broken_promise(self, what: str) -> None:
        """A client was told what it must not be told where no more is lost than may be."""
        for callback in self.on_broken_promise:
            callback(what)

    def topic_created(self, name: str, topic_id: TopicId, now_ns: int) -> None:
        """A topic is there (first seen, or acknowledged)."""
        self.topics.setdefault(topic_id, TopicLife(name, topic_id, now_ns))

    def was_remade_since(self, name: str, time_ns: int) -> bool:
        """Whether a topic was deleted or made anew after a time, as far as clients know."""
        return any(
            life.name == name and (life.deletion_begun_ns >= time_ns or life.created_ns >= time_ns)
            for life in self.topics.values()
        )

    def is_settled(self, name: str, topic_id: TopicId) -> bool:
        """Whether a name surely means that topic: it is the newest, and nobody deletes it."""
        newest = [life for life in self.topics.values() if life.name == name][-1:]
        return bool(newest) and newest[0].topic_id == topic_id and newest[0].deletion_begun_ns < 0

    def record_deletion_begins(self, topic_id: TopicId, partition: int, offset: int) -> None:
        """Somebody asks for the deletion of the records below an offset."""
        key = (topic_id, partition)
        self.deleted_before[key] = max(offset, self.deleted_before.get(key, 0))

    def may_be_gone_before(self, key: tuple[TopicId, int, int]) -> int:
        """Below which offset records of a partition (topic id, number, life) may have been deleted;
        those that are deleted from are removed by nobody."""
        topic_id, partition, _ = key
        return self.deleted_before.get((topic_id, partition), 0)

    def sent_on(self, topic_id: TopicId, partition: int, position: int, log_start: int) -> None:
        """A consumer was told that the log begins behind its position; it goes on there."""
        for callback in self.on_log_start:
            callback(topic_id, partition, position, log_start)

    def removal_begins(self, name: str, partition: int) -> None:
        """Somebody asks for the removal of a partition; from here on nothing of it is promised."""
        self.removed[name, partition] = None

    def deletion_begins(self, name: str, now_ns: int) -> None:
        """Somebody asks for a topic's deletion; from here on nothing of it is promised."""
        for life in self.topics.values():
            if life.name == name and life.deletion_begun_ns < 0:
                life.deletion_begun_ns = now_ns
