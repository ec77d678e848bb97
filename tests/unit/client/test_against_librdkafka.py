"""Client, planning and decoding against brokers that are not ours: librdkafka's mock cluster.

What librdkafka produced is read back through our requests. Its mock brokers end flexible answers
with a byte that does not belong there (its own client does not look), so older versions are spoken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import parse_options
from tidelog.spark.planning import plan_ranges
from tidelog.spark.reading import read_range
from tidelog.wire.peer import Peer
from tidelog.wire.registry import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE

OLDER = {METADATA: 8, FETCH: 11, LIST_OFFSETS: 5, PRODUCE: 8, INIT_PRODUCER_ID: 1}
PARTITIONS = 4


@pytest.fixture
def older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    version = Peer.version

    def older(peer: Peer, api_key: int, highest: int | None = None) -> int:
        known = OLDER[api_key]
        return version(peer, api_key, known if highest is None else min(highest, known))

    monkeypatch.setattr(Peer, "version", older)


def produced(compression: str) -> Iterator[tuple[str, Any]]:
    """A mock cluster with 2,000 records; the brokers live as long as the producer."""
    producer = Producer(
        {
            "test.mock.num.brokers": 3,
            "compression.type": compression,
            "linger.ms": 20,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    brokers = producer.list_topics(timeout=10).brokers.values()
    bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    for number in range(2_000):
        producer.produce(
            "t",
            key=b"k%d" % (number % 7),
            value=b"value-%d" % number,
            partition=number % PARTITIONS,
            timestamp=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)] if number % 3 == 0 else None,
        )
    assert producer.flush(20) == 0
    yield bootstrap, producer


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_produced_is_read_back(older_versions: None, compression: str) -> None:
    for bootstrap, _producer in produced(compression):
        options = parse_options(
            {"kafka.bootstrap.servers": bootstrap, "subscribe": "t", "includeHeaders": "true"}
        )
        with BlockingClient(bootstrap, timeout_ms=10_000) as client:
            latest = client.list_offsets({TopicPartition("t", 1): -1})
            assert latest[TopicPartition("t", 1)].offset == 2_000 // PARTITIONS
            ranges = plan_ranges(client, options)
        batches = [batch for each in ranges for batch in read_range(options, each)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert len(rows) == 2_000
        for row in rows:
            number = row["offset"] * PARTITIONS + row["partition"]
            assert row["value"] == b"value-%d" % number
            assert row["key"] == b"k%d" % (number % 7)
            assert row["timestamp"].timestamp() * 1000 == pytest.approx(1_700_000_000_000 + number)
            expected = [{"key": "n", "value": b"%d" % number}] if number % 3 == 0 else None
            assert row["headers"] == expected
