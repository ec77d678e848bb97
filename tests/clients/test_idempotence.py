"""Idempotent producers whose leader is killed under them: nothing is lost and nothing doubled."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, Message, Producer
from tests.clients import confluent
from tests.clients.conftest import MakeTopic
from tests.support.clients import kcat
from tests.support.clients.librdkafka import position_of, value_of

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0
PARTITIONS = 3
#: Acknowledged before the kill, and after it by the partition that lost its leader.
ENOUGH = 1_000
#: Records that are sent and not acknowledged: the kill strikes some of them.
WINDOW = 500


@contextmanager
def killed_leader(cluster: LocalCluster, tp: TopicPartition) -> Iterator[None]:
    """SIGKILL of the leader; it leads no more at the end, and all is well again afterwards."""
    with BlockingClient(cluster.bootstrap) as client:
        before = client.metadata([tp.topic]).topics[tp.topic].partitions[tp.partition]
        cluster.kill(before.leader)
        yield
        after = client.metadata([tp.topic]).topics[tp.topic].partitions[tp.partition]
        assert after.leader != before.leader
        assert after.leader_epoch > before.leader_epoch
    cluster.start(before.leader)
    cluster.await_full_isrs()


class NumberedProducer:
    """Sends 0, 1, 2, … round the partitions and notes what is acknowledged where."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.failures: list[KafkaError] = []
        #: By partition: number -> offset that the acknowledgement told.
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 20,
                "retry.backoff.ms": 20,
            }
        )

    def send_until(self, done: Callable[[], bool]) -> None:
        """Send with many in flight; a record of each partition in turn."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{self.sent} sent, {self.all_acknowledged} there"
            while self.sent - self.all_acknowledged < WINDOW:
                self._producer.produce(
                    self.topic,
                    b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=self._delivered,
                )
                self.sent += 1
                self._producer.poll(0)
            self._producer.poll(0.01)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.failures

    @property
    def all_acknowledged(self) -> int:
        return sum(map(len, self.acknowledged))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            partition, offset = position_of(message)
            self.acknowledged[partition][int(value_of(message))] = offset


def test_librdkafka_loses_and_doubles_nothing(cluster: LocalCluster, make_topic: MakeTopic) -> None:
    topic = make_topic(PARTITIONS)
    producer = NumberedProducer(cluster.bootstrap, topic)
    producer.send_until(lambda: producer.all_acknowledged >= ENOUGH)
    assert producer.sent > producer.all_acknowledged, "nothing is in flight"
    with killed_leader(cluster, TopicPartition(topic, 0)):
        before = len(producer.acknowledged[0])
        producer.send_until(lambda: len(producer.acknowledged[0]) >= before + ENOUGH)
    producer.finish()

    assert producer.all_acknowledged == producer.sent
    for partition, acknowledged in enumerate(producer.acknowledged):
        messages = confluent.read_messages(cluster.bootstrap, topic, [partition])
        found = {int(value_of(message)): message.offset() for message in messages}
        assert len(messages) == len(found), "a record is there twice"
        assert found == acknowledged
        assert list(found) == list(range(partition, producer.sent, PARTITIONS)), "out of order"


@kcat.needs_kcat
def test_kcat_loses_and_doubles_nothing(cluster: LocalCluster, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    options = ["-X", "enable.idempotence=true", "-X", "acks=all", "-X", "linger.ms=1"]
    options += ["-X", "batch.num.messages=20", "-X", "retry.backoff.ms=20"]
    assert kcat.KCAT is not None
    process = subprocess.Popen(
        [kcat.KCAT, "-P", "-b", cluster.bootstrap, "-t", topic, "-p", "0", *options],
        stdin=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        lines = iter(range(10 * ENOUGH))

        def send(count: int) -> None:
            assert process.stdin is not None
            process.stdin.write(b"".join(b"%d\n" % next(lines) for _ in range(count)))
            process.stdin.flush()

        send(2 * ENOUGH)
        await_records(cluster, tp, ENOUGH)
        send(ENOUGH)
        with killed_leader(cluster, tp):
            send(2 * ENOUGH)
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    found = [int(each.value or b"") for each in kcat.read(cluster.bootstrap, topic, 0)]
    assert found == list(range(5 * ENOUGH))


def await_records(cluster: LocalCluster, tp: TopicPartition, count: int) -> None:
    """Wait until so many records are acknowledged."""
    deadline = time.monotonic() + PATIENCE_S
    with BlockingClient(cluster.bootstrap) as client:
        while client.list_offsets({tp: -1})[tp].offset < count:
            assert time.monotonic() < deadline, f"{count} records did not arrive"
            time.sleep(0.005)
