"""Checks of producing and reading, the same for every client."""

from __future__ import annotations

import time
from functools import partial

import pytest
from tests.clients import confluent
from tests.clients.matrix.driver import EARLIEST, LATEST, Refused
from tests.clients.matrix.harness import ClientHarness
from tests.support.clients.librdkafka import value_of
from tests.support.clients.samples import Record, records, stored_codecs

from tidelog.core.types import TopicPartition

#: Acknowledged before the leader's death and, of what is sent after it, afterwards.
ENOUGH = 500


def _bare(found: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key or None, each.value or None) for each in found]


def _compression(harness: ClientHarness, codec: str) -> None:
    topic = harness.make_topic()
    text = [Record(b"key %d" % n, b"all work and no play " * 200) for n in range(50)]
    sent = harness.driver.write(topic, 0, codec, text)
    assert stored_codecs(harness.cluster.bootstrap, TopicPartition(topic, 0)) == [codec]
    assert _bare(harness.driver.read(topic, 0)) == _bare(sent) == _bare(text)
    assert _bare(confluent.read(harness.cluster.bootstrap, topic, 0)) == _bare(text)
    # What another client compressed, and in one batch.
    other = harness.make_topic()
    confluent.write(harness.cluster.bootstrap, other, 0, codec, text)
    assert _bare(harness.driver.read(other, 0)) == _bare(text)


none, gzip, snappy, lz4, zstd = (
    partial(_compression, codec=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")
)


def keys_and_headers(harness: ClientHarness) -> None:
    """Any bytes in keys, values and headers; a name twice; nothing is not empty."""
    topic = harness.make_topic()
    sent = harness.driver.write(topic, 0, "none", records())
    found = [each._replace(timestamp_ms=None) for each in harness.driver.read(topic, 0)]
    assert found == [each._replace(timestamp_ms=None) for each in sent]
    by_librdkafka = confluent.read(harness.cluster.bootstrap, topic, 0)
    assert [each._replace(timestamp_ms=None) for each in by_librdkafka] == found
    assert len(found) == len(records())
    assert any(each.headers for each in found)


def keys_and_headers_of_a_command(harness: ClientHarness) -> None:
    """For a command: the same headers for all, given as text, and nothing that is empty."""
    topic = harness.make_topic()
    every_byte = bytes(range(256))
    headers = (("trace", b"\xc3\xa4=b"), ("a", b"1"), ("a", b"2"), ("none", None))
    sent = [
        Record(b"key", b"value", headers),
        Record(None, b"no key", headers),
        Record(b"deleted", None, headers),
        Record(every_byte, every_byte[::-1], headers),
    ]
    harness.driver.write(topic, 0, "none", sent)
    found = harness.driver.read(topic, 0)
    assert [each._replace(timestamp_ms=None) for each in found] == sent
    assert confluent.read(harness.cluster.bootstrap, topic, 0) == found


def timestamps(harness: ClientHarness) -> None:
    topic = harness.make_topic()
    sent = records()
    times = [each.timestamp_ms for each in sent]
    harness.driver.write(topic, 0, "none", sent)
    assert [each.timestamp_ms for each in harness.driver.read(topic, 0)] == times
    by_librdkafka = confluent.read(harness.cluster.bootstrap, topic, 0)
    assert [each.timestamp_ms for each in by_librdkafka] == times


def timestamps_of_its_own(harness: ClientHarness) -> None:
    """The client's clock, between ours before and after."""
    topic = harness.make_topic()
    before_ms = time.time_ns() // 1_000_000
    harness.driver.write(topic, 0, "none", [Record(b"k", b"v")])
    after_ms = time.time_ns() // 1_000_000
    [found] = harness.driver.read(topic, 0)
    assert found.timestamp_ms is not None
    assert before_ms <= found.timestamp_ms <= after_ms


def idempotence(harness: ClientHarness) -> None:
    """The leader is killed under a producer: nothing lost, doubled or out of order."""
    topic = harness.make_topic()
    writer = harness.driver.start_writer(topic, 0)
    try:
        harness.await_end(topic, ENOUGH)
        leader = harness.leader(topic, 0)
        with harness.killed(leader):
            harness.await_end(topic, harness.end(topic) + ENOUGH)
            assert harness.leader(topic, 0) != leader
    finally:
        sent = writer.stop()
    found = [
        int(value_of(message))
        for message in confluent.read_messages(harness.cluster.bootstrap, topic, [0])
    ]
    assert found == list(range(sent))


def transactions_are_refused(
    harness: ClientHarness, error: str = "transactional id authorization"
) -> None:
    """By name, and long before the client's own patience ends, which would be another error."""
    with pytest.raises(Refused) as refused:
        harness.driver.init_transactions("some id")
    said = str(refused.value).lower().replace("_", "").replace(" ", "")
    assert error.replace(" ", "") in said, refused.value


#: kafkajs drops the error of a broker that it asked, and asks the next; this is what it raises.
transactions_find_no_coordinator = partial(
    transactions_are_refused, error="failed to find group coordinator"
)


def assignment_and_seek(harness: ClientHarness) -> None:
    topic = harness.make_topic(2)
    harness.fill(topic, 0, 5)
    harness.fill(topic, 1, 100)
    values = [b"%d" % number for number in range(100)]
    assert [each.value for each in harness.driver.read(topic, 1)] == values
    assert harness.driver.read_values(topic, 1, 42) == values[42:]
    assert harness.driver.read_values(topic, 1, 100) == []


def seek_by_time(harness: ClientHarness) -> None:
    topic = harness.make_topic()
    for first in (0, 50):
        harness.fill(topic, 0, 50, first)
    values = [b"%d" % number for number in range(100)]
    for timestamp_ms, first in ((1_000_000, 0), (1_000_495, 50), (1_000_990, 99)):
        assert harness.driver.read_values_since(topic, 0, timestamp_ms) == values[first:]


def list_offsets(harness: ClientHarness) -> None:
    topic = harness.make_topic()
    assert harness.driver.offset(topic, 0, LATEST) == 0
    harness.fill(topic, 0, 100)
    expected: dict[str | int, int] = {EARLIEST: 0, LATEST: 100, 0: 0, 1_000_001: 1, 1_000_990: 99}
    assert {at: harness.driver.offset(topic, 0, at) for at in expected} == expected
    assert harness.driver.offset(topic, 0, 1_000_991) == -1


def latest_offset_by_time(harness: ClientHarness) -> None:
    """For clients that answer the end where no record is as young."""
    topic = harness.make_topic()
    harness.fill(topic, 0, 100)
    expected: dict[str | int, int] = {
        EARLIEST: 0,
        LATEST: 100,
        0: 0,
        1_000_001: 1,
        1_000_990: 99,
        1_000_991: 100,
    }
    assert {at: harness.driver.offset(topic, 0, at) for at in expected} == expected
