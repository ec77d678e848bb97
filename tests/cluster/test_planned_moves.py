"""Commands that plan moves, against real brokers: factor, placement, balance, and an end of one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.conftest import eventually
from tests.support.cli import run

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

RECORDS = [NewRecord(None, b"%d" % number, 1) for number in range(200)]
PARTITIONS = 6


class Shell:
    """Runs commands against the cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: Any, bootstrap: str) -> None:
        self._monkeypatch, self._capfd, self._bootstrap = monkeypatch, capfd, bootstrap
        self.err = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        got = run(self._monkeypatch, *words, "-b", self._bootstrap)
        out, self.err = self._capfd.readouterr()
        assert got == code, self.err
        assert isinstance(out, str)
        return out


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four brokers that are up, two in each rack; a test that stops one starts it again."""
    directory = str(tmp_path_factory.mktemp("planned") / "cluster")
    config = {"log.segment.delete.delay.ms": "100", "auto.leader.rebalance.enable": "false"}
    made = LocalCluster(directory, 4, config=config)
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap, timeout_ms=20_000) as made:
        yield made


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, cluster: LocalCluster) -> Shell:
    return Shell(monkeypatch, capfd, cluster.bootstrap)


def replicas(client: BlockingClient, topic: str) -> list[tuple[int, ...]]:
    return [each.replicas for each in client.await_topic(topic).partitions.values()]


def leaders(client: BlockingClient) -> Counter[int]:
    return Counter(each.leader for _, each in client.metadata().all_partitions())


def test_a_broker_is_decommissioned_and_no_record_is_missing(
    cluster: LocalCluster, client: BlockingClient, shell: Shell
) -> None:
    assignment = {number: (number % 4 + 1, (number + 1) % 4 + 1) for number in range(PARTITIONS)}
    client.create_topic("kept", assignment=assignment)
    client.await_topic("kept", 2)
    for number in range(PARTITIONS):
        client.produce(TopicPartition("kept", number), build_batch(RECORDS))

    shell("topics", "alter", "kept", "--replication-factor", "3", "--wait")
    assert all(len(each) == 3 for each in replicas(client, "kept"))
    client.await_topic("kept", 3)

    shell("topics", "alter", "kept", "--replication-factor", "4", "--wait")
    shell("brokers", "decommission", "4", code=1)
    assert "only brokers 1, 2, 3, too few for kept (4 replicas)" in shell.err
    shell("topics", "alter", "kept", "--replication-factor", "3", "--wait")

    shell("brokers", "decommission", "4", "--wait")
    assert "broker 4 holds no replica and may be stopped" in shell.err
    assert leaders(client)[4] == 0
    cluster.stop(4)
    try:
        client.await_topic("kept", 3)
        ends = client.list_offsets({TopicPartition("kept", n): -1 for n in range(PARTITIONS)})
        assert [each.offset for each in ends.values()] == [len(RECORDS)] * PARTITIONS
    finally:
        cluster.restart(4)


def test_a_drained_broker_leads_nothing_and_comes_back_by_the_saved_file(
    client: BlockingClient, shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client.create_topic("wide", assignment={0: (1, 2, 3, 4), 1: (2, 1, 3, 4)})
    client.create_topic("narrow", assignment={0: (1, 2)})
    client.await_topic("wide", 4)
    client.await_topic("narrow", 2)
    back = str(tmp_path_factory.mktemp("back") / "back.json")
    shell("brokers", "drain", "1", "--wait", "--save-rollback", back)
    assert "wide-0, wide-1 stay, as followers" in shell.err
    assert leaders(client)[1] == 0
    assert 1 not in replicas(client, "narrow")[0]
    assert replicas(client, "wide")[0][-1] == 1
    shell("reassign", "execute", back, "--wait")
    assert replicas(client, "narrow") == [(1, 2)]
    shell("reassign", "verify", back)


def test_the_balance_is_planned_executed_and_verified(
    client: BlockingClient, shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client.create_topic("skewed", assignment=dict.fromkeys(range(8), (1, 2)))
    client.await_topic("skewed", 2)
    plan = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.write_text(shell("reassign", "plan", "--rebalance", "-o", "json"))
    shell("reassign", "verify", str(plan), code=1)
    shell("reassign", "rebalance", "--wait")
    shell("reassign", "verify", str(plan))
    held = Counter(
        broker for _, each in client.metadata().all_partitions() for broker in each.replicas
    )
    assert max(held.values()) - min(held[each] for each in (1, 2, 3, 4)) <= 1
    assert max(leaders(client).values()) - min(leaders(client)[each] for each in range(1, 5)) <= 1
    shell("reassign", "plan", "--rebalance")
    assert "the cluster is balanced" in shell.err
    shell("reassign", "execute", str(plan), code=1)
    assert "was made for other replicas" in shell.err


def test_the_progress_of_a_move_to_a_broker_that_hangs(
    cluster: LocalCluster, client: BlockingClient, shell: Shell
) -> None:
    controller = client.metadata([]).controller_id
    hung = next(each for each in cluster.broker_ids if each != controller)
    client.create_topic("slow", assignment={0: (controller,)})
    client.await_topic("slow", 1)
    tp = TopicPartition("slow", 0)
    client.produce(tp, build_batch(RECORDS))
    cluster.pause(hung)
    try:
        assert client.reassign({tp: (controller, hung)})[tp].message == ""
        (move,) = json.loads(shell("reassign", "list", "-o", "json"))
        assert (move["topic"], move["state"], move["adding"]) == ("slow", "adding", [hung])
        assert move["left_bytes"] is None
        assert f"broker {hung} does not report its bytes" in shell.err
    finally:
        cluster.resume(hung)
    lines = shell("reassign", "list", "--watch", "--interval", "0.1").splitlines()
    assert lines == [] or lines[-1] == "slow-0 ended"
    eventually(lambda: client.list_reassignments() == {}, "the end of the move")
    client.await_topic("slow", 2)
