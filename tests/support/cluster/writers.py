"""A writer that never stops while brokers come and go; what is refused or lost shows at its end.

It numbers its records over all partitions of a topic, so that a reader knows what each must hold.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka

#: What is tested are brokers that come and go under load. A writer that writes what it can takes a
#: core to itself and proves no more.
_RECORDS_PER_SECOND = 600


class Writer(threading.Thread):
    """librdkafka writes numbers until it is told to end; none may be refused."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, records_per_second: int | None
    ) -> None:
        super().__init__()
        #: How long it rests after a record of each partition; None: it writes what it can.
        self._rest_s = None if records_per_second is None else partitions / records_per_second
        self._topic = topic
        self._partitions = partitions
        self.written = 0
        self.refused: list[str] = []
        self._end = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )

    def run(self) -> None:
        number = 0
        while not self._end.is_set():
            for partition in range(self._partitions):
                self._producer.produce(
                    self._topic,
                    f"{number}".encode(),
                    partition=partition,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0.005 if self._rest_s is None else 0)
            if self._rest_s is not None:
                self._end.wait(self._rest_s)
        left = self._producer.flush(30)
        if left:
            self.refused.append(f"{left} are not acknowledged")

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is None:
            self.written += 1
        else:
            self.refused.append(str(error))

    def end(self) -> None:
        """Wait until all is acknowledged."""
        self._end.set()
        self.join()


@contextmanager
def writing(
    bootstrap: str,
    topic: str,
    partitions: int,
    records_per_second: int | None = _RECORDS_PER_SECOND,
) -> Iterator[Writer]:
    """Write to a topic within the context; all is acknowledged or refused at its end.

    None for `records_per_second` means as many as the producer can write.
    """
    writer = Writer(bootstrap, topic, partitions, records_per_second)
    writer.start()
    try:
        yield writer
    finally:
        writer.end()
