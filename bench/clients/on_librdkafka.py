"""librdkafka through confluent-kafka, as a program: see `bench.failover_clients`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from bench.clients.lines import PACE_S, say


def produce(bootstrap: str, topic: str, partitions: int) -> None:
    """Write a record to every partition at the pace, for ever."""
    producer = Producer({"bootstrap.servers": bootstrap, **_debugging()})

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            say(message.partition())

    due = time.monotonic()
    while True:
        for partition in range(partitions):
            producer.produce(topic, b"value", partition=partition, on_delivery=delivered)
        due = max(due + PACE_S, time.monotonic())
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)


def consume(bootstrap: str, topic: str, group: str) -> None:
    """Read the topic as the only member of a group, for ever."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **_debugging()})
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            partition = message.partition()
            assert partition is not None
            say(partition)


def _debugging() -> dict[str, str]:
    """Return what `TIDELOG_BENCH_DEBUG` asks the library to log."""
    wanted = os.environ.get("TIDELOG_BENCH_DEBUG", "")
    return {"debug": wanted} if wanted else {}


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        consume(*sys.argv[2:5])
