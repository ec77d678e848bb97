"""Comparison of each response to a client, when it arrives, with the committed records.

A batch that is acknowledged with acks=all must be committed at its offset. Each record that a
consumer reads must be the committed record at its offset. `history_checker` finds missing,
duplicate and reordered records at the end of the run, from the clients' operations alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.batches import GONE
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.checkers.replication_checker import ReplicationChecker
from tidelog.sim.client_history import ClientHistory, Produce
from tidelog.sim.observed.replica_logs import LogKey


class ClientChecker(Checker):
    """Checker of the responses that the clients of one run got: which records they read, and in
    which order.
    """

    def __init__(
        self, run: CheckedRun, history: ClientHistory, replication: ReplicationChecker
    ) -> None:
        """Begin to follow `history`."""
        super().__init__(run)
        self._history = history
        self._replication = replication
        #: For each partition, the offset below which each record was read by at least one consumer.
        self.read_end: dict[LogKey, int] = {}
        history.on_acknowledged.append(self._acknowledged)
        history.on_read.append(self._read)
        history.sent_on.append(self._sent_on)
        history.sequence_refused.append(self._sequence_refused)
        history.anomaly.append(run.violate)
        history.broken_promise.append(self._promise)

    def _keys(self, name: str, partition: int) -> list[LogKey]:
        """Return a key for each incarnation of a partition, in all topics that ever had this name.

        A new incarnation begins when the partition was removed from its topic and is added again.
        """
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
        """Check a rejection of a producer's oldest open batch with OUT_OF_ORDER_SEQUENCE_NUMBER.

        A leader has every acknowledged record, so it must accept the oldest batch that has no
        response. A deposed leader that does not know of its successor may lack records that the
        successor acknowledged, so it may reject the batch (V65). Another rejection is allowed, as
        in Kafka: the response was lost, and retention removed the stored batch before the present
        leader could copy it as a follower. The present leader then has only later batches of the
        producer.
        """
        key = self._published.find(TopicPartition(operation.topic, operation.partition))
        if key is None:
            return
        if self._replication.has_skipped(key, broker_id, operation.numbers[-1]):
            self._history.expired_open.add(operation.numbers[0])
            return
        state = self._published.partitions.get(key)
        if (
            state is not None
            and state.leader == broker_id
            and state.led_since_ns <= operation.sent_ns[-1]
        ):
            self._promise(
                f"leader {broker_id} refused the sequence of the oldest open batch: {operation}"
            )

    def _sent_on(self, topic_id: TopicId, partition: int, position: int, log_start: int) -> None:
        """Count records below a new log start as read, because no consumer can read them any
        more.
        """
        key = self._published.key(topic_id, partition)
        read_end = self.read_end.get(key, 0)
        if position <= read_end:
            self.read_end[key] = max(read_end, log_start)

    def _read_of(
        self, topic_id: TopicId, partition: int, offset: int, numbers: Sequence[int]
    ) -> LogKey:
        """Return the incarnation of the partition from which a consumer got the records `numbers`:
        the newest incarnation that committed them, or the latest incarnation if none did.

        An incarnation ends when the partition is removed from its topic, by a request that only
        tidelog has. A leader that has not learned of the removal may still return its records.
        """
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
                    f"client {client} got no record at {name} offset {position}, and no"
                    " committed record explains that"
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
