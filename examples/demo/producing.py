"""Production of the demo's flights with confluent-kafka: idempotent, acks=all, paced, timed.

A thread of its own sends. The scenario raises `cap`, so that each phase of the demo gets its share
of the records, however long a failover takes. The producer measures the time from `produce` to the
acknowledgement for every record. A record that the client gives up on is a failure.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from examples.demo.flights import Flight

from tidelog.core.errors import TidelogError

#: Time in which a record must be acknowledged; a failover takes about a second.
_DELIVERY_TIMEOUT_MS: Final = 120_000
_TICK_S: Final = 0.01


class ProducerFailed(TidelogError):
    """The error of rejected records, or of a broken client."""


class FlightProducer:
    """A producer of flights up to `cap`, at most at an even pace over `seconds`."""

    def __init__(
        self, bootstrap: str, topic: str, flights: Iterator[Flight], total: int, seconds: float
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._flights = flights
        self._total = total
        self._rate = total / seconds
        #: Number of records that may be sent by now.
        self.cap = 0
        self.sent = 0
        self.acknowledged = 0
        self.distance = 0
        #: When the cap, and not the pace, held the producer back: beginnings and ends.
        self.held: list[tuple[float, float]] = []
        self._held_since: float | None = None
        self.failures: list[str] = []
        #: By sequence number: seconds on the monotonic clock; an acknowledgement time of 0 means
        #: not yet.
        self.sent_at = array("d", bytes(8 * total))
        self.acknowledged_at = array("d", bytes(8 * total))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-producer", daemon=True)
        self.began_at = 0.0

    def start(self) -> None:
        """Begin to send."""
        self.began_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Give up unsent records; return when the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise ProducerFailed if the producer has failed."""
        if self.failures:
            raise ProducerFailed(
                f"{len(self.failures)} failures of the producer, the first: {self.failures[0]}"
            )

    @property
    def finished(self) -> bool:
        """Return whether every record is acknowledged."""
        return self.acknowledged == self._total

    def slowest_s(self) -> float:
        """Return the longest time from sending to acknowledgement."""
        pairs = zip(self.sent_at, self.acknowledged_at, strict=True)
        return max((done - sent for sent, done in pairs if done), default=0.0)

    def acknowledged_between(self, start: float, end: float) -> int:
        """Return the number of records acknowledged at `[start, end)` on the monotonic clock."""
        return sum(start <= each < end for each in self.acknowledged_at if each)

    def _run(self) -> None:
        try:
            self._produce()
        except Exception as error:  # reported to the scenario, which ends the demo
            self.failures.append(repr(error))

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": "tidelog-demo",
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 10,
                "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "log_level": 0,  # lost connections are expected, and the story reports them
            }
        )
        while self.sent < self._total and not self._stopping.is_set():
            for flight in self._due():
                self._send(producer, flight)
            producer.poll(_TICK_S)
        while len(producer) and not self._stopping.is_set():
            producer.poll(0.1)
        if self._stopping.is_set():
            producer.purge()
            producer.flush(1.0)

    def _due(self) -> Iterator[Flight]:
        """Yield the flights that are due."""
        by_pace = int((time.monotonic() - self.began_at) * self._rate) + 1
        self._note_held(min(by_pace, self._total) > self.cap == self.sent)
        for _ in range(min(by_pace, self.cap, self._total) - self.sent):
            flight = next(self._flights, None)
            if flight is None:
                raise ProducerFailed(f"only {self.sent} of {self._total} flights are there")
            yield flight

    def _note_held(self, is_held: bool) -> None:
        """Note whether the scenario holds the producer back: a pause that the cluster did not make.

        The period grows while it lasts, so that a plot of an unfinished run has it, too.
        """
        now = time.monotonic()
        if self._held_since is not None:
            self.held[-1] = (self._held_since, now)
        if not is_held:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = now
            self.held.append((now, now))

    def _send(self, producer: Any, flight: Flight) -> None:
        self.sent_at[flight.sequence] = time.monotonic()
        while not self._stopping.is_set():
            try:
                producer.produce(
                    self._topic,
                    value=flight.value,
                    key=flight.key,
                    on_delivery=partial(self._delivered, flight.sequence),
                )
                break
            except BufferError:  # the client's queue is full: let it send
                producer.poll(0.1)
        self.sent += 1
        self.distance += flight.distance

    def _delivered(self, sequence: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"record {sequence}: {error}")
            return
        self.acknowledged_at[sequence] = time.monotonic()
        self.acknowledged += 1
