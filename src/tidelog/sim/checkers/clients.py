"""What clients were told, compared with what is committed: at each answer, and at the end.

An acknowledged batch (acks=all) is committed at its offset when the answer arrives; a record read
is the committed one; an idempotent batch is stored once. At the end every acknowledged record of a
topic that still exists has been read back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.batches import GONE
from tidelog.sim.checkers.logs import LogKey
from tidelog.sim.checkers.replication import ReplicationChecker
from tidelog.sim.history import History, Outcome, Produce


class ClientChecker:
    """Follows a history."""

    def __init__(
        self, history: History, replication: ReplicationChecker, violate: Callable[[str], None]
    ) -> None:
        self._history = history
        self._replication = replication
        self._published = replication.published
        self._violate = violate
        #: (topic id, partition) to the offsets read by anyone, as the end of the read prefix.
        self.read_end: dict[LogKey, int] = {}
        history.on_acknowledged.append(self._acknowledged)
        history.on_read.append(self._read)
        history.on_sequence_refused.append(self._sequence_refused)
        history.on_anomaly.append(violate)

    def _keys(self, name: str, partition: int) -> list[LogKey]:
        """The partitions of every topic that ever had the name."""
        return [
            LogKey(topic.topic_id, partition)
            for topic in self._published.all_topics.values()
            if topic.name == name
        ]

    def _acknowledged(self, operation: Produce) -> None:
        if operation.is_idempotent and len(operation.sent_ns) > 1:
            stored_ns = self._replication.first_stored_ns.get(operation.numbers[0])
            if stored_ns is not None and stored_ns < operation.sent_ns[-1]:
                self._history.suppressed_duplicates += 1
        if operation.acks != -1:
            return
        for key in self._keys(operation.topic, operation.partition):
            truth = self._replication.truths.get(key)
            if truth is not None and _is_committed(operation, truth.committed):
                return
        self._violate(f"acknowledged and not committed: {operation}")

    def _sequence_refused(self, operation: Produce, broker_id: int) -> None:
        """A leader has all that was acknowledged, so it takes the oldest open batch. One that was
        deposed and has not heard of it may lack what its successors acknowledged (V65)."""
        topic = self._published.topics.get(operation.topic)
        if topic is None:
            return
        state = self._published.partitions.get(LogKey(topic.topic_id, operation.partition))
        if (
            state is not None
            and state.leader == broker_id
            and state.led_since_ns <= operation.sent_ns[-1]
        ):
            self._violate(
                f"leader {broker_id} refused the sequence of the oldest open batch: {operation}"
            )

    def _read(
        self, client: int, topic_id: TopicId, partition: int, offset: int, numbers: Sequence[int]
    ) -> None:
        key = LogKey(topic_id, partition)
        truth = self._replication.truths.get(key)
        committed = truth.committed if truth is not None else []
        name = truth.name if truth is not None else key
        for position, number in enumerate(numbers, offset):
            if number == GONE:
                known = truth is not None and position < len(committed)
                if known and truth is not None and truth.agrees(position, GONE):
                    continue
                self._violate(
                    f"client {client} was given nothing at {name} offset {position}, and nothing"
                    " committed stands for what was there"
                )
                return
            operation = self._history.by_number.get(number)
            if operation is None:
                self._violate(f"{name} offset {position}: record {number} was never sent")
                return
            if truth is not None and TopicPartition(
                operation.topic, operation.partition
            ) != TopicPartition(truth.name.topic, partition):
                self._violate(f"{name} offset {position} holds a record of {operation}")
                return
            if position >= len(committed):
                self._violate(
                    f"client {client} read {name} offset {position}, of which only"
                    f" {len(committed)} records are committed"
                )
                return
            if committed[position] != number:
                self._violate(
                    f"client {client} read record {number} at {name} offset {position}, where"
                    f" record {committed[position]} is committed"
                )
                return
        if offset <= self.read_end.get(key, 0):
            self.read_end[key] = max(self.read_end.get(key, 0), offset + len(numbers))

    # At the end

    def check_end(self) -> None:
        """Everything acknowledged was read back, exactly once where its producer is idempotent."""
        for topic in self._published.topics.values():
            if topic.is_internal:
                continue
            for partition in topic.assignment:
                key = LogKey(topic.topic_id, partition)
                truth = self._replication.truths.get(key)
                committed = truth.committed if truth is not None else []
                name = TopicPartition(topic.name, partition)
                if self.read_end.get(key, 0) < len(committed):
                    self._violate(
                        f"{name}: {len(committed)} records are committed, consumers have read"
                        f" {self.read_end.get(key, 0)}"
                    )
                self._check_duplicates(name, committed)
                self._check_presence(name, topic.created_ns, committed)

    def _check_duplicates(self, name: TopicPartition, committed: list[int]) -> None:
        seen: dict[int, int] = {}
        for offset, number in enumerate(committed):
            first = seen.setdefault(number, offset)
            operation = self._history.by_number.get(number)
            if first != offset and operation is not None and operation.is_idempotent:
                self._violate(f"{name}: {operation} is stored at offsets {first} and {offset}")

    def _check_presence(self, name: TopicPartition, created_ns: int, committed: list[int]) -> None:
        stored = dict.fromkeys(committed)
        for operation in self._history.produces:
            if (
                (operation.topic, operation.partition) == name
                and operation.acks == -1
                and operation.outcome is Outcome.DONE
                and operation.begin_ns >= created_ns
            ):
                missing = [number for number in operation.numbers if number not in stored]
                if missing:
                    self._violate(f"{name}: lost records {missing} of {operation}")


def _is_committed(operation: Produce, committed: list[int]) -> bool:
    first = operation.base_offset
    numbers = list(operation.numbers)
    if first >= 0:
        return committed[first : first + len(numbers)] == numbers
    stored = dict.fromkeys(committed)
    return all(number in stored for number in numbers)
