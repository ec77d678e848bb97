"""kafkajs, in a Node of its own (kafkajs/worker.js)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tests.clients.matrix.worker import Program, WorkerDriver
from tests.support.clients.kafkajs_packages import CACHE, HERE, packages
from tests.support.clients.samples import Record


class Producer:
    """A producer that stays: what it knows of the cluster gets old."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._number = program.ask("producer_open")

    def send(
        self, topic: str, partition: int | None, key: str | None = None
    ) -> list[tuple[int, int]]:
        """Send a record, to where its key says if `partition` is None; (partition, offset) of what
        was written by kafkajs's account. Raises Refused."""
        words = {"topic": topic, "partition": partition, "key": key}
        told = self._program.ask("producer_send", producer=self._number, **words)
        return [(written, offset) for written, offset in told]

    def close(self) -> None:
        self._program.ask("producer_close", producer=self._number)


class Kafkajs(WorkerDriver):
    """The driver; kafkajs refuses headers without a value."""

    def start_producer(self) -> Producer:
        """One that stays until it is closed."""
        return Producer(self._program)

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        able = [
            each._replace(headers=tuple(pair for pair in each.headers if pair[1] is not None))
            for each in records
        ]
        return super().write(topic, partition, codec, able)


def make(bootstrap: str) -> Kafkajs:
    environment = {**os.environ, "NODE_PATH": str(packages())}
    words = ["node", str(HERE / "worker.js")]
    program = Program(words, HERE, CACHE / "worker.log", environment)
    return Kafkajs(program, bootstrap)
