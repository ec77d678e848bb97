"""One client of the chaos: a process of its own, `python -m tests.support.chaos.clients KIND`.

The client works until its standard input says `finish`, or ends with its parent. A producer then
flushes; a consumer commits and leaves its group. Errors that a library reports for a record or a
commit are events; an exception that ends the client ends the process with its traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AioTopicPartition
from tests.support.chaos.events import EventLog, value_of
from tests.support.clients.librdkafka import position_of

#: Between two bursts of a producer, and the records of one: some hundred records a second.
PACE_S = 0.05
BURST = 6
#: Sent and not acknowledged: what a producer repeats after a fault.
WINDOW = 300
#: Small, so that several batches of a partition are on their way at once.
BATCH_BYTES = 1_200
PADDING = "." * 180
POLL_MS = 200
#: Longer than any join: a member that is gone is waited for until its session is over.
JOIN_POLL_MS = 30_000
COMMIT_EVERY_S = 0.5
#: Longer than any fault: a producer must not give a record up.
DELIVERY_MS = 600_000
SESSION_MS = 10_000
HEARTBEAT_MS = 1_000


class Client:
    """What all clients have: the topic, the event log, and the word to finish."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.bootstrap: str = options.bootstrap
        self.topic: str = options.topic
        self.partitions: int = options.partitions
        self.process: str = options.process
        self.log = EventLog(Path(options.events))
        self.finishing = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "finish":
                self.finishing.set()
        if not self.finishing.is_set():
            os._exit(3)  # the parent has ended

    def act(self) -> None:
        """Make the client, use it, close it."""
        raise NotImplementedError


class Producer(Client):
    """Sends bursts to all partitions in turn, with a bounded number of records on their way."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.count = 0
        self._window = threading.Semaphore(WINDOW)

    def burst(self) -> Iterable[tuple[int, int, bytes]]:
        """(partition, number, value) of the records that there is room for now."""
        for _ in range(BURST):
            if not self._window.acquire(blocking=False):
                return
            number = self.count
            self.count += 1
            partition = number % self.partitions
            self.log.add("send", partition, number)
            yield partition, number, f"{value_of(self.process, number)} {PADDING}".encode()

    def ended(self, number: int, offset: int | None, error: object = None) -> None:
        if error is None:
            self.log.add("ack", number, offset)
        else:
            self.log.add("unsure", number, repr(error))
        self._window.release()


class Consumer(Client):
    """Polls, and commits what it polled of the partitions that it owns."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.group: str = options.group
        #: What it may commit: a coordinator takes any partition from any member.
        self.owned: dict[int, None] = {}
        self.positions: dict[int, int] = {}
        self._committed_s = time.monotonic()

    def assigned(self, partitions: Iterable[int]) -> None:
        gained = sorted(partitions)
        self.owned.update(dict.fromkeys(gained))
        self.log.add("assigned", gained)

    def revoked(self, partitions: Iterable[int]) -> None:
        gone = sorted(partitions)
        for partition in gone:
            self.owned.pop(partition, None)
            self.positions.pop(partition, None)
        self.log.add("revoked", gone)

    def take(self, records: list[tuple[int, int, bytes | None]]) -> None:
        """Note (partition, offset, value) of what a poll returned."""
        if not records:
            return
        told = [
            [partition, offset, (value or b"").decode().rpartition(" ")[0]]
            for partition, offset, value in records
        ]
        self.log.add("poll", told)
        for partition, offset, _ in records:
            if partition in self.owned:
                self.positions[partition] = offset + 1

    def is_commit_due(self) -> bool:
        if not self.positions:
            return False
        return self.finishing.is_set() or time.monotonic() - self._committed_s >= COMMIT_EVERY_S

    def commit_ended(self, committed: Mapping[int, int], error: object = None) -> None:
        self._committed_s = time.monotonic()
        if error is not None:
            self.log.add("refused", repr(error))
            return
        self.log.add("commit", dict(committed))
        for partition, offset in committed.items():
            if self.positions.get(partition) == offset:
                del self.positions[partition]

    @property
    def is_done(self) -> bool:
        return self.finishing.is_set() and not self.positions


class ConfluentProducer(Producer):
    """librdkafka with idempotence."""

    settings: Mapping[str, Any] = {"enable.idempotence": True, "message.timeout.ms": DELIVERY_MS}

    def act(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": BATCH_BYTES,
                "client.id": self.process,
                **debugging(),
                **self.settings,
            }
        )

        def delivered(number: int) -> Callable[[Any, Any], None]:
            return lambda error, message: self.ended(
                number, None if error else message.offset(), error
            )

        while not self.finishing.is_set():
            for partition, number, value in self.burst():
                producer.produce(
                    self.topic, value, partition=partition, on_delivery=delivered(number)
                )
            producer.poll(PACE_S)
            self.finishing.wait(PACE_S)
        while producer.flush(1.0):
            pass


class ConfluentPlainProducer(ConfluentProducer):
    """librdkafka as it is by default, which may send a record twice."""

    settings: Mapping[str, Any] = {"enable.idempotence": False}


class ConfluentConsumer(Consumer):
    def act(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": self.process,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                **debugging(),
            }
        )
        consumer.subscribe(
            [self.topic],
            on_assign=lambda _, tps: self.assigned(tp.partition for tp in tps),
            on_revoke=lambda _, tps: self.revoked(tp.partition for tp in tps),
            on_lost=lambda _, tps: self.revoked(tp.partition for tp in tps),
        )
        while not self.is_done:
            messages = consumer.consume(500, POLL_MS / 1000)
            good = [each for each in messages if each.error() is None]
            self.take([(*position_of(each), each.value()) for each in good])
            if self.is_commit_due():
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        wanted = [
            confluent_kafka.TopicPartition(self.topic, partition, offset)
            for partition, offset in self.positions.items()
        ]
        try:
            told = consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            self.commit_ended({}, error)
            return
        errors = [tp.error for tp in told if tp.error is not None]
        done = {tp.partition: tp.offset for tp in told if tp.error is None}
        if done:
            self.commit_ended(done)
        if errors:
            self.commit_ended({}, errors[0])


class KafkaPythonProducer(Producer):
    """kafka-python with idempotence."""

    def act(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            client_id=self.process,
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            batch_size=BATCH_BYTES,
            delivery_timeout_ms=DELIVERY_MS,
            max_block_ms=DELIVERY_MS,
        )
        while not self.finishing.is_set():
            for partition, number, value in self.burst():
                future = producer.send(self.topic, value, partition=partition)
                future.add_callback(lambda told, number=number: self.ended(number, told.offset))
                future.add_errback(lambda error, number=number: self.ended(number, None, error))
            self.finishing.wait(PACE_S)
        producer.flush(DELIVERY_MS / 1000)
        producer.close()


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka has no types
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._consumer.revoked(tp.partition for tp in revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._consumer.assigned(tp.partition for tp in assigned)


class KafkaPythonConsumer(Consumer):
    def act(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id=self.process,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        consumer.subscribe([self.topic], listener=_Listener(self))
        while not self.is_done:
            # kafka-python 3.0.12 drops the outcome of a join that new metadata asked for if the
            # poll that began the join ends before it; it is without partitions for ever after.
            poll_ms = POLL_MS if consumer.assignment() else JOIN_POLL_MS
            try:
                self.take(records_of(consumer.poll(timeout_ms=poll_ms)))
            except kafka.errors.KafkaConnectionError as error:
                # It asks no further where all brokers are down.
                self.log.add("failed", repr(error))
                time.sleep(PACE_S)
            if self.is_commit_due():
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: kafka.KafkaConsumer) -> None:
        wanted = dict(self.positions)
        try:
            consumer.commit(
                {
                    kafka.TopicPartition(self.topic, partition): kafka.OffsetAndMetadata(
                        offset, "", -1
                    )
                    for partition, offset in wanted.items()
                }
            )
        except kafka.errors.KafkaError as error:
            self.commit_ended({}, error)
        else:
            self.commit_ended(wanted)


class AiokafkaProducer(Producer):
    """aiokafka with idempotence."""

    def act(self) -> None:
        asyncio.run(self._act())

    async def _act(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            client_id=self.process,
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=120_000,
        )
        await producer.start()
        while not self.finishing.is_set():
            for partition, number, value in self.burst():
                future = await producer.send(self.topic, value, partition=partition)
                future.add_done_callback(lambda future, number=number: self._ended(future, number))
            await asyncio.sleep(PACE_S)
        await producer.flush()
        await producer.stop()

    def _ended(self, future: asyncio.Future[Any], number: int) -> None:
        error = future.exception()
        self.ended(number, None if error else future.result().offset, error)


class _AioListener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._consumer.revoked(tp.partition for tp in revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._consumer.assigned(tp.partition for tp in assigned)


class AiokafkaConsumer(Consumer):
    def act(self) -> None:
        asyncio.run(self._act())

    async def _act(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id=self.process,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        consumer.subscribe([self.topic], listener=_AioListener(self))
        await consumer.start()
        while not self.is_done:
            self.take(records_of(await consumer.getmany(timeout_ms=POLL_MS)))
            if self.is_commit_due():
                await self._commit(consumer)
        await consumer.stop()

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        wanted = dict(self.positions)
        try:
            await consumer.commit(
                {AioTopicPartition(self.topic, number): offset for number, offset in wanted.items()}
            )
        except Exception as error:  # aiokafka raises IllegalStateError for a lost partition, too
            self.commit_ended({}, error)
        else:
            self.commit_ended(wanted)


def records_of(polled: Mapping[Any, Iterable[Any]]) -> list[tuple[int, int, bytes | None]]:
    return [
        (tp.partition, message.offset, message.value)
        for tp, messages in polled.items()
        for message in messages
    ]


def debugging() -> dict[str, str]:
    """librdkafka's own log, where CHAOS_OF_TIDELOG_DEBUG names contexts (`broker,eos`)."""
    contexts = os.environ.get("CHAOS_OF_TIDELOG_DEBUG", "")
    return {"debug": contexts} if contexts else {}


PRODUCERS: Mapping[str, type[Producer]] = {
    "confluent-idempotent": ConfluentProducer,
    "confluent-plain": ConfluentPlainProducer,
    "kafka-python-idempotent": KafkaPythonProducer,
    "aiokafka-idempotent": AiokafkaProducer,
}
CONSUMERS: Mapping[str, type[Consumer]] = {
    "confluent-consumer": ConfluentConsumer,
    "kafka-python-consumer": KafkaPythonConsumer,
    "aiokafka-consumer": AiokafkaConsumer,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.chaos.clients")
    parser.add_argument("kind", choices=[*PRODUCERS, *CONSUMERS])
    for name in ("bootstrap", "topic", "process", "events", "group"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    client = {**PRODUCERS, **CONSUMERS}[options.kind](options)
    client.act()
    client.log.add("ended")


if __name__ == "__main__":
    main()
