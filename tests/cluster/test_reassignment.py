"""Partitions move between real brokers, by our tool, by another client, and by the stored node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition as PythonPartition
from tests.cluster.conftest import NewStore, eventually
from tests.support.cli import run

from tidelog.client.configs import BROKER, TOPIC, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

RECORDS = [NewRecord(None, b"%d" % number, 1) for number in range(500)]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, new_store: NewStore
) -> Iterator[LocalCluster]:
    """Four brokers that are up; a test that stops one starts it again."""
    directory = str(tmp_path_factory.mktemp("reassignment") / "cluster")
    config = {"log.segment.delete.delay.ms": "100"}
    made = LocalCluster(directory, 4, config=config, store=new_store())
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap, timeout_ms=20_000) as made:
        yield made


def holding(cluster: LocalCluster, name: str) -> dict[int, list[str]]:
    """What each broker has in its log directory under the name of a partition."""
    found = {}
    for broker_id in cluster.broker_ids:
        data = Path(cluster.directory) / f"broker-{broker_id}" / "data"
        found[broker_id] = sorted(
            each.name
            for each in data.iterdir()
            if each.name.startswith(f"{name}.") or each.name == name
        )
    return found


def made(client: BlockingClient, name: str, *replicas: int) -> TopicPartition:
    """A topic of one partition there, with the records in it."""
    client.create_topic(name, assignment={0: replicas})
    client.await_topic(name, len(replicas))
    tp = TopicPartition(name, 0)
    assert client.produce(tp, build_batch(RECORDS)) == 0
    return tp


def members(client: BlockingClient, tp: TopicPartition) -> tuple[tuple[int, ...], set[int]]:
    """Its replicas in their order, and its ISR."""
    partition = client.metadata([tp.topic]).partition(tp)
    assert partition is not None
    return tuple(partition.replicas), set(partition.isr)


def count(client: BlockingClient, tp: TopicPartition) -> int:
    return client.list_offsets({tp: -1})[tp].offset


def test_a_partition_moves_with_its_records_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    cluster: LocalCluster,
    client: BlockingClient,
) -> None:
    tp = made(client, "moving", 1, 2)
    entry = {"topic": tp.topic, "partition": 0, "replicas": [4, 3]}
    text = json.dumps({"version": 1, "partitions": [entry]})
    words = ("--json", text, "-b", cluster.bootstrap)
    assert run(monkeypatch, "reassign", "verify", *words) == 1
    assert run(monkeypatch, "reassign", "execute", *words, "--wait") == 0
    assert run(monkeypatch, "reassign", "verify", *words) == 0
    assert "done" in capfd.readouterr().out
    # `--wait` heard it from the controller; the broker that the client asks may learn it later.
    eventually(lambda: members(client, tp) == ((4, 3), {3, 4}), "the moved partition")
    assert count(client, tp) == len(RECORDS)
    assert client.produce(tp, build_batch(RECORDS)) == len(RECORDS)
    eventually(
        lambda: holding(cluster, "moving-0") == {1: [], 2: [], 3: ["moving-0"], 4: ["moving-0"]},
        "the directories",
    )


def test_kafka_python_moves_lists_and_takes_back(
    cluster: LocalCluster, client: BlockingClient
) -> None:
    tp = made(client, "python", 1, 2)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        wanted = PythonPartition(tp.topic, 0)
        told = admin.alter_partition_reassignments({wanted: [3, 2]})
        assert told == {wanted: None}
        eventually(lambda: admin.list_partition_reassignments() == {}, "the end of the move")
        told = admin.alter_partition_reassignments({wanted: None})
        assert told[wanted].__name__ == "NoReassignmentInProgressError"
        told = admin.alter_partition_reassignments({wanted: [9]})
        assert "InvalidReplica" in told[wanted].__name__
    finally:
        admin.close()
    partition = client.metadata([tp.topic]).partition(tp)
    assert partition is not None
    assert tuple(partition.replicas) == (3, 2)
    assert count(client, tp) == len(RECORDS)


def test_a_cancel_takes_partitions_back_at_once_while_a_target_hangs(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    cluster: LocalCluster,
    client: BlockingClient,
) -> None:
    controller = client.metadata([]).controller_id
    *originals, other, hung = sorted(cluster.broker_ids, key=lambda each: each != controller)
    tps = [made(client, f"back-{number}", *originals) for number in range(3)]
    cluster.pause(hung)
    try:
        told = client.reassign(dict.fromkeys(tps, (hung, other)))
        assert {each.message for each in told.values()} == {""}
        capfd.readouterr()
        words = ("-b", cluster.bootstrap, "-o", "json")
        assert run(monkeypatch, "reassign", "cancel", "--broker", str(hung), *words) == 0
        cancelled = json.loads(capfd.readouterr().out)
        assert [each["result"] for each in cancelled] == ["cancelled"] * 3
        assert [each["target"] for each in cancelled] == [[hung, other]] * 3

        def is_back(tp: TopicPartition) -> bool:
            partition = client.metadata([tp.topic]).partition(tp)
            return partition is not None and list(partition.replicas) == originals

        eventually(lambda: all(map(is_back, tps)), "the original replicas")
    finally:
        cluster.resume(hung)
    eventually(lambda: client.list_reassignments() == {}, "the end of the moves")
    assert [count(client, tp) for tp in tps] == [len(RECORDS)] * 3

    def holders(tp: TopicPartition) -> list[int]:
        return [one for one, names in holding(cluster, str(tp)).items() if names]

    eventually(
        lambda: all(holders(tp) == sorted(originals) for tp in tps),
        "the directories",
    )


def test_a_throttled_move_waits_also_where_the_rate_was_set_while_the_broker_was_down(
    cluster: LocalCluster, client: BlockingClient
) -> None:
    """At 0 bytes/s one read comes; a partition that is not listed moves meanwhile."""
    slow, quick = (TopicPartition(name, 0) for name in ("throttled", "unthrottled"))
    for tp in (slow, quick):
        client.create_topic(tp.topic, assignment={0: (1, 2)})
        client.await_topic(tp.topic, 2)
        for _ in range(30):
            assert client.produce(tp, build_batch([NewRecord(None, bytes(100_000), 1)])) >= 0
    rate, replicas = (f"follower.replication.throttled.{what}" for what in ("rate", "replicas"))
    of_topic, of_broker = ConfigResource(TOPIC, slow.topic), ConfigResource(BROKER, "4")
    cluster.kill(4)
    try:
        client.alter_configs(of_topic, [ConfigChange(ConfigOperation.SET, replicas, "0:4")])
        client.alter_configs(of_broker, [ConfigChange(ConfigOperation.SET, rate, "0")])
    finally:
        cluster.restart(4)
    for tp in (slow, quick):
        assert client.reassign({tp: (4, 2)})[tp].message == ""
        if tp is slow:
            eventually(lambda: bool(copied(cluster, slow)), "the first read")
    eventually(lambda: list(client.list_reassignments()) == [slow], "the move without a throttle")
    assert 0 < copied(cluster, slow) < 30 * 100_000 <= copied(cluster, quick)
    client.alter_configs(of_broker, [ConfigChange(ConfigOperation.DELETE, rate, None)])
    eventually(lambda: client.list_reassignments() == {}, "the end of the move")
    client.alter_configs(of_topic, [ConfigChange(ConfigOperation.DELETE, replicas, None)])
    client.await_topic(slow.topic, 2)
    assert count(client, slow) == 30


def copied(cluster: LocalCluster, tp: TopicPartition) -> int:
    """The bytes of a partition in the log directory of broker 4."""
    data = Path(cluster.directory) / "broker-4" / "data" / str(tp)
    return sum(each.stat().st_size for each in data.glob("*.log"))


def test_a_dead_broker_does_not_hold_a_move_up_and_finds_a_stray(
    cluster: LocalCluster, client: BlockingClient
) -> None:
    tp = made(client, "without", 1, 2)
    cluster.kill(2)
    try:
        told = client.reassign({tp: (1, 3)})
        assert told[tp].message == ""
        eventually(lambda: client.list_reassignments() == {}, "the end of the move")
    finally:
        cluster.restart(2)
    client.await_topic(tp.topic, 2)

    def is_aside() -> bool:
        [name] = holding(cluster, "without-0")[2]
        return name.endswith("-stray")

    eventually(is_aside, "the stray")
    assert count(client, tp) == len(RECORDS)
