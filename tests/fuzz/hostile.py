"""Bytes that no client should send, each kind from a seeded source: equal seeds, equal bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.wire.codec import encode_request
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.registry import API, PRODUCE

#: Numbers that limits are made for.
_EXTREMES = (-1, -2, 0, 1, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**31 - 1, -(2**31), 2**31 - 2)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def valid_request(draw: random.Random, *, clients_only: bool = True) -> bytes:
    """The body of an empty request that a broker would decode."""
    apis = [api for api in API.values() if not (clients_only and api.inter_broker)]
    api = draw.choice(apis)
    version = draw.randint(api.min_version, api.max_version)
    parts = encode_request(api.key, version, draw.randrange(1000), "fuzz", api.request())
    return b"".join(bytes(part) for part in parts)[4:]


def noise(draw: random.Random) -> bytes:
    """Bytes without any sense, which a broker takes as a size and the start of a frame."""
    return draw.randbytes(draw.randrange(1, 2000))


def framed_noise(draw: random.Random) -> bytes:
    """A frame of random bytes."""
    return framed(draw.randbytes(draw.randrange(0, 2000)))


def lying_size(draw: random.Random) -> bytes:
    """A size prefix that is negative, far too large, or simply not true."""
    return struct.pack(">i", draw.choice(_EXTREMES)) + draw.randbytes(draw.randrange(64))


def header_with_noise(draw: random.Random) -> bytes:
    """A right header of a real API and version, and a body that is none."""
    api = draw.choice(list(API.values()))
    version = draw.randint(api.min_version - 1, api.max_version + 1)
    head = struct.pack(">hhih", api.key, version, draw.randrange(2**31), -1)
    return framed(head + draw.randbytes(draw.randrange(0, 500)))


def unknown_api(draw: random.Random) -> bytes:
    """An API or a version that nobody speaks."""
    key, version = draw.randrange(-(2**15), 2**15), draw.randrange(-(2**15), 2**15)
    return framed(struct.pack(">hhih", key, version, 1, -1))


def cut_request(draw: random.Random) -> bytes:
    """A frame that ends before its request does; of brokers' requests as well."""
    body = valid_request(draw, clients_only=False)
    return framed(body[: draw.randrange(len(body))])


def half_a_frame(draw: random.Random) -> bytes:
    """A frame whose rest never comes."""
    frame = framed(valid_request(draw))
    return frame[: draw.randrange(1, len(frame))]


def changed_request(draw: random.Random) -> bytes:
    """A request with some bytes changed."""
    body = bytearray(valid_request(draw))
    for _ in range(draw.randint(1, 4)):
        body[draw.randrange(8, len(body))] = draw.randrange(256)
    return framed(bytes(body))


def huge_arrays(draw: random.Random) -> bytes:
    """Lengths that claim what the bytes present cannot hold."""
    body = bytearray(valid_request(draw))
    position = draw.randrange(8, len(body) + 1)
    claim = draw.choice(
        (struct.pack(">i", draw.choice(_EXTREMES)), b"\xff\xff\xff\xff\x07", b"\xff" * 12)
    )
    body[position:position] = claim
    return framed(bytes(body))


def bad_batch(draw: random.Random) -> bytes:
    """A Produce request whose batch is damaged somewhere."""
    records = [NewRecord(b"k", draw.randbytes(50)) for _ in range(draw.randint(1, 5))]
    producer = Producer(draw.choice((-1, 5)), 0, 0)
    batch = build_batch(records, codec=draw.randrange(5), producer=producer)
    for _ in range(draw.randint(1, 3)):
        batch[draw.randrange(len(batch))] = draw.randrange(256)
    return produce_request(bytes(batch[: draw.randrange(20, len(batch) + 1)]))


def produce_request(records: bytes, topic: str = "fuzzed", acks: int = -1) -> bytes:
    """A whole frame that produces these bytes to partition 0."""
    data = PartitionProduceData(index=0, records=memoryview(records))
    message = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return b"".join(bytes(part) for part in encode_request(PRODUCE, 9, 1, "fuzz", message))


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    noise,
    framed_noise,
    lying_size,
    header_with_noise,
    unknown_api,
    cut_request,
    half_a_frame,
    changed_request,
    huge_arrays,
    bad_batch,
)
