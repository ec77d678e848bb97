"""Producing and reading with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.support.clients.samples import Record

PATIENCE_S = 30.0


def write(
    bootstrap: str, topic: str, partition: int, codec: str, records: Sequence[Record]
) -> list[Record]:
    """Send records in order; returns what was acknowledged."""

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            enable_idempotence=True,
            linger_ms=50,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for future in sent:
                await future
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))
    return list(records)


def read(bootstrap: str, topic: str, partition: int) -> list[Record]:
    """Everything in one partition, which is assigned, not subscribed to."""
    tp = TopicPartition(topic, partition)
    found: list[Record] = []

    async def receive() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([tp])
            await consumer.seek_to_beginning(tp)
            end = (await consumer.end_offsets([tp]))[tp]
            while await consumer.position(tp) < end:
                for message in (await consumer.getmany(tp, timeout_ms=1000)).get(tp, []):
                    headers = tuple(message.headers)
                    found.append(Record(message.key, message.value, headers, message.timestamp))
        finally:
            await consumer.stop()

    asyncio.run(asyncio.wait_for(receive(), PATIENCE_S))
    return found
