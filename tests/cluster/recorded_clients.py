"""Producers and consumers of three libraries, a thread each, that record all they do.

Every record goes through an idempotent producer with acks=all and stands under a value of its own.
Consumers are assigned all partitions from the beginning. An error of a library leaves the outcome
of what it concerned unknown; an exception that it raises ends the thread, and the test.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka import TopicPartition as AioTopicPartition
from tests.support.clients.librdkafka import position_of

from tidelog.testing.histories import Begun, HistoryRecorder

PATIENCE_S = 60.0
#: Sent and not acknowledged; a kill strikes some of them.
_WINDOW = 50
#: Between two records of a producer: what is tested are faults, not throughput.
_PACE_S = 0.01
_POLL_MS = 200

Told = dict[int, list[tuple[int, Any]]]


class Work:
    """What all clients have in common: the topic, the recorder, and when to end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, to: HistoryRecorder) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.recorder = to
        self.no_more_sends = threading.Event()
        #: Known when everything is sent: consumers read on to these.
        self.ends: Mapping[int, int] = {}
        self.may_end = threading.Event()


class _Client(threading.Thread):
    """One client of one library."""

    def __init__(self, work: Work, process: str) -> None:
        super().__init__(name=process, daemon=True)
        self.work = work
        self.process = process
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.act()
        except BaseException as failure:
            self.failure = failure

    @abstractmethod
    def act(self) -> None:
        """Make the client, use it, close it."""

    def finish(self) -> None:
        """Wait for its end; raises what ended it."""
        self.join(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.process} does not end"


class _Producer(_Client):
    def __init__(self, work: Work, process: str) -> None:
        super().__init__(work, process)
        self.acknowledged = 0
        self.count = 0
        self._window = threading.Semaphore(_WINDOW)

    def begin(self) -> tuple[int, str, Begun]:
        """(partition, value, its operation) of the next record."""
        self.count += 1
        partition = self.count % self.work.partitions
        value = f"{self.process} {self.count}"
        recorder = self.work.recorder
        return (
            partition,
            value,
            recorder.send(self.process, self.work.topic, partition, value, idempotent=True),
        )

    def wait_for_room(self) -> bool:
        """Whether there is one more record to send, when there is room for it."""
        while not self.work.no_more_sends.wait(_PACE_S):
            self.serve()
            if self._window.acquire(timeout=0.02):
                return True
        return False

    def serve(self) -> None:
        """Let the library tell what has been acknowledged, where it does so when it is asked."""

    def ended(self, begun: Begun, offset: int | None, error: object = None) -> None:
        if error is None:
            self.work.recorder.sent(begun, offset)
            self.acknowledged += 1
        else:
            begun.info(str(error))
        self._window.release()


class _Consumer(_Client):
    def begin(self) -> None:
        """All partitions are assigned from their beginning."""
        positions = dict.fromkeys(range(self.work.partitions), 0)
        self.work.recorder.assigned(self.process, self.work.topic, positions)
        self.positions = dict(positions)

    def take(self, told: Told, records: Iterable[tuple[int, int, bytes | None]]) -> None:
        """(partition, offset, value) of what a poll returned."""
        for partition, offset, value in records:
            told.setdefault(partition, []).append((offset, (value or b"").decode()))
            self.positions[partition] = offset + 1

    @property
    def is_done(self) -> bool:
        """Whether it has read everything, and everything was sent."""
        ends = self.work.ends
        return self.work.may_end.is_set() and all(
            self.positions[number] >= end for number, end in ends.items()
        )


class ConfluentProducer(_Producer):
    def act(self) -> None:
        producer = self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.work.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        while self.wait_for_room():
            partition, value, begun = self.begin()

            def delivered(error: object, message: Any, begun: Begun = begun) -> None:
                self.ended(begun, None if error else message.offset(), error)

            producer.produce(
                self.work.topic, value.encode(), partition=partition, on_delivery=delivered
            )
        assert producer.flush(PATIENCE_S) == 0

    def serve(self) -> None:
        self._producer.poll(0)


class ConfluentConsumer(_Consumer):
    def act(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.work.bootstrap,
                "group.id": "none",  # asked for by the library; nothing joins it
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.assign(
            [
                confluent_kafka.TopicPartition(self.work.topic, number, 0)
                for number in range(self.work.partitions)
            ]
        )
        self.begin()
        try:
            while not self.is_done:
                with self.work.recorder.poll(self.process, self.work.topic) as told:
                    messages = consumer.consume(500, _POLL_MS / 1000)
                    self.take(
                        told,
                        (
                            (*position_of(each), each.value())
                            for each in messages
                            if each.error() is None
                        ),
                    )
        finally:
            consumer.close()


class KafkaPythonProducer(_Producer):
    def act(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.work.bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            retry_backoff_ms=20,
        )
        try:
            while self.wait_for_room():
                partition, value, begun = self.begin()
                future = producer.send(self.work.topic, value.encode(), partition=partition)
                future.add_callback(lambda told, begun=begun: self.ended(begun, told.offset))
                future.add_errback(lambda error, begun=begun: self.ended(begun, None, error))
            producer.flush(PATIENCE_S)
        finally:
            producer.close()


class KafkaPythonConsumer(_Consumer):
    def act(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.work.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        tps = [kafka.TopicPartition(self.work.topic, n) for n in range(self.work.partitions)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        self.begin()
        try:
            while not self.is_done:
                with self.work.recorder.poll(self.process, self.work.topic) as told:
                    polled = consumer.poll(timeout_ms=_POLL_MS)
                    self.take(told, _records(polled))
        finally:
            consumer.close()


class AiokafkaProducer(_Producer):
    def act(self) -> None:
        asyncio.run(self._act())

    async def _act(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.work.bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            retry_backoff_ms=20,
            request_timeout_ms=int(PATIENCE_S * 1000),
        )
        await producer.start()
        try:
            while await asyncio.to_thread(self.wait_for_room):
                partition, value, begun = self.begin()
                future = await producer.send(self.work.topic, value.encode(), partition=partition)
                future.add_done_callback(lambda future, begun=begun: self._delivered(future, begun))
            await producer.flush()
        finally:
            await producer.stop()

    def _delivered(self, future: asyncio.Future[Any], begun: Begun) -> None:
        error = future.exception()
        self.ended(begun, None if error else future.result().offset, error)


class AiokafkaConsumer(_Consumer):
    def act(self) -> None:
        asyncio.run(self._act())

    async def _act(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.work.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            tps = [AioTopicPartition(self.work.topic, n) for n in range(self.work.partitions)]
            consumer.assign(tps)
            await consumer.seek_to_beginning(*tps)
            self.begin()
            while not self.is_done:
                with self.work.recorder.poll(self.process, self.work.topic) as told:
                    polled = await consumer.getmany(*tps, timeout_ms=_POLL_MS)
                    self.take(told, _records(polled))
        finally:
            await consumer.stop()


def _records(
    polled: Mapping[Any, Iterable[ConsumerRecord[Any, Any]]],
) -> list[tuple[int, int, bytes | None]]:
    return [
        (tp.partition, message.offset, message.value)
        for tp, messages in polled.items()
        for message in messages
    ]


PRODUCERS = (ConfluentProducer, KafkaPythonProducer, AiokafkaProducer)
CONSUMERS = (ConfluentConsumer, KafkaPythonConsumer, AiokafkaConsumer)
