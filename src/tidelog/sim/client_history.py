"""The requests and responses of a run's clients, as input of the checkers.

Every operation has the time of its begin, the time of its end, and an outcome. An operation without
a response stays open, because it may still take effect. The module uses no information from brokers
except their responses. Record numbers are unique in a run, so each record identifies the operation
that sent it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicId
from tidelog.history.operations import Operation
from tidelog.sim.listeners import CallbackList


class Outcome(Enum):
    """The outcome of an operation as its client knows it."""

    OPEN = "open"
    #: The operation was acknowledged.
    DONE = "done"
    #: The operation certainly had no effect.
    REFUSED = "refused"
    #: The operation may have an effect, now or later.
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Produce:
    """One batch that a producer sends, with all attempts to send it."""

    client: int
    topic: str
    partition: int
    acks: int
    producer_id: int
    numbers: tuple[int, ...]
    begin_ns: int
    #: Time at which each attempt was sent.
    sent_ns: list[int] = field(default_factory=list)
    end_ns: int = -1
    outcome: Outcome = Outcome.OPEN
    #: Offset of the first record; -1 if the response did not contain it.
    base_offset: int = -1
    #: Timestamp of all records of the batch, by the wall clock of the client.
    timestamp_ms: int = -1

    @property
    def is_idempotent(self) -> bool:
        """Whether the producer has an id, so that a leader recognizes retries."""
        return self.producer_id >= 0

    def __str__(self) -> str:
        kind = "idempotent " if self.is_idempotent else ""
        return (
            f"{kind}batch {list(self.numbers)} for {self.topic}-{self.partition} (acks {self.acks},"
            f" {self.outcome.value}, offset {self.base_offset}, {len(self.sent_ns)} attempts)"
        )


@dataclass(slots=True)
class TopicLife:
    """One incarnation of a topic, from its creation to its deletion."""

    name: str
    topic_id: TopicId
    created_ns: int
    #: Time of the first request for the topic's deletion; -1 without a request.
    deletion_begun_ns: int = -1


class ClientHistory:
    """All operations of one run."""

    def __init__(self) -> None:
        self.produces: list[Produce] = []
        #: By record number, the operation that sent the record.
        self.by_number: dict[int, Produce] = {}
        self.topics: dict[TopicId, TopicLife] = {}
        #: Operations of consumers and group members, in the format of histories.
        self.operations: list[Operation] = []
        #: By (topic id, partition), the offset below which DeleteRecords requests may have deleted
        #: records.
        self.deleted_before: dict[tuple[TopicId, int], int] = {}
        #: Partitions (topic, number) that a client asked to remove from their topic (tidelog has a
        #: request for this, Kafka has none). Such a partition may have been added again.
        self.removed: dict[tuple[str, int], None] = {}
        #: By producer id: the client to which a broker gave this id.
        self._producer_ids: dict[int, int] = {}
        self._consumers = 0
        self.acknowledged_records = 0
        self.read_records = 0
        #: Number of batches whose retry was acknowledged because an earlier attempt had stored
        #: them.
        self.suppressed_duplicates = 0
        self.on_acknowledged: CallbackList[[Produce]] = CallbackList()
        #: Called when a consumer has read: (client, topic id, partition, first offset, record
        #: numbers).
        self.on_read: CallbackList[[int, TopicId, int, int, Sequence[int]]] = CallbackList()
        #: Called when a broker rejects a batch as out of sequence although the producer has no
        #: earlier open batch: (batch, broker id). The broker then lacks acknowledged records of the
        #: producer, or has later batches of it.
        self.sequence_refused: CallbackList[[Produce, int]] = CallbackList()
        #: Batches (the number of their first record) that got no response, and that retention
        #: removed before the present leader could copy them. The leader rejects every retry of such
        #: a batch.
        self.expired_open: set[int] = set()
        #: Called when a consumer skips from its position to a later log start: (topic id,
        #: partition, position, log start).
        self.sent_on: CallbackList[[TopicId, int, int, int]] = CallbackList()
        #: Whether acknowledged records must survive; False if the run may lose more data than the
        #: fault budget allows.
        self.keeps_promises = True
        #: Called with the description of a response that is not allowed while losses stay within
        #: the fault budget.
        self.broken_promise: CallbackList[[str]] = CallbackList()
        #: Called with the description of a response that is never allowed.
        self.anomaly: CallbackList[[str]] = CallbackList()

    def new_consumer(self, client: int) -> str:
        """Return a name for a new consumer of a client; each consumer counts as a separate
        process.
        """
        self._consumers += 1
        return f"consumer-{client}-{self._consumers}"

    def producer_id_given(self, client: int, producer_id: int) -> None:
        """Check that a client's new producer id is unique (G3)."""
        known = self._producer_ids.get(producer_id)
        if known is not None:
            self.anomaly(
                f"producer id {producer_id} was given to client {client}, after client {known}"
            )
        self._producer_ids[producer_id] = client

    def produce_begins(self, operation: Produce) -> None:
        """Record a batch that is about to be sent for the first time."""
        self.produces.append(operation)
        for number in operation.numbers:
            if number in self.by_number:
                raise ValueError(f"record number {number} is used twice")
            self.by_number[number] = operation

    def produce_ends(
        self, operation: Produce, outcome: Outcome, now_ns: int, base_offset: int = -1
    ) -> None:
        """Record the final outcome of a batch."""
        operation.outcome = outcome
        operation.end_ns = now_ns
        operation.base_offset = base_offset
        if outcome is Outcome.DONE:
            self.acknowledged_records += len(operation.numbers)
            self.on_acknowledged(operation)

    def read(
        self, client: int, topic_id: TopicId, partition: int, offset: int, numbers: Sequence[int]
    ) -> None:
        """Record that a consumer got records, the first of them at `offset`."""
        self.read_records += len(numbers)
        self.on_read(client, topic_id, partition, offset, numbers)

    def topic_created(self, name: str, topic_id: TopicId, now_ns: int) -> None:
        """Record that a topic exists: its creation was acknowledged, or a client has seen it."""
        self.topics.setdefault(topic_id, TopicLife(name, topic_id, now_ns))

    def was_remade_since(self, name: str, time_ns: int) -> bool:
        """Return whether clients know that a topic was deleted or recreated after `time_ns`."""
        return any(
            life.name == name and (life.deletion_begun_ns >= time_ns or life.created_ns >= time_ns)
            for life in self.topics.values()
        )

    def is_settled(self, name: str, topic_id: TopicId) -> bool:
        """Return whether a topic's name certainly stands for this topic id: it is the newest topic
        of this name, and no client has requested its deletion.

        """
        newest = [life for life in self.topics.values() if life.name == name][-1:]
        return bool(newest) and newest[0].topic_id == topic_id and newest[0].deletion_begun_ns < 0

    def record_deletion_begins(self, topic_id: TopicId, partition: int, offset: int) -> None:
        """Record a request for the deletion of the records below an offset."""
        key = (topic_id, partition)
        self.deleted_before[key] = max(offset, self.deleted_before.get(key, 0))

    def may_be_gone_before(self, key: tuple[TopicId, int, int]) -> int:
        """Return the offset below which records of a partition may have been deleted.

        `key` is (topic id, partition number, incarnation). The incarnation has no influence,
        because the workload never removes a partition in which it deletes records.
        """
        topic_id, partition, _ = key
        return self.deleted_before.get((topic_id, partition), 0)

    def removal_begins(self, name: str, partition: int) -> None:
        """Record a request to remove one partition of a topic; its records may now be lost."""
        self.removed[name, partition] = None

    def deletion_begins(self, name: str, now_ns: int) -> None:
        """Record a request to delete a topic; from now on, its records may be lost."""
        for life in self.topics.values():
            if life.name == name and life.deletion_begun_ns < 0:
                life.deletion_begun_ns = now_ns
