"""A producer of numbers that remembers which are acknowledged."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer


class NumberedProducer:
    """Sends 0, 1, 2, … round the partitions of a topic; idempotent, acks=all."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, padding_bytes: int = 0
    ) -> None:
        self.sent = 0
        self.failures: list[KafkaError] = []
        #: Values in the order of their acknowledgements, by partition.
        self.acknowledged: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self._topic = topic
        self._padding = bytes(padding_bytes)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "log_level": 0,
            }
        )

    def send(self, count: int, timeout_s: float = 60.0) -> None:
        """Send some more; AssertionError where one is neither acknowledged nor given up in time."""
        for _ in range(count):
            self._producer.produce(
                self._topic,
                b"%d" % self.sent + self._padding,
                partition=self.sent % len(self.acknowledged),
                on_delivery=self._delivered,
            )
            self.sent += 1
        assert self._producer.flush(timeout_s) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        value, partition = message.value(), message.partition()
        assert value is not None and partition is not None
        self.acknowledged[partition].append(value)
