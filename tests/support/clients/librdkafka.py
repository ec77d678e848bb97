"""librdkafka as those use it who test with the kit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

PATIENCE_S = 30.0


def produce(
    bootstrap: str, topic: str, values: Sequence[str], *, partition: int = 0, **config: Any
) -> list[KafkaError]:
    """Send values to a partition with acks=all; the errors of those that were not acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    keys = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    keys |= {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
    keys |= {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer(keys)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return failures


def position_of(message: Message) -> tuple[int, int]:
    """Return partition and offset of a record that was read or written, which has both."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def value_of(message: Message) -> bytes:
    """Return the value of a record that has one."""
    value = message.value()
    assert value is not None
    return value
