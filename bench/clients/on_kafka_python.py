"""kafka-python, as a program: see `bench.failover_clients`."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from bench.clients.lines import PACE_S, say


def produce(bootstrap: str, topic: str, partitions: int) -> None:
    """Write a record to every partition at the pace, for ever."""
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))

    def delivered(metadata: Any) -> None:
        say(metadata.partition)

    due = time.monotonic()
    while True:
        for partition in range(partitions):
            producer.send(topic, b"value", partition=partition).add_callback(delivered)
        due = max(due + PACE_S, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def consume(bootstrap: str, topic: str, group: str) -> None:
    """Read the topic as the only member of a group, for ever."""
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap.split(","), group_id=group)
    while True:
        for partition, records in consumer.poll(timeout_ms=1000).items():
            if records:
                say(partition.partition)


if __name__ == "__main__":
    if os.environ.get("TIDELOG_BENCH_DEBUG"):
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
    if sys.argv[1] == "produce":
        produce(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        consume(*sys.argv[2:5])
