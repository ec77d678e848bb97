"""Producing and reading with kafka-python."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tests.clients.samples import Record

PATIENCE_S = 30.0


def write(
    bootstrap: str, topic: str, partition: int, codec: str, records: Sequence[Record]
) -> list[Record]:
    """Send records in order; returns what was acknowledged, without headers that have no value:
    this client refuses them."""
    records = [
        each._replace(headers=tuple(pair for pair in each.headers if pair[1] is not None))
        for each in records
    ]
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=50,
    )
    try:
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(PATIENCE_S)
        for future in sent:
            future.get(PATIENCE_S)
    finally:
        producer.close()
    return records


def read(bootstrap: str, topic: str, partition: int) -> list[Record]:
    """Everything in one partition, which is assigned, not subscribed to."""
    tp = TopicPartition(topic, partition)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, fetch_max_wait_ms=50
    )
    found = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            assert time.monotonic() < deadline, f"no end of {tp} after {len(found)} records"
            for message in consumer.poll(timeout_ms=1000).get(tp, []):
                headers = tuple(message.headers)
                found.append(Record(message.key, message.value, headers, message.timestamp))
    finally:
        consumer.close()
    return found
