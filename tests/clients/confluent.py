"""Producing and reading with librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from tests.support.clients.samples import Headers, Record

PATIENCE_S = 30.0


def write(
    bootstrap: str, topic: str, partition: int, codec: str, records: Sequence[Record]
) -> list[Record]:
    """Send records in order, as one batch; return what was acknowledged.

    The flush ends the wait for more records. librdkafka does not compress a batch that is smaller
    without, as one of a single small record is: a wait that ends before it would leave one.
    """
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": PATIENCE_S * 1000,
            "acks": "all",
        }
    )
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=partition,
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers),
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failures
    return list(records)


def read_messages(bootstrap: str, topic: str, partitions: Sequence[int]) -> list[Message]:
    """Everything from assigned partitions, to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",  # asked for by the library; nothing joins it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[Message] = []
    ended: dict[int, None] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"no end of {topic} after {len(found)} records"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended[message.partition() or 0] = None
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _headers(message: Message) -> Headers:
    """Headers as they were sent; the library's types allow for text, and for a dictionary."""
    found: Any = message.headers()
    return tuple(found or ())


def read(bootstrap: str, topic: str, partition: int) -> list[Record]:
    """Everything in one partition."""
    return [
        Record(
            message.key(),
            message.value(),
            _headers(message),
            message.timestamp()[1],
        )
        for message in read_messages(bootstrap, topic, [partition])
    ]
