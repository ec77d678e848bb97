"""Bytes that no client should send, drawn from a seed: equal seeds, equal bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.support.cluster.raw_connections import MIB, request, sized
from tests.support.requests.by_version import (
    CLIENT_APIS,
    SERVED,
    produce_of,
    sensible_request,
    versions_of,
)

from tidelog.core.limits import MAX_REQUEST_BYTES
from tidelog.records import compression
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.wire.registry import API, PRODUCE

#: Numbers that limits are made for.
EXTREMES = (-1, -2, 0, 1, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**31 - 1, -(2**31), 2**31 - 2)


class HostileBytes:
    """Streams of bytes, each for a connection of its own; `topic` has one partition."""

    def __init__(self, draw: random.Random, topic: str, topic_id: bytes) -> None:
        self._draw = draw
        self._topic = topic
        self._topic_id = topic_id
        self.kinds: tuple[Callable[[], bytes], ...] = (
            self.noise,
            self.framed_noise,
            self.lying_size,
            self.far_too_much,
            self.unknown_api,
            self.header_with_noise,
            self.valid_and_more,
            self.half_a_frame,
            self.cut_request,
            self.huge_lengths,
            self.damaged_batch,
            self.changed_request,
            self.changed_requests,
        )

    def noise(self) -> bytes:
        """Bytes without any sense, which a broker takes as a size and the start of a frame."""
        return self._bytes(2_000)

    def framed_noise(self) -> bytes:
        """A frame of random bytes."""
        return sized(self._bytes(500))

    def lying_size(self) -> bytes:
        """A size that is negative, far too large, or simply not true."""
        size = self._draw.choice([*EXTREMES, self._draw.randrange(-(2**31), 2**31)])
        return sized(self._bytes(5_000), size)

    def far_too_much(self) -> bytes:
        """Megabytes behind a random size, or behind one that more might follow."""
        if self._draw.random() < 0.5:
            return self._bytes(5) + bytes(self._draw.randrange(3 * MIB))
        return sized(b"", self._draw.randrange(MIB, MAX_REQUEST_BYTES)) + bytes(2 * MIB)

    def unknown_api(self) -> bytes:
        """An API or a version that nobody speaks."""
        key, version = (self._draw.randrange(-(2**15), 2**15) for _ in range(2))
        return sized(struct.pack(">hhih", key, version, 1, -1) + self._bytes(100))

    def header_with_noise(self) -> bytes:
        """A right header of a real API, at a version in reach, and a body that is none."""
        key = self._draw.choice(sorted(SERVED))
        versions = versions_of(key)
        version = self._draw.randint(versions[0] - 1, versions[-1] + 1)
        head = struct.pack(">hhih", key, version, self._draw.randrange(2**31), -1)
        return sized(head + self._draw.choice([b"", b"\0"]) + self._bytes(300))

    def valid_and_more(self) -> bytes:
        return self._valid() + self._bytes(50)

    def half_a_frame(self) -> bytes:
        """A frame whose rest never comes."""
        frame = self._valid()
        return frame[: self._draw.randrange(1, len(frame))]

    def cut_request(self) -> bytes:
        """A frame that ends before its request does; of brokers' requests as well."""
        body = self._valid(self._draw.choice(sorted(SERVED)))[4:]
        return sized(body[: self._draw.randrange(len(body))])

    def huge_lengths(self) -> bytes:
        """Lengths that claim what the bytes present cannot hold."""
        body = bytearray(self._valid()[4:])
        at = self._draw.randrange(8, len(body) + 1)
        number = struct.pack(">i", self._draw.choice(EXTREMES))
        body[at:at] = self._draw.choice([number, b"\xff\xff\xff\xff\x07", b"\xff" * 12])
        return sized(bytes(body))

    def damaged_batch(self) -> bytes:
        """A Produce whose batch is damaged somewhere, half of the time under a right CRC."""
        records = [NewRecord(b"k", self._draw.randbytes(50)) for _ in range(self._randint(1, 5))]
        codec = self._draw.choice(list(compression.NAMES))
        producer = Producer(self._draw.choice([-1, 5]), 0, 0)
        batch = build_batch(records, codec=codec, producer=producer)
        for _ in range(self._randint(1, 3)):
            batch[self._draw.randrange(len(batch))] = self._draw.randrange(256)
        if self._draw.random() < 0.5:
            struct.pack_into(">I", batch, 17, BatchView(batch).computed_crc())
        else:
            del batch[self._draw.randrange(20, len(batch) + 1) :]
        version = self._draw.choice(versions_of(PRODUCE))
        return request(PRODUCE, version, produce_of(batch, self._topic))

    def changed_request(self) -> bytes:
        """A valid request with bytes replaced, taken out or put in behind its API and version."""
        body = bytearray(self._valid()[4:])
        for _ in range(self._randint(1, 4)):
            at = self._draw.randrange(4, len(body) + 1)
            match self._draw.choice(["replace", "take", "length", "put"]):
                case "replace":
                    body[at : at + 1] = self._bytes(3)
                case "take":
                    del body[at : at + self._randint(1, 7)]
                case "length":
                    body[at : at + 4] = struct.pack(">i", self._draw.choice(EXTREMES))
                case "put":
                    body[at:at] = self._bytes(20)
        return sized(bytes(body))

    def changed_requests(self) -> bytes:
        return b"".join(self.changed_request() for _ in range(self._draw.randrange(20)))

    def _bytes(self, most: int) -> bytes:
        return self._draw.randbytes(self._draw.randrange(most))

    def _randint(self, least: int, most: int) -> int:
        return self._draw.randint(least, most)

    def _valid(self, api_key: int | None = None) -> bytes:
        """A whole frame that a broker would answer, of a client's API if none is named."""
        api_key = self._draw.choice(CLIENT_APIS) if api_key is None else api_key
        version = self._draw.choice(versions_of(api_key))
        if api_key in CLIENT_APIS:
            message = sensible_request(api_key, version, self._topic, self._topic_id)
        else:
            message = API[api_key].request()
        return request(api_key, version, message, self._draw.randrange(2**31))
