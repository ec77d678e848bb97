"""kcat: what it sends comes back byte for byte, to it and to others."""

from __future__ import annotations

import pytest
from tests.clients import confluent
from tests.support.clients import kcat
from tests.support.clients.samples import CODECS, Headers, Record, stored_codecs

from tidelog.core.types import TopicPartition

pytestmark = kcat.needs_kcat

HEADERS: Headers = (("trace", b"\xc3\xa4=b"), ("a", b"1"), ("a", b"2"), ("none", None))


def records() -> list[Record]:
    """What kcat can send: no empty strings, one set of headers, no timestamps of ours."""
    every_byte = bytes(range(256))
    return [
        Record(b"key", b"value", HEADERS),
        Record(None, b"no key", HEADERS),
        Record(b"deleted", None, HEADERS),
        Record(every_byte, every_byte[::-1], HEADERS),
        Record(b"large", b"all work and no play\n" * 5_000, HEADERS),
    ]


def without_time(found: list[Record]) -> list[Record]:
    return [each._replace(timestamp_ms=None) for each in found]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_went(bootstrap: str, topic: str, codec: str) -> None:
    sent = kcat.write(bootstrap, topic, 0, codec, records())
    assert stored_codecs(bootstrap, TopicPartition(topic, 0)) == [codec]
    found = kcat.read(bootstrap, topic, 0)
    assert without_time(found) == sent
    assert confluent.read(bootstrap, topic, 0) == found


def test_all_topics_are_listed(bootstrap: str, topic: str) -> None:
    listed = kcat.run("-L", "-b", bootstrap).decode()
    assert " 3 brokers:" in listed
    assert f'topic "{topic}" with 1 partitions:' in listed
    assert "(controller)" in listed


def test_reading_ends_at_the_end_and_begins_at_an_offset(bootstrap: str, topic: str) -> None:
    kcat.write(bootstrap, topic, 0, "none", [Record(None, b"%d" % number) for number in range(10)])
    options = ("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-e", "-q")
    assert kcat.run(*options, "-o", "-3").split() == [b"7", b"8", b"9"]
    assert kcat.run(*options, "-o", "4", "-c", "2").split() == [b"4", b"5"]
    assert kcat.run(*options, "-o", "end") == b""
