"""Clusters whose metadata is in a real ZooKeeper: deaths, silence, moves, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.cluster.conftest import tidelog
from tests.cluster.test_bad_input import properties, refusal
from tests.support.cluster.values import read_values, write_values
from tests.support.cluster.zookeepers import ensemble, require_zookeeper, start_server
from tests.support.store.cutting_proxy import CuttingProxy

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster, LocalClusterError
from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, SetData
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

T = TypeVar("T")
FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    started = start_server(tmp_path_factory.mktemp("zookeeper"))
    yield started
    started.stop()


@pytest.fixture
def chroot(server: LocalZookeeper, request: pytest.FixtureRequest) -> str:
    """The address of a chroot of the test's own, which is there."""
    text = f"zookeeper://{server.address}/{request.node.name}"
    asyncio.run(create_chroot(parse_servers(text)))
    return text


def in_store(text: str, story: Callable[[ZookeeperStore], Awaitable[T]]) -> T:
    """Run a story on the nodes themselves."""

    async def whole() -> T:
        store = ZookeeperStore(parse_servers(text), asyncio.get_running_loop(), 30_000)
        await store.open()
        try:
            return await story(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def make_topic(cluster: LocalCluster, topic: str, replicas: int = 3) -> None:
    with BlockingClient(cluster.bootstrap, timeout_ms=30_000) as client:
        client.create_topic(topic, 1, replicas, {"min.insync.replicas": "2"})
        client.await_topic(topic, replicas)


def leader_of(cluster: LocalCluster, topic: str, partition: int = 0) -> int:
    return next(
        each.leader
        for each in cluster.status().partitions
        if (each.topic, each.partition) == (topic, partition)
    )


def test_a_cluster_with_a_server_of_its_own_comes_and_goes_with_it(tmp_path: Path) -> None:
    require_zookeeper()
    directory = str(tmp_path / "cluster")
    up = tidelog("up", "--dir", directory, "--store", "zookeeper", "-n", "2")
    try:
        assert up.returncode == 0, up.stderr
        cluster = LocalCluster.existing(directory)
        zookeeper = cluster.zookeeper
        assert zookeeper is not None and zookeeper.process is not None
        assert f"zookeeper on {zookeeper.address} runs as process" in up.stderr
        make_topic(cluster, "flights", 2)
        write_values(cluster.bootstrap, FLIGHTS, [b"one"])
        assert tidelog("down", "--dir", directory).returncode == 0
        assert zookeeper.process is None
        again = tidelog("up", "--dir", directory)
        assert again.returncode == 0, again.stderr
        assert zookeeper.process is not None
        assert read_values(cluster.bootstrap, FLIGHTS) == [b"one"]
    finally:
        tidelog("down", "--dir", directory)
    assert zookeeper.process is None


@pytest.mark.rule("S3")
def test_brokers_serve_on_while_zookeeper_is_gone_and_go_on_with_it(tmp_path: Path) -> None:
    require_zookeeper()
    with LocalCluster(
        str(tmp_path / "cluster"), 3, store="zookeeper", end_with_program=True
    ) as cluster:
        make_topic(cluster, "flights")
        zookeeper = cluster.zookeeper
        assert zookeeper is not None
        before = {number: cluster.process(number) for number in cluster.broker_ids}
        zookeeper.kill()
        write_values(cluster.bootstrap, FLIGHTS, [b"one", b"two"])
        zookeeper.start()
        leader = leader_of(cluster, "flights")
        cluster.kill(leader)
        write_values(cluster.bootstrap, FLIGHTS, [b"three"], timeout_ms=60_000)
        assert leader_of(cluster, "flights") != leader
        cluster.start(leader)
        cluster.await_full_isrs()
        assert read_values(cluster.bootstrap, FLIGHTS) == [b"one", b"two", b"three"]
        after = {number: cluster.process(number) for number in cluster.broker_ids}
        assert {n: p for n, p in after.items() if n != leader} == {
            n: p for n, p in before.items() if n != leader
        }


def test_a_cluster_outlives_a_member_of_the_ensemble_and_its_own_leader(tmp_path: Path) -> None:
    members = ensemble(tmp_path / "ensemble")
    try:
        for member in members:
            member.spawn()
        for member in members:
            member.await_serving()
        text = f"zookeeper://{','.join(member.address for member in members)}/tide"
        asyncio.run(create_chroot(parse_servers(text)))
        with LocalCluster(
            str(tmp_path / "cluster"), 3, store=text, end_with_program=True
        ) as cluster:
            make_topic(cluster, "flights")
            next(member for member in members if member.mode() == "leader").kill()
            write_values(cluster.bootstrap, FLIGHTS, [b"one"])
            make_topic(cluster, "made-later")
            leader = leader_of(cluster, "flights")
            cluster.pause(leader)
            write_values(cluster.bootstrap, FLIGHTS, [b"two"], timeout_ms=60_000)
            cluster.resume(leader)
            cluster.start(leader)  # one that was paused for too long ends itself
            cluster.await_full_isrs()
            assert read_values(cluster.bootstrap, FLIGHTS) == [b"one", b"two"]
    finally:
        for member in members:
            member.kill()


@contextlib.contextmanager
def proxies(port: int, count: int) -> Iterator[tuple[list[CuttingProxy], Callable[..., None]]]:
    """Proxies in front of a server, on a loop of their own, and what runs coroutines there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    made = [CuttingProxy(port) for _ in range(count)]
    try:
        for proxy in made:
            run(proxy.listen())
        yield made, run
    finally:
        for proxy in made:
            run(proxy.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def leader_by(address: str) -> int:
    """Who leads the flights, as one broker tells clients."""
    with BlockingClient(address, timeout_ms=60_000) as client:
        return client.metadata([FLIGHTS.topic]).topics[FLIGHTS.topic].partitions[0].leader


def set_store(cluster: LocalCluster, broker_id: int, value: str) -> None:
    """Another metadata.store in the configuration of a broker that does not run."""
    file = Path(cluster.places()[broker_id].properties_path)
    lines = [
        f"metadata.store={value}" if line.startswith("metadata.store=") else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.rule("S3")
def test_a_broker_whose_session_expires_stops_leading_and_comes_back_by_itself(
    tmp_path: Path, chroot: str, server: LocalZookeeper
) -> None:
    """Cut off from ZooKeeper alone: clients and other brokers reach it all the time."""
    name = chroot.rpartition("/")[2]
    with (
        proxies(server.port, 3) as (fronts, run),
        LocalCluster(
            str(tmp_path / "cluster"),
            3,
            store=chroot,
            config={"metadata.session.timeout.ms": "4000"},
            end_with_program=True,
        ) as cluster,
    ):
        for broker_id, front in enumerate(fronts, 1):
            cluster.stop(broker_id)
            set_store(cluster, broker_id, f"zookeeper://{front.address}/{name}")
            cluster.start(broker_id)
        cluster.await_full_isrs()
        make_topic(cluster, "flights")
        cut_off = leader_of(cluster, "flights")
        process = cluster.process(cut_off)
        run(fronts[cut_off - 1].refuse())
        write_values(cluster.bootstrap, FLIGHTS, [b"one"])  # still its leader, or already another
        path = layout.broker_path(cut_off)

        async def registration(store: ZookeeperStore) -> int | None:
            node = await store.get(path)
            return None if node is None else node.stat.czxid

        while in_store(chroot, registration) is not None:
            pass
        # Who is cut off cannot know that its session is over: it tells clients what it knew, and
        # takes what it cannot commit. The others hear of the next leader soon.
        others = [one.address for number, one in cluster.places().items() if number != cut_off]
        for address in others:
            while leader_by(address) in (-1, cut_off):
                pass
        write_values(",".join(others), FLIGHTS, [b"two"], timeout_ms=60_000)
        run(fronts[cut_off - 1].listen())
        cluster.await_full_isrs()
        while in_store(chroot, registration) is None:
            pass
        assert [one for one in others if leader_by(one) == cut_off] == []
        assert cluster.process(cut_off) == process
        log = Path(cluster.places()[cut_off].log_path).read_text()
        assert "the session with the store has expired" in log
        write_values(cluster.bootstrap, FLIGHTS, [b"three"])
        assert read_values(cluster.bootstrap, FLIGHTS) == [b"one", b"two", b"three"]


@pytest.mark.rule("S6")
def test_a_cluster_moves_to_zookeeper_and_back(tmp_path: Path, server: LocalZookeeper) -> None:
    directory, text = str(tmp_path / "cluster"), f"zookeeper://{server.address}/moved/here"

    def set_stores(value: str) -> None:
        for broker_id in cluster.broker_ids:
            set_store(cluster, broker_id, value)

    def store(*words: str) -> str:
        ran = tidelog("store", *words)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    cluster = LocalCluster(directory, 3, store="embedded", end_with_program=True)
    with cluster:
        make_topic(cluster, "flights")
        write_values(cluster.bootstrap, FLIGHTS, [b"one"])
        refused = tidelog("store", "export", directory, str(tmp_path / "early"))
        assert refused.returncode == 1
        assert "brokers 1, 2, 3 are registered; stop them all first" in refused.stderr
    file = str(tmp_path / "metadata.jsonl")
    store("export", directory, file)
    assert "exists: it is not overwritten" in tidelog("store", "export", directory, file).stderr
    missing = tidelog("store", "import", file, text)
    assert missing.returncode == 1 and f"`tidelog store create {text}` makes it" in missing.stderr
    assert "made" in store("create", text)
    assert "is there already" in store("create", text)
    store("import", file, text)
    assert "no differences" in store("diff", directory, text)
    again = tidelog("store", "import", file, text)
    assert again.returncode == 1 and "holds a cluster already" in again.stderr

    set_stores(text)
    with cluster:
        cluster.await_full_isrs()
        assert read_values(cluster.bootstrap, FLIGHTS) == [b"one"]
        write_values(cluster.bootstrap, FLIGHTS, [b"two"])
    differing = tidelog("store", "diff", f"embedded:{directory}/metadata", text, "-o", "json")
    assert differing.returncode == 1 and layout.CONTROLLER_EPOCH in differing.stdout

    back = f"embedded:{directory}/metadata-2"
    store("export", text, f"{file}.2")
    store("import", f"{file}.2", back)
    set_stores(back)
    with cluster:
        cluster.await_full_isrs()
        assert read_values(cluster.bootstrap, FLIGHTS) == [b"one", b"two"]


# what is refused, named and left alone


def test_a_node_that_cannot_be_read_is_named_and_the_rest_goes_on(
    tmp_path: Path, chroot: str
) -> None:
    with LocalCluster(str(tmp_path / "cluster"), 2, store=chroot, end_with_program=True) as cluster:
        for topic in ("flights", "bad-topic"):
            make_topic(cluster, topic, 2)
        bad, *beside = (TopicPartition("bad-state", number) for number in range(3))
        with BlockingClient(cluster.bootstrap, timeout_ms=30_000) as client:
            client.create_topic("bad-state", 3, 2, {"min.insync.replicas": "1"})
            client.await_topic("bad-state", 2)
        write_values(cluster.bootstrap, bad, [b"kept"])
        cluster.down()
        whole: list[bytes] = []
        state = layout.partition_state_path(bad)

        async def damage(store: ZookeeperStore) -> None:
            node = await store.get(state)
            assert node is not None
            whole.append(node.data)
            await store.transact(
                [
                    SetData(layout.topic_path("bad-topic"), b"{not json", ANY_VERSION),
                    SetData(state, b'{"leader":"one"}', ANY_VERSION),
                    Create(f"{layout.TOPICS}/no topic!", b"hello"),
                    Create("/of-somebody-else", b"\xff"),
                ]
            )

        in_store(chroot, damage)
        cluster.up()
        write_values(cluster.bootstrap, FLIGHTS, [b"one"])
        make_topic(cluster, "new", 2)
        logs = "".join(Path(p.log_path).read_text() for p in cluster.places().values())
        for words in (
            f"node cannot be read, left alone: {layout.topic_path('bad-topic')}: not JSON",
            f"node cannot be read, left alone: {state}: ",
            "no topic!",
        ):
            assert words in logs
        victim = leader_of(cluster, "bad-state", beside[0].partition)
        cluster.kill(victim)
        for one in beside:
            write_values(cluster.bootstrap, one, [b"moved"], timeout_ms=60_000)
            assert leader_of(cluster, "bad-state", one.partition) not in (victim, -1)
        cluster.start(victim)

        async def mend(store: ZookeeperStore) -> None:
            node = await store.get(state)
            assert node is not None and node.data == b'{"leader":"one"}'
            await store.transact([SetData(state, whole[0], ANY_VERSION)])

        in_store(chroot, mend)
        write_values(cluster.bootstrap, bad, [b"mended"], timeout_ms=60_000)
        assert read_values(cluster.bootstrap, bad) == [b"kept", b"mended"]
        cluster.await_full_isrs()


def test_a_broker_that_cannot_reach_zookeeper_says_where_and_for_how_long(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = properties(
        tmp_path,
        metadata_store=f"zookeeper://{LOOPBACK}:{port}",
        zookeeper_connection_timeout_ms="700",
    )
    message = refusal(config)
    assert f"{LOOPBACK}:{port}" in message
    assert "within 700 ms (zookeeper.connection.timeout.ms)" in message
    assert "refused" in message


def test_without_a_quorum_an_administrator_is_answered_with_the_name_of_the_store(
    tmp_path: Path,
) -> None:
    require_zookeeper()
    directory = str(tmp_path / "cluster")
    with LocalCluster(directory, 1, store="zookeeper", end_with_program=True) as cluster:
        zookeeper = cluster.zookeeper
        assert zookeeper is not None
        zookeeper.kill()
        told = tidelog("topics", "create", "flights", "--dir", directory, "--timeout", "10")
        assert told.returncode == 1, told.stderr
        assert f"the metadata store zookeeper://{zookeeper.address} has not answered" in told.stderr
        assert "it has no quorum" in told.stderr
        assert "could not be reached" not in told.stderr
        moves = tidelog("reassign", "list", "--dir", directory, "--timeout", "2")
        assert moves.returncode == 1
        assert f"the metadata store zookeeper://{zookeeper.address} has not" in moves.stderr
        health = tidelog("health", "--dir", directory, "-o", "json")
        assert health.returncode == 1, health.stdout
        [finding] = json.loads(health.stdout)["findings"]
        assert (finding["level"], finding["kind"]) == ("degraded", "controller_blocked")
        assert "it has no quorum" in finding["message"]


def test_a_broker_waits_for_a_quorum_and_says_so(tmp_path: Path) -> None:
    """It waits for a session timeout where no other time is set, as Kafka does, and then starts."""
    require_zookeeper()
    [port] = free_ports(1)
    config = properties(
        tmp_path,
        metadata_store=f"zookeeper://{LOOPBACK}:{port}",
        metadata_session_timeout_ms="90000",
    )
    words = [sys.executable, "-m", "tidelog.runtime.main", "--config", config]
    broker = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert broker.stderr is not None
        waiting = next(line for line in broker.stderr if "waiting for ZooKeeper" in line)
        assert f"waiting for ZooKeeper at {LOOPBACK}:{port}: " in waiting
        assert waiting.rstrip().endswith("given up after 90000 ms (tidelog.store)")
        server = LocalZookeeper(str(tmp_path / "zookeeper"), port, end_with_program=True)
        server.start()
        try:
            lines: list[str] = []
            while not lines or (lines[-1] and " started on " not in lines[-1]):
                lines.append(broker.stderr.readline())
            assert lines[-1], "the broker ended: " + "".join(lines)
        finally:
            broker.kill()
            server.stop()
    finally:
        broker.kill()
        broker.communicate()


def test_a_chroot_that_is_not_there_is_named(tmp_path: Path, server: LocalZookeeper) -> None:
    text = f"zookeeper://{server.address}/mistyped"
    message = refusal(properties(tmp_path, metadata_store=text))
    assert f"{text}: the chroot does not exist; `tidelog store create {text}` makes it" in message


def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    message = refusal(properties(tmp_path, metadata_store="zookeeper://a:1,,b"))
    assert "zookeeper://a:1,,b" in message and "host:port[,host:port][/chroot] expected" in message
    with pytest.raises(LocalClusterError, match=r"host:port\[,host:port\]\[/chroot\] expected"):
        LocalCluster(str(tmp_path / "cluster"), store="zookeeper://a:1,,b")
    with pytest.raises(LocalClusterError, match="store 'etcd': embedded, zookeeper"):
        LocalCluster(str(tmp_path / "cluster"), store="etcd")


def test_a_store_of_another_cluster_and_an_id_in_use_are_refused(
    tmp_path: Path, chroot: str, server: LocalZookeeper
) -> None:
    with LocalCluster(str(tmp_path / "cluster"), 1, store=chroot, end_with_program=True) as cluster:
        used = refusal(
            properties(tmp_path, metadata_store=chroot, metadata_session_timeout_ms="1000")
        )
        assert "broker id 1 is registered by another live broker" in used
        place = cluster.places()[1]
        cluster.stop(1)
        other = f"{chroot}-other"
        asyncio.run(create_chroot(parse_servers(other)))
        message = refusal(place.properties_path, "--override", f"metadata.store={other}")
        assert "cluster" in message and f"{place.directory}/data" in message


def test_a_cluster_id_that_cannot_be_read_is_named(tmp_path: Path, chroot: str) -> None:
    async def damage(store: ZookeeperStore) -> None:
        await store.transact([Create(layout.CLUSTER, b""), Create(layout.CLUSTER_ID, b"[1]")])

    in_store(chroot, damage)
    assert layout.CLUSTER_ID in refusal(properties(tmp_path, metadata_store=chroot))


def test_a_broker_whose_zookeeper_hangs_still_stops(tmp_path: Path) -> None:
    require_zookeeper()
    with LocalCluster(
        str(tmp_path / "cluster"), 1, store="zookeeper", end_with_program=True
    ) as cluster:
        zookeeper, process = cluster.zookeeper, cluster.process(1)
        assert zookeeper is not None and process is not None
        zookeeper.send(signal.SIGSTOP)
        process.send(signal.SIGTERM)
        assert process.await_end(20.0)
        zookeeper.send(signal.SIGCONT)
