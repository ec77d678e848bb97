"""A fake cluster that takes batches as leaders do: sequences are checked, duplicates recognised.

A test scripts what goes wrong: `before` may answer a Produce request without the log, `after` may
replace the response or break the connection once the batches are stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tests.support.client.fake_cluster import FakeCluster

from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView, check
from tidelog.records.reader import Record, iter_records
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.registry import INIT_PRODUCER_ID, PRODUCE

NOT_LEADER = 6
TOO_LARGE = 10
OUT_OF_ORDER = 45
_REMEMBERED = 5


class FakeLeaders(FakeCluster):
    """Brokers whose partitions are lists of batches; any broker can lead."""

    def __init__(self, count: int = 1) -> None:
        super().__init__(count)
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.max_message_bytes = 1 << 20
        self.before: Callable[[int, ProduceRequest], Any] = lambda broker, request: None
        self.after: Callable[[int, ProduceRequest, ProduceResponse], Any] = (
            lambda broker, request, response: response
        )
        self._seen: dict[tuple[TopicPartition, int], list[tuple[int, int]]] = {}
        self._next_producer = 1000
        for broker in self.brokers:
            broker.on(PRODUCE, functools.partial(self._produce, broker.node_id))
            broker.on(INIT_PRODUCER_ID, lambda _: self._producer_id())

    def create(self, topic: str, leaders: list[int]) -> None:
        self.topics[topic] = leaders
        for number in range(len(leaders)):
            self.batches.setdefault(TopicPartition(topic, number), [])

    def records(self, topic: str, partition: int) -> list[Record]:
        held = self.batches[TopicPartition(topic, partition)]
        return [record for batch in held for record in iter_records(BatchView(batch))]

    def values(self, topic: str, partition: int) -> list[bytes | None]:
        return [record.value for record in self.records(topic, partition)]

    def _producer_id(self) -> InitProducerIdResponse:
        self._next_producer += 1
        return InitProducerIdResponse(producer_id=self._next_producer, producer_epoch=0)

    def _produce(self, node: int, request: ProduceRequest) -> Any:
        answer = self.before(node, request)
        if answer is None:
            response = self._stored(node, request)
            answer = self.after(node, request, response)
        return None if request.acks == 0 and isinstance(answer, ProduceResponse) else answer

    def _stored(self, node: int, request: ProduceRequest) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            answer = TopicProduceResponse(name=topic.name)
            for each in topic.partition_data:
                tp = TopicPartition(topic.name, each.index)
                code = self._append(node, tp, _joined(each.records))
                answer.partition_responses.append(
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=0)
                )
            topics.append(answer)
        return ProduceResponse(responses=topics)

    def _append(self, node: int, tp: TopicPartition, data: bytes) -> int:
        if self.topics[tp.topic][tp.partition] != node:
            return NOT_LEADER
        if len(data) > self.max_message_bytes:
            return TOO_LARGE
        batch = BatchView(data)
        check(batch)
        if batch.has_producer_id:
            seen = self._seen.setdefault((tp, batch.producer_id), [])
            if (batch.base_sequence, batch.last_sequence) in seen[-_REMEMBERED:]:
                return 0
            if batch.base_sequence != (seen[-1][1] + 1 if seen else 0):
                return OUT_OF_ORDER
            seen.append((batch.base_sequence, batch.last_sequence))
        self.batches[tp].append(data)
        return 0


def _joined(records: Any) -> bytes:
    return bytes(records) if not isinstance(records, list) else b"".join(records)


def answer_all(request: ProduceRequest, code: int, **more: Any) -> ProduceResponse:
    """Return a response with one error for every partition."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=each.index, error_code=code, base_offset=-1, **more
                    )
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
