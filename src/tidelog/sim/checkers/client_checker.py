"""What clients were told, compared with what is committed, at the moment of each answer.

An acknowledged batch (acks=all) is committed at its offset when the answer arrives; a record read
is the committed one. What takes no look into brokers (nothing is missing, doubled, out of order)
is found at the end from what clients were told alone (`histories`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.batches import GONE
from tidelog.sim.checkers.replica_logs import LogKey
from tidelog.sim.checkers.replication_checker import ReplicationChecker
from tidelog.sim.client_history import ClientHistory, Produce


class ClientChecker:
    """Follows a history."""

    def __init__(
        self,
        history: ClientHistory,
        replication: ReplicationChecker,
        violate: Callable[[str], None],
        promise: Callable[[str], None] | None = None,
    ) -> None:
        """`promise` hears what breaks the promise of an acknowledgement; without it, `violate`."""
        self._history = history
        self._replication = replication
        self._published = replication.published
        self._violate = violate
        self._promise = promise or violate
        #: (topic id, partition) to the offsets read by anyone, as the end of the read prefix.
        self.read_end: dict[LogKey, int] = {}
        history.on_acknowledged.append(self._acknowledged)
        history.on_read.append(self._read)
        history.on_log_start.append(self._sent_on)
        history.on_sequence_refused.append(self._sequence_refused)
        history.on_anomaly.append(violate)
        history.on_broken_promise.append(self._promise)

    def _keys(self, name: str, partition: int) -> list[LogKey]:
        """The partitions of every topic that ever had the name, in each of their lives."""
        published = self._published
        return [
            LogKey(topic.topic_id, partition, life)
            for topic in published.all_topics.values()
            if topic.name == name
            for life in published.lives(LogKey(topic.topic_id, partition))
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
        self._promise(f"acknowledged and not committed: {operation}")

    def _sequence_refused(self, operation: Produce, broker_id: int) -> None:
        """A leader has all that was acknowledged, so it takes the oldest open batch. One that was
        deposed and has not heard of it may lack what its successors acknowledged (V65)."""
        topic = self._published.topics.get(operation.topic)
        if topic is None:
            return
        state = self._published.partitions.get(
            self._published.key(topic.topic_id, operation.partition)
        )
        if (
            state is not None
            and state.leader == broker_id
            and state.led_since_ns <= operation.sent_ns[-1]
        ):
            self._promise(
                f"leader {broker_id} refused the sequence of the oldest open batch: {operation}"
            )

    def _sent_on(self, topic_id: TopicId, partition: int, position: int, log_start: int) -> None:
        """What was deleted by request needs to be read by nobody."""
        key = self._published.key(topic_id, partition)
        read_end = self.read_end.get(key, 0)
        if position <= read_end:
            self.read_end[key] = max(read_end, log_start)

    def _read_of(
        self, topic_id: TopicId, partition: int, offset: int, numbers: Sequence[int]
    ) -> LogKey:
        """In which life of a partition records were read: one that has them; a leader that has not
        heard of a removal may still give those of the life before."""
        latest = self._published.key(topic_id, partition)
        for life in reversed(self._published.lives(latest)):
            truth = self._replication.truths.get(LogKey(topic_id, partition, life))
            end = offset + len(numbers)
            if truth is not None and truth.committed[offset:end] == list(numbers):
                return LogKey(topic_id, partition, life)
        return latest

    def _read(
        self, client: int, topic_id: TopicId, partition: int, offset: int, numbers: Sequence[int]
    ) -> None:
        key = self._read_of(topic_id, partition, offset, numbers)
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
                self._promise(
                    f"client {client} read record {number} at {name} offset {position}, where"
                    f" record {committed[position]} is committed"
                )
                return
        if offset <= self.read_end.get(key, 0):
            self.read_end[key] = max(self.read_end.get(key, 0), offset + len(numbers))


def _is_committed(operation: Produce, committed: list[int]) -> bool:
    first = operation.base_offset
    numbers = list(operation.numbers)
    if first >= 0:
        return committed[first : first + len(numbers)] == numbers
    stored = dict.fromkeys(committed)
    return all(number in stored for number in numbers)
