"""Micro benchmark of the wire codecs: `python bench/wire.py [seconds per line]`, µs per operation.

Each line is the best of five rounds, as the others only measure the machine's other work. The
collector is off, as brokers freeze what they load and collect rarely; on, big messages decode at
half the speed.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from tidelog.wire.codec import decode_request, decode_response, encode_request, encode_response
from tidelog.wire.frames import FrameReader
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = bytes(range(16))
RECORDS = bytes(1 << 20)


def produce() -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=RECORDS)
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData("flights", [partition])]
    )


def produce_response() -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, base_offset=1 << 33, log_start_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse("flights", [partition])])


def fetch(partitions: int) -> FetchRequest:
    asked = [
        FetchPartition(
            partition=each,
            current_leader_epoch=5,
            fetch_offset=1000 + each,
            last_fetched_epoch=5,
            partition_max_bytes=1 << 20,
        )
        for each in range(partitions)
    ]
    topics = [FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=asked)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=3, topics=topics)


def fetch_response(partitions: int, records: bytes = b"") -> FetchResponse:
    data = [
        PartitionData(
            partition_index=each,
            high_watermark=1 << 33,
            last_stable_offset=1 << 33,
            log_start_offset=0,
            aborted_transactions=None,
            records=records,
        )
        for each in range(partitions)
    ]
    topics = [FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=data)]
    return FetchResponse(session_id=7, responses=topics)


def leader_and_isr(partitions: int) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrPartitionState(
            partition_index=each,
            controller_epoch=4,
            leader=each % 3,
            leader_epoch=9,
            isr=[0, 1, 2],
            partition_epoch=12,
            replicas=[0, 1, 2],
        )
        for each in range(partitions)
    ]
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
    return LeaderAndIsrRequest(controller_id=1, topic_states=[topic])


def update_metadata(partitions: int) -> UpdateMetadataRequest:
    states = [
        UpdateMetadataPartitionState(
            partition_index=each, leader=each % 3, isr=[0, 1, 2], replicas=[0, 1, 2]
        )
        for each in range(partitions)
    ]
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
    return UpdateMetadataRequest(controller_id=1, topic_states=[topic])


def metadata_response(partitions: int) -> MetadataResponse:
    states = [
        MetadataResponsePartition(
            partition_index=each,
            leader_id=each % 3,
            leader_epoch=9,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for each in range(partitions)
    ]
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=states)])


def microseconds(operation: Callable[[], Any], seconds: float) -> float:
    """The best time of one call, over five rounds."""
    operation()
    started = time.perf_counter()
    operation()
    count = max(1, int(seconds / 5 / max(1e-7, time.perf_counter() - started)))
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(count):
            operation()
        best = min(best, (time.perf_counter() - started) / count)
    return best * 1e6


def small_frames() -> Callable[[], Any]:
    """A read of 256 KiB that holds 2,048 frames."""
    reader = FrameReader(first_buffer_bytes=256 * 1024)
    stream = (b"\0\0\0\x7c" + bytes(124)) * 2048
    reader.get_buffer()[:] = stream

    def split() -> None:
        reader.get_buffer()
        assert len(reader.received(len(stream))) == 2048

    return split


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    gc.disable()
    lines: list[tuple[str, Callable[[], Any]]] = []
    requests = [
        ("Produce 9, 1 partition of 1 MiB", 0, 9, produce()),
        ("Fetch 12, 1 partition", 1, 12, fetch(1)),
        ("Fetch 17, session, no partition", 1, 17, FetchRequest(session_id=7)),
        ("Fetch 12, 1,000 partitions", 1, 12, fetch(1000)),
        ("Fetch 17, 1,000 partitions", 1, 17, fetch(1000)),
        ("LeaderAndIsr 7, 10,000 partitions", 4, 7, leader_and_isr(10_000)),
        ("UpdateMetadata 8, 10,000 partitions", 6, 8, update_metadata(10_000)),
    ]
    responses = [
        ("Produce 9 answer, 1 partition", 0, 9, produce_response()),
        ("Fetch 17 answer, empty session", 1, 17, FetchResponse(session_id=7)),
        ("Fetch 17 answer, 1 partition of 1 MiB", 1, 17, fetch_response(1, RECORDS)),
        ("Fetch 17 answer, 1,000 partitions", 1, 17, fetch_response(1000)),
        ("Fetch 17 answer, 1,000 x 2 KiB", 1, 17, fetch_response(1000, bytes(2048))),
        ("Metadata 12 answer, 10,000 partitions", 3, 12, metadata_response(10_000)),
    ]
    for name, key, version, message in requests:
        frame = memoryview(b"".join(encode_request(key, version, 1, "bench", message)))[4:]
        lines.append(
            (f"encode {name}", lambda k=key, v=version, m=message: encode_request(k, v, 1, "b", m))
        )
        lines.append((f"decode {name}", lambda f=frame: decode_request(f)))
    for name, key, version, message in responses:
        frame = memoryview(b"".join(encode_response(key, version, 1, message)))[4:]
        lines.append(
            (f"encode {name}", lambda k=key, v=version, m=message: encode_response(k, v, 1, m))
        )
        lines.append((f"decode {name}", lambda k=key, v=version, f=frame: decode_response(k, v, f)))
    lines.append(("split 256 KiB into 2,048 frames", small_frames()))
    for name, operation in lines:
        print(f"{name:48} {microseconds(operation, seconds):12.2f} µs")


if __name__ == "__main__":
    main()
