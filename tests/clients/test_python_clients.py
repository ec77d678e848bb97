"""kafka-python and aiokafka: what they send comes back byte for byte, to them and to librdkafka.

Assigned partitions only: groups are not there yet.
"""

from __future__ import annotations

from types import ModuleType

import pytest
from kafka import codec as kafka_codec
from tests.clients import confluent, kafka_python
from tests.clients.conftest import MakeTopic
from tests.support.clients.samples import CODECS, records, stored_codecs

from tidelog.core.types import TopicPartition

#: What kafka-python can compress depends on further packages.
_KAFKA_PYTHON_HAS = {
    "none": True,
    "gzip": kafka_codec.has_gzip(),
    "snappy": kafka_codec.has_snappy(),
    "lz4": kafka_codec.has_lz4(),
    "zstd": kafka_codec.has_zstd(),
}


def client(name: str, codec: str) -> ModuleType:
    """The client, or a skip that says why it cannot be tested."""
    if name == "aiokafka":
        pytest.importorskip("aiokafka", reason="aiokafka is not installed")
        from tests.clients import aio

        return aio
    if not _KAFKA_PYTHON_HAS[codec]:
        pytest.skip(f"kafka-python has no library for {codec} here")
    return kafka_python


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_records_come_back_as_they_went(bootstrap: str, topic: str, name: str, codec: str) -> None:
    under_test = client(name, codec)
    sent = under_test.write(bootstrap, topic, 0, codec, records())
    # What would not get smaller may go uncompressed, in a batch of its own.
    assert codec in stored_codecs(bootstrap, TopicPartition(topic, 0))
    assert under_test.read(bootstrap, topic, 0) == sent
    assert confluent.read(bootstrap, topic, 0) == sent


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_they_read_what_librdkafka_sent(bootstrap: str, topic: str, name: str, codec: str) -> None:
    under_test = client(name, codec)
    sent = confluent.write(bootstrap, topic, 0, codec, records())
    assert under_test.read(bootstrap, topic, 0) == sent


def test_a_fetch_that_has_room_for_one_partition_reads_all_of_them(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """kafka-python checks answers as Java clients do: a full fetch must be answered with every
    partition, and what is not is thrown away and asked for again."""
    topic = make_topic(partitions=6)
    sent = {
        number: confluent.write(bootstrap, topic, number, "none", records()) for number in range(6)
    }
    found = kafka_python.read_all(bootstrap, topic, len(sent), fetch_max_bytes=1)
    assert found == sent
