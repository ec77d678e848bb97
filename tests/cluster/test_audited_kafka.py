"""The audit finds no damage in log directories of Kafka's brokers: working, killed, stopped.

Their logs have transactions, aborted ones too, so they have transaction indexes and snapshots.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cluster.test_kafka_peers import OURS, PATIENCE_S, Peers, running_peers
from tests.support.audits import OwnProcess, damage

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.audit.auditing import audit_directories

MORE = {
    "log.segment.bytes": "20000",
    "log.index.interval.bytes": "500",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


def without_damage(peers: Peers, *, asks: bool) -> list[bool]:
    """Audit all directories; return whether each was left by a clean shutdown."""
    paths = [str(broker.data) for broker in peers.brokers.values()]
    found = audit_directories(OwnProcess(), paths, bootstrap=peers.bootstrap if asks else None)
    assert [f"{each.kind} {each.path}: {each.sentence}" for each in damage(found)] == []
    return [each.is_clean for each in found.directories]


def transact(peers: Peers, topic: str, count: int) -> None:
    """Write transactions to both partitions; every third one is aborted."""
    producer = Producer({"bootstrap.servers": peers.kafkas_addresses, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number in range(count):
        producer.begin_transaction()
        for key in range(40):
            producer.produce(topic, b"%d " % number * 10, b"k%d" % key, partition=key % 2)
        producer.flush(PATIENCE_S)
        if number % 3 == 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def write(peers: Peers, topic: str, count: int) -> None:
    """Write with an idempotent producer, in many batches."""
    producer = Producer({"bootstrap.servers": peers.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d " % number * 10, b"k%d" % (number % 50), partition=number % 2)
        if number % 100 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.soak
def test_directories_of_kafkas_brokers_have_no_damage(tmp_path: Path) -> None:
    with running_peers(tmp_path, more=MORE) as peers:
        peers.make_topic("__transaction_state", (1, 2))
        peers.make_topic("orders", (1, 2), (2, 1))
        peers.make_topic("plain", (1, 2, OURS), (OURS, 1, 2))
        transact(peers, "orders", 60)
        write(peers, "plain", 4_000)
        for asks in (True, False):
            without_damage(peers, asks=asks)
        peers.brokers[2].kill()
        peers.end_session(2)
        write(peers, "plain", 500)
        without_damage(peers, asks=False)
        peers.brokers[2].start()
        peers.await_in_sync(TopicPartition("plain", 0), (1, 2, OURS))
        assert list(peers.brokers[1].data.glob("orders-*/*.txnindex")), "no transaction index"
        for number in (OURS, 2, 1):
            peers.brokers[number].stop()
        assert without_damage(peers, asks=False) == [True, True, True]
        peers.brokers[1].start()
        for number in (2, OURS):
            peers.brokers[number].start()
        write(peers, "plain", 500)
        for broker in peers.brokers.values():
            broker.kill()
        without_damage(peers, asks=False)
