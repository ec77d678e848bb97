"""One node that speaks enough of the protocol for the workload's tests: a log in a list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.sim import Running

from tidelog.core.errors import ErrorCode
from tidelog.core.ports import Transport
from tidelog.sim.batches import ReadBatch, read_batches
from tidelog.sim.simulator import Simulator
from tidelog.wire.codec import decode_request, encode_response
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.registry import API

TOPIC_ID = bytes(range(16))
SERVED = {0: (3, 11), 1: (4, 17), 3: (0, 12), 18: (0, 4), 19: (2, 7), 22: (0, 4)}


class FakeBroker:
    """Leads partition 0 of topic `t`; `script` holds the errors of the next produces."""

    def __init__(self, simulator: Simulator) -> None:
        self.running = Running(simulator.add_node(1, "broker1"))
        self.script: deque[ErrorCode | str] = deque()
        self.fetch_errors: deque[ErrorCode] = deque()
        self.batches: list[tuple[ReadBatch, bytes]] = []
        #: Refuse what comes behind a refused batch, as our brokers do and Kafka's do not (V38).
        self.keeps_order = False
        #: Sequence number of a refused batch, and its error.
        self._refused: tuple[int, ErrorCode] | None = None
        self.producer_ids = 0
        self.produces = 0
        self.high_watermark_lag = 0
        self.topic_id = TOPIC_ID
        self._answers: dict[int, Callable[[Any], Any]] = {
            0: self._produce, 1: self._fetch, 3: self._metadata, 18: self._versions,
            19: self._create, 22: self._producer_id,
        }  # fmt: skip
        self.running.spawn(self._listen())

    async def _listen(self) -> None:
        await self.running.ports.network.listen(
            "broker1", 9092, lambda transport: _Served(self, transport), 1 << 20
        )

    @property
    def numbers(self) -> list[int]:
        return [number for batch, _ in self.batches for number in batch.numbers]

    def answer(self, api_key: int, message: Any) -> Any:
        return self._answers[api_key](message)

    def _versions(self, _: Any) -> Any:
        return ApiVersionsResponse(
            api_keys=[ApiVersion(key, low, high) for key, (low, high) in SERVED.items()]
        )

    def _metadata(self, _: Any) -> Any:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=[partition])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="broker1", port=9092)],
            controller_id=1,
            topics=[topic],
        )

    def _create(self, message: Any) -> Any:
        names = [topic.name for topic in message.topics]
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=name, topic_id=TOPIC_ID) for name in names]
        )

    def _producer_id(self, _: Any) -> Any:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    def _produce(self, message: Any) -> Any:
        self.produces += 1
        raw = bytes(message.topic_data[0].partition_data[0].records)
        planned = self.script.popleft() if self.script else ErrorCode.NONE
        if self.keeps_order:
            planned = self._in_order(planned, raw)
        offset, error = -1, planned
        if planned in (ErrorCode.NONE, "silent", ErrorCode.REQUEST_TIMED_OUT):
            offset, appended = self._append(raw)
            error = appended if planned == ErrorCode.NONE else planned
        if error == "silent":
            return None
        assert isinstance(error, ErrorCode)
        part = PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
        return ProduceResponse(responses=[TopicProduceResponse("t", [part])])

    def _in_order(self, planned: ErrorCode | str, raw: bytes) -> ErrorCode | str:
        (batch,) = read_batches(raw)
        sequence = batch.base_sequence
        if self._refused is not None and sequence > self._refused[0]:
            return self._refused[1]
        self._refused = None
        if isinstance(planned, ErrorCode) and planned is not ErrorCode.NONE:
            self._refused = sequence, planned
        return planned

    def _append(self, raw: bytes) -> tuple[int, ErrorCode]:
        (batch,) = read_batches(raw)
        if batch.producer_id >= 0:
            identity = (batch.producer_id, batch.producer_epoch)
            known = [
                old for old, _ in self.batches if (old.producer_id, old.producer_epoch) == identity
            ]
            for old in known[-5:]:
                if old.base_sequence == batch.base_sequence:
                    return old.base_offset, ErrorCode.NONE
            expected = known[-1].base_sequence + len(known[-1].numbers) if known else 0
            if batch.base_sequence != expected:
                return -1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        offset = self.batches[-1][0].next_offset if self.batches else 0
        patched = offset.to_bytes(8, "big") + raw[8:]
        self.batches.append((batch._replace(base_offset=offset), patched))
        return offset, ErrorCode.NONE

    def _fetch(self, message: Any) -> Any:
        asked = message.topics[0].partitions[0]
        end = self.batches[-1][0].next_offset if self.batches else 0
        error = self.fetch_errors.popleft() if self.fetch_errors else ErrorCode.NONE
        if asked.fetch_offset > end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b"".join(
            raw for batch, raw in self.batches if batch.next_offset > asked.fetch_offset
        )
        part = PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=end - self.high_watermark_lag,
            records=b"" if error else records,
        )
        topic = FetchableTopicResponse(topic="t", topic_id=self.topic_id, partitions=[part])
        return FetchResponse(session_id=0, responses=[topic])


class _Served:
    """One accepted connection; a fetch that finds nothing is answered a little later."""

    def __init__(self, broker: FakeBroker, transport: Transport) -> None:
        self._broker = broker
        self._transport = transport

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            header, message = decode_request(memoryview(bytes(frame)))
            answer = self._broker.answer(header.api_key, message)
            if answer is None or (header.api_key == 0 and message.acks == 0):
                continue
            assert header.api_version <= API[header.api_key].max_version
            parts = encode_response(
                header.api_key, header.api_version, header.correlation_id, answer
            )
            if header.api_key == 1:
                self._broker.running.ports.clock.call_later(20, partial(self._send, parts))
            else:
                self._send(parts)

    def _send(self, parts: Any) -> None:
        self._transport.send(parts)

    def connection_lost(self, reason: str) -> None:
        pass

    def send_queue_changed(self, sent_bytes: int) -> None:
        pass
