"""Producing and reading with kafka-python."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tests.support.clients.samples import Record

PATIENCE_S = 30.0


def write(
    bootstrap: str, topic: str, partition: int, codec: str, records: Sequence[Record]
) -> list[Record]:
    """Send records in order, as one batch; return what was acknowledged, without headers that have
    no value: this client refuses them. The flush ends the wait for more records: a batch of a
    single small record would not be compressed."""
    records = [
        each._replace(headers=tuple(pair for pair in each.headers if pair[1] is not None))
        for each in records
    ]
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=int(PATIENCE_S * 1000),
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
    return _read(bootstrap, [TopicPartition(topic, partition)])[partition]


def read_all(
    bootstrap: str, topic: str, partitions: int, *, fetch_max_bytes: int
) -> dict[int, list[Record]]:
    """Everything in every partition, with so much to an answer."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    return _read(bootstrap, tps, fetch_max_bytes=fetch_max_bytes)


def _read(bootstrap: str, tps: list[TopicPartition], **settings: int) -> dict[int, list[Record]]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        **settings,
    )
    found: dict[int, list[Record]] = {tp.partition: [] for tp in tps}
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            assert time.monotonic() < deadline, f"no end of {tps} after {found}"
            for tp, messages in consumer.poll(timeout_ms=1000).items():
                for message in messages:
                    headers = tuple(message.headers)
                    found[tp.partition].append(
                        Record(message.key, message.value, headers, message.timestamp)
                    )
    finally:
        consumer.close()
    return found
