"""What clients are made to send: keys, values, headers, timestamps that are easy to get wrong."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from tidelog.core.types import TopicPartition
from tidelog.records import compression
from tidelog.records.batch import iter_batches
from tidelog.runtime.blocking import BlockingClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as it was sent or read. Without a timestamp: its client chose one."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


def records() -> list[Record]:
    """Records that differ in every field; the last one makes compression worth while."""
    now_ms = time.time_ns() // 1_000_000
    every_byte = bytes(range(256))
    return [
        Record(b"key", b"value", (), now_ms),
        Record(None, b"no key", (), 1),
        Record(b"deleted", None, (), now_ms - 1),
        Record(b"", b"", (), 946_684_800_000),
        Record(every_byte, every_byte[::-1], (), 4_102_444_800_000),
        Record("größe".encode(), "値\n\t".encode(), (("text", b"1"),), now_ms),
        Record(
            b"headers",
            b"\0",
            (("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None), ("ünï", b"\x80\xff\x01")),
            now_ms + 5,
        ),
        Record(b"random", random.Random(1).randbytes(50_000), (), now_ms),
        Record(b"large", b"all work and no play " * 10_000, (), now_ms + 60_000),
    ]


def stored_codecs(bootstrap: str, tp: TopicPartition) -> list[str]:
    """The compressions that the batches of a partition have on the broker, each once."""
    found: dict[str, None] = {}
    with BlockingClient(bootstrap) as client:
        end = client.list_offsets({tp: -1})[tp].offset
        offset = 0
        while offset < end:
            for batch in iter_batches(client.fetch(tp, offset).records):
                found[compression.NAMES[batch.compression]] = None
                offset = batch.next_offset
    return list(found)
