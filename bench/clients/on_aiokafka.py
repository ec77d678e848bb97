"""aiokafka, as a program: see `bench.failover_clients`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.clients.lines import PACE_S, say


async def produce(bootstrap: str, topic: str, partitions: int) -> None:
    """Write a record to every partition at the pace, for ever."""

    def delivered(future: Any) -> None:
        if not future.cancelled() and future.exception() is None:
            say(future.result().partition)

    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for partition in range(partitions):
                sent = await producer.send(topic, b"value", partition=partition)
                sent.add_done_callback(delivered)
            due = max(due + PACE_S, loop.time())
            await asyncio.sleep(due - loop.time())


async def consume(bootstrap: str, topic: str, group: str) -> None:
    """Read the topic as the only member of a group, for ever."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group)
    async with consumer:
        async for record in consumer:
            say(record.partition)


if __name__ == "__main__":
    if os.environ.get("TIDELOG_BENCH_DEBUG"):
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
    if sys.argv[1] == "produce":
        asyncio.run(produce(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        asyncio.run(consume(*sys.argv[2:5]))
