"""Consumers that each read one assigned partition from its beginning, until they are stopped.

A consumer notices a new topic id, and reads a recreated topic from its beginning. A consumer whose
Fetch version has no topic ids reports only records that certainly belong to its topic. After
OFFSET_OUT_OF_RANGE, the consumer reads again from the partition's beginning. The log must not end
before the consumer's position, because the consumer read only committed records; a topic that is
being deleted is an exception.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tidelog.client.steps import Address
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicId, TopicPartition
from tidelog.history.operations import FAIL, OK, Operation
from tidelog.sim.batches import GONE, BrokenBatch, read_batches
from tidelog.sim.workload.client import ClientConnection, ClientNode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidelog.wire.registry import FETCH

MAX_WAIT_MS: Final = 300
_ANSWER_MARGIN_MS: Final = 1_500
_PARTITION_MAX_BYTES: Final = 4_096
#: Share of a patient consumer's fetches that wait for more bytes than most responses can have.
_PATIENT: Final = 0.5
_MANY_BYTES: Final = (1_000, 4_096, 100_000)
_LONG_WAIT_MS: Final = 2_500
_BACKOFF_MS: Final = (10, 150)
#: First version of Fetch that names topics by id.
_TOPIC_IDS_VERSION: Final = 13


class _BeginAgainError(KafkaError):
    """The error after which a consumer must read again from the partition's beginning."""


class SimPartitionConsumer:
    """A consumer of one partition."""

    def __init__(
        self,
        client: ClientNode,
        partition: TopicPartition,
        draw: random.Random,
        *,
        highest_version: int | None = None,
        gaps: bool = False,
        is_patient: bool = False,
    ) -> None:
        """`is_patient` means that some fetches request many bytes and wait for long (V61)."""
        self.client = client
        self.partition = partition
        self.stopping = False
        #: The consumer's name in histories.
        self.process = client.history.new_consumer(client.node_id)
        self.topic_id: TopicId = b""
        #: The next offset to read.
        self.position = 0
        self._draw = draw
        self._highest_version = highest_version
        self._is_patient = is_patient
        #: Whether the topic is compacted, so that offsets may be missing.
        self.gaps = gaps

    async def run(self) -> None:
        """Read until stopped."""
        while not self.stopping:
            try:
                leader, topic = await self.client.leader_of(self.partition)
                self._follow(topic.topic_id)
                leader_epoch = topic.partitions[self.partition.partition].leader_epoch
                await self._fetch_for_long(leader.address, topic.topic_id, leader_epoch)
            except TidelogError:
                self.client.router.forget()
                await self.client.tasks.sleep(self._draw.randrange(*_BACKOFF_MS))

    def _follow(self, topic_id: TopicId) -> None:
        history = self.client.history
        if topic_id == self.topic_id:
            return
        if topic_id in history.topics and self.topic_id in history.topics:
            known, new = history.topics[self.topic_id], history.topics[topic_id]
            if new.created_ns < known.created_ns:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "a broker with old metadata")
        history.topic_created(self.partition.topic, topic_id, self.client.now_ns)
        self.topic_id = topic_id
        self._begin_again("assign")

    @property
    def _name(self) -> str:
        """Name of the partition, with the topic's id, as histories name it."""
        return f"{self.partition.topic}@{self.topic_id.hex()}-{self.partition.partition}"

    def _begin_again(self, kind: str) -> None:
        self.position = 0
        now_ns = self.client.now_ns
        self.client.history.operations.append(
            Operation(self.process, kind, now_ns, now_ns, partitions={self._name: 0})
        )

    async def _fetch_for_long(self, address: Address, topic_id: TopicId, leader_epoch: int) -> None:
        """Fetch from one leader until it responds with an error."""
        connection = await self.client.connection(address)
        version = connection.version(FETCH, self._highest_version)
        while not self.stopping:
            asked = FetchPartition(
                partition=self.partition.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=self.position,
                partition_max_bytes=_PARTITION_MAX_BYTES,
            )
            topic = FetchTopic(topic=self.partition.topic, topic_id=topic_id, partitions=[asked])
            min_bytes, max_wait_ms = 1, MAX_WAIT_MS
            if self._is_patient and self._draw.random() < _PATIENT:
                min_bytes, max_wait_ms = self._draw.choice(_MANY_BYTES), _LONG_WAIT_MS
            request = FetchRequest(
                max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, topics=[topic]
            )
            await self._fetch(connection, version, request)

    async def _fetch(
        self, connection: ClientConnection, version: int, request: FetchRequest
    ) -> None:
        """Fetch once, and record the operation in the history as a poll."""
        begin_ns = self.client.now_ns
        records: list[tuple[int, int]] = []
        name, outcome = self._name, FAIL
        try:
            timeout_ms = request.max_wait_ms + _ANSWER_MARGIN_MS
            answer = await connection.call(FETCH, version, request, timeout_ms)
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode(answer.error_code), "fetch")
            for response in answer.responses:
                for data in response.partitions:
                    self._take(data, records, by_id=version >= _TOPIC_IDS_VERSION)
            outcome = OK
        except _BeginAgainError as error:
            self._poll_ends(name, begin_ns, outcome, records)
            self._begin_again("seek")
            raise KafkaError(error.code, error.message) from None
        except TidelogError:
            self._poll_ends(name, begin_ns, outcome, records)
            raise
        self._poll_ends(name, begin_ns, outcome, records)

    def _poll_ends(
        self, name: str, begin_ns: int, outcome: str, records: list[tuple[int, int]]
    ) -> None:
        self.client.history.operations.append(
            Operation(
                self.process,
                "poll",
                begin_ns,
                self.client.now_ns,
                OK if records else outcome,
                records={name: records},
            )
        )

    def _take(self, data: PartitionData, records: list[tuple[int, int]], *, by_id: bool) -> None:
        error = ErrorCode(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and self._is_sent_on(data):
            return
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(data, by_id=by_id)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"fetch of {self.partition}")
        if data.records is None:
            return
        try:
            batches = list(read_batches(_bytes(data.records)))
        except BrokenBatch as error_:
            self.client.history.anomaly(f"a consumer of {self.partition} got a bad batch: {error_}")
            return
        for batch in batches:
            if batch.next_offset <= self.position:
                continue
            skipped = self.position - batch.base_offset
            numbers = batch.numbers[max(skipped, 0) :]
            if skipped < 0 and self.gaps:
                numbers = (GONE,) * -skipped + numbers
            elif skipped < 0:
                self.client.history.anomaly(
                    f"a consumer of {self.partition} asked from {self.position} and got a batch"
                    f" at {batch.base_offset}"
                )
                skipped = 0
            if batch.next_offset > data.high_watermark:
                self.client.history.anomaly(
                    f"a consumer of {self.partition} got offsets up to"
                    f" {batch.next_offset} with the high watermark at {data.high_watermark}"
                )
            history = self.client.history
            if not by_id and not history.is_settled(self.partition.topic, self.topic_id):
                raise _BeginAgainError(ErrorCode.UNKNOWN_TOPIC_ID, "the name may be another's")
            history.read(
                self.client.node_id,
                self.topic_id,
                self.partition.partition,
                batch.base_offset + skipped,
                numbers,
            )
            first = batch.base_offset + skipped
            records += [(at, number) for at, number in enumerate(numbers, first) if number != GONE]
            self.position = batch.next_offset

    def _out_of_range(self, data: PartitionData, *, by_id: bool) -> None:
        """Handle OFFSET_OUT_OF_RANGE: report a broken promise, and raise _BeginAgainError.

        All records below the position were committed, so a leader must have them.
        """
        life = self.client.history.topics.get(self.topic_id)
        if by_id and life is not None and life.deletion_begun_ns < 0:
            self.client.history.broken_promise(
                f"a consumer of {self.partition} has read up to {self.position}, and the broker"
                f" responded that this is out of range (log start {data.log_start_offset}, high"
                f" watermark {data.high_watermark})"
            )
        raise _BeginAgainError(ErrorCode.OFFSET_OUT_OF_RANGE, f"fetch of {self.partition}")

    def _is_sent_on(self, data: PartitionData) -> bool:
        """Return whether DeleteRecords removed the records at the position; if so, continue at the
        log start.

        The log start must not be above the offset of the request.
        """
        history = self.client.history
        key = (self.topic_id, self.partition.partition)
        start = data.log_start_offset
        if not self.position < start <= history.deleted_before.get(key, 0):
            return False
        history.sent_on(*key, self.position, start)
        self.position = start
        return True


def _bytes(records: Any) -> bytes:
    if isinstance(records, bytes | bytearray | memoryview):
        return bytes(records)
    return b"".join(records)
