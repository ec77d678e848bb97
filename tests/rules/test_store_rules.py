"""Rules S1-S5, and what V3, V4, V5, V6, V24 and G3 ask of the store: held by each store alike."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.zookeepers import start_server
from tests.support.store.clusters import (
    Cluster,
    SimCluster,
    SqliteCluster,
    ZookeeperCluster,
    told,
)
from tests.support.store.driver import drivers

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import validate_topic_name
from tidelog.core.types import (
    RECOVERING,
    BrokerInfo,
    Endpoint,
    PartitionState,
    TopicPartition,
    topic_id_from_text,
)
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata import layout
from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    MetadataStore,
    Node,
    NodeExists,
    OutcomeUnknown,
    SessionEvent,
    SessionExpired,
    SetData,
    Stat,
    TransactionFailed,
    WatchEvent,
)
from tidelog.runtime.stores.sqlite_database import Database

#: A session that has expired is refused long before it has written so often.
MAX_WRITES = 500


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    server = start_server(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture(params=["sim", "sqlite", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "sqlite":
        yield SqliteCluster(tmp_path / "store")
        return
    if request.param == "zookeeper":
        yield ZookeeperCluster(request.getfixturevalue("zookeeper").address)
        return
    simulated = SimCluster()
    yield simulated
    simulated.close()


# S1


@pytest.mark.rule("S1")
@told
async def test_a_session_that_was_expired_writes_nothing_any_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it has not heard of it: what was sent before it knew is refused by the store."""
    # Nothing but the refusal of a write brings it the news.
    monkeypatch.setattr(Database, "has_changed", lambda self: False)
    store, witness = await cluster.open(timeout_ms=300), await cluster.open()
    await store.transact([Create("/e", b"", ephemeral=True), Create("/a", b"")])
    gone: list[WatchEvent] = []
    await witness.get("/e", gone.append)
    cluster.silence(store)
    loop = asyncio.get_running_loop()
    accepted_after_expiry = 0
    refused = False
    version = 0
    while not refused:
        is_over = bool(gone)
        write = asyncio.Task(store.transact([SetData("/a", b"", version)]), loop=loop)
        try:
            await write
        except SessionExpired:
            refused = True
        else:
            version += 1
            accepted_after_expiry += is_over
        assert version < MAX_WRITES, "the store never refuses a write"
        await cluster.sleep(10)
    assert accepted_after_expiry == 0
    await cluster.until(lambda: bool(gone))
    node = await witness.get("/a")
    assert node is not None and node.stat.version == version


@pytest.mark.rule("S1")
@told
async def test_all_ephemeral_nodes_of_a_session_go_in_one_transaction(cluster: Cluster) -> None:
    store, witness = await cluster.open(timeout_ms=300), await cluster.open()
    paths = [f"/e{number}" for number in range(20)]
    await store.transact([Create(path, b"", ephemeral=True) for path in paths])
    [before] = await witness.transact([Create("/before", b"")])
    seen: list[set[bool]] = []
    cluster.silence(store)
    while not seen or True in seen[-1]:
        nodes = await witness.get_many(paths)
        seen.append({node is not None for node in nodes})
        await cluster.sleep(5)
    assert all(len(states) == 1 for states in seen), "some were gone before others"
    [after] = await witness.transact([Create("/after", b"")])
    assert before.stat is not None and after.stat is not None
    assert after.stat.czxid == before.stat.czxid + 2, "the expiry took one transaction id"


@pytest.mark.rule("S1")
@told
async def test_a_watcher_hears_of_a_change_before_it_can_read_anything_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, watcher = await cluster.open(), await cluster.open()
    # Nothing but the watcher's own request brings it the news in time.
    if isinstance(cluster, SimCluster):
        cluster.server.watch_delay_ms = lambda: 500.0
    monkeypatch.setattr(Database, "has_changed", lambda self: False)
    await writer.transact([Create("/a", b""), Create("/b", b"")])
    for version in range(50):
        heard: list[WatchEvent] = []
        await watcher.get("/a", heard.append)
        # /b changes in a later transaction than /a: who sees it must have heard of /a.
        await writer.transact([SetData("/a", b"", version)])
        await writer.transact([SetData("/b", b"", version)])
        if version % 2:
            node = await watcher.get("/b")
            assert node is not None and node.stat.version == version + 1
        else:
            await watcher.transact([Check("/b", version + 1)])
        assert len(heard) == 1


@pytest.mark.rule("S1")
def test_a_write_that_is_under_way_when_its_session_expires_is_refused() -> None:
    cluster = SimCluster()

    async def story() -> None:
        store, witness = await cluster.open(), await cluster.open()
        await store.transact([Create("/a", b"")])
        assert store.session_id is not None
        write = asyncio.ensure_future(store.transact([SetData("/a", b"late", 0)]))
        await asyncio.sleep(0)
        cluster.server.expire(store.session_id)
        with pytest.raises(SessionExpired):
            await write
        node = await witness.get("/a")
        assert node is not None and node.stat.version == 0

    cluster.run(story())
    cluster.close()


@pytest.mark.rule("S1")
def test_a_change_while_the_connection_was_broken_is_heard_of_before_anything_later() -> None:
    cluster = SimCluster()

    async def story() -> None:
        writer = await cluster.open()
        reachable = [True]
        watcher = cluster.store()
        watcher._reachable = lambda: reachable[0]
        await watcher.open()
        cluster.stores.append(watcher)
        await writer.transact([Create("/a", b"")])
        heard: list[WatchEvent] = []
        await watcher.get("/a", heard.append)
        reachable[0] = False
        await cluster.sleep(1000)
        await writer.transact([SetData("/a", b"1", 0)])
        await cluster.sleep(200)
        assert heard == []
        reachable[0] = True
        node = await watcher.get("/a")
        assert node is not None and node.data == b"1"
        assert len(heard) == 1

    cluster.run(story())
    cluster.close()


# S2


@pytest.mark.rule("S2")
def test_after_an_unknown_outcome_reading_back_decides_and_stays_true() -> None:
    cluster = SimCluster()

    async def story() -> None:
        store = await cluster.open()
        await store.transact([Create("/a", b"")])
        for number, (lose, applied) in enumerate(
            [(store.lose_next_answer, True), (store.lose_next_request, False)]
        ):
            lose()
            with pytest.raises(OutcomeUnknown):
                await store.transact([SetData("/a", str(number).encode(), ANY_VERSION)])
            node = await store.get("/a")
            assert node is not None
            assert (node.data == str(number).encode()) is applied
            await cluster.sleep(10_000)
            assert await store.get("/a") == node

    cluster.run(story())
    cluster.close()


# S3


@pytest.mark.rule("S3")
def test_a_store_that_cannot_be_reached_is_no_expired_session() -> None:
    cluster = SimCluster()

    async def story() -> None:
        store = await cluster.open(timeout_ms=2000)
        heard: list[SessionEvent] = []
        store.on_session(heard.append)
        await store.transact([Create("/e", b"", ephemeral=True)])
        cluster.reachable = False
        await cluster.sleep(1500)
        assert heard == [SessionEvent.SUSPENDED]
        assert store.session_id is not None
        cluster.reachable = True
        assert await store.get("/e") is not None
        assert heard == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]

    cluster.run(story())
    cluster.close()


# S4


@pytest.mark.rule("S4")
def test_a_process_stopped_inside_a_write_transaction_is_killed_by_a_peer(tmp_path: Path) -> None:
    with drivers(tmp_path / "store") as processes:
        peer = processes.start(600)
        for path in ("/a", "/b", "/marks"):
            peer.ask(do="make", path=path)
        stuck = processes.start(600, traced=True)
        points = stuck.ask(do="points", mark="rehearsal")
        stuck.start(do="strike", mark="m", at=points.index("COMMIT"), kill=int(signal.SIGSTOP))
        stuck.wait_stopped()
        peer.ask(do="mark", mark="after")
        assert stuck.wait_ended() == -signal.SIGKILL
        assert peer.logged("KILLED", str(stuck.pid))
        assert peer.ask(do="children", path="/marks") == ["after", "rehearsal"]


# S5


@pytest.mark.rule("S5")
@told
async def test_a_broker_id_held_by_a_dying_session_is_free_after_its_timeout(
    cluster: Cluster,
) -> None:
    dying, successor = await cluster.open(timeout_ms=400), await cluster.open()
    path = layout.broker_path(1)
    await dying.transact([Create(parent, b"") for parent in ("/brokers", "/brokers/ids")])
    await dying.transact([Create(path, b"old", ephemeral=True)])
    owner = dying.session_id
    cluster.silence(dying)
    owners: list[int] = []
    while True:
        try:
            [made] = await successor.transact([Create(path, b"new", ephemeral=True)])
        except TransactionFailed as failed:
            assert isinstance(failed.error, NodeExists)
            node = await successor.get(path)
            if node is not None:
                owners.append(node.stat.ephemeral_owner)
            await cluster.sleep(10)
        else:
            break
    assert owners and dict.fromkeys(owners) == {owner: None}, "the owner can be read meanwhile"
    assert made.stat is not None and made.stat.ephemeral_owner == successor.session_id


# V3: election and fencing


async def elect(store: MetadataStore, broker_id: int) -> tuple[int, int]:
    """Become controller; the epoch, and the version of its node that fences later writes."""
    node = await store.get(layout.CONTROLLER_EPOCH)
    assert node is not None
    epoch = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, node.data) + 1
    _, written = await store.transact(
        [
            Create(layout.CONTROLLER, layout.encode_controller(broker_id, 0), ephemeral=True),
            SetData(
                layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch), node.stat.version
            ),
        ]
    )
    assert written.stat is not None
    return epoch, written.stat.version


@pytest.mark.rule("V3")
@told
async def test_of_two_that_race_for_the_controller_one_wins_all_of_it(cluster: Cluster) -> None:
    stores = [await cluster.open(), await cluster.open()]
    await stores[0].transact([Create(layout.CONTROLLER_EPOCH, b"0")])
    loop = asyncio.get_running_loop()
    races = [asyncio.Task(elect(store, n), loop=loop) for n, store in enumerate(stores)]
    won = []
    for broker_id, race in enumerate(races):
        try:
            assert await race == (1, 1)
            won.append(broker_id)
        except TransactionFailed as failed:
            assert isinstance(failed.error, NodeExists | BadVersion)
    assert len(won) == 1
    node = await stores[0].get(layout.CONTROLLER)
    assert node is not None
    assert json.loads(node.data)["brokerid"] == won[0]


@pytest.mark.rule("V3")
@told
async def test_a_deposed_controller_cannot_write(cluster: Cluster) -> None:
    """Even before it hears that it was deposed: the check op fails the whole transaction."""
    deposed, successor = await cluster.open(timeout_ms=400), await cluster.open()
    await deposed.transact([Create(layout.CONTROLLER_EPOCH, b"0"), Create("/state", b"")])
    _, fence = await elect(deposed, 1)
    await deposed.transact([Check(layout.CONTROLLER_EPOCH, fence), SetData("/state", b"1", 0)])
    gone: list[WatchEvent] = []
    await successor.get(layout.CONTROLLER, gone.append)
    cluster.silence(deposed)
    await cluster.until(lambda: bool(gone))
    epoch, _ = await elect(successor, 2)
    assert epoch == 2
    # The old one comes back with a new session, but with the fence of its old term.
    await cluster.until(lambda: deposed.session_id is None)
    await deposed.open()
    with pytest.raises(TransactionFailed) as raised:
        await deposed.transact([Check(layout.CONTROLLER_EPOCH, fence), SetData("/state", b"x", 1)])
    assert (raised.value.index, type(raised.value.error)) == (0, BadVersion)
    node = await successor.get("/state")
    assert node is not None and node.data == b"1"


# V6: conditional updates, negative versions


@pytest.mark.rule("V6")
@told
async def test_a_state_is_only_updated_at_the_expected_version(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/state", b"0")])
    for expected in (1, 7, -2, -100):
        with pytest.raises(TransactionFailed) as raised:
            await store.transact([SetData("/state", b"wrong", expected)])
        assert isinstance(raised.value.error, BadVersion)
    [written] = await store.transact([SetData("/state", b"1", 0)])
    assert written.stat is not None and written.stat.version == 1
    with pytest.raises(TransactionFailed):
        await store.transact([SetData("/state", b"again", 0)])
    assert await store.get("/state") == Node(b"1", written.stat)


@pytest.mark.rule("V6")
@told
async def test_minus_one_is_any_version_so_it_must_never_come_from_the_wire(
    cluster: Cluster,
) -> None:
    store = await cluster.open()
    await store.transact([Create("/state", b"0"), SetData("/state", b"1", 0)])
    await store.transact([SetData("/state", b"2", ANY_VERSION)])
    node = await store.get("/state")
    assert node is not None and (node.data, node.stat.version) == (b"2", 2)


STATE_PATH = layout.partition_state_path(TopicPartition("t", 3))


@pytest.mark.rule("V6")
def test_the_state_node_is_kafkas_with_keys_of_ours() -> None:
    assert STATE_PATH == "/brokers/topics/t/partitions/3/state"
    plain = PartitionState(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=7)
    assert json.loads(layout.encode_partition_state(plain)) == {
        "controller_epoch": 7,
        "leader": 1,
        "version": 1,
        "leader_epoch": 5,
        "isr": [1, 2],
    }
    full = PartitionState(
        leader=-1,
        leader_epoch=6,
        isr=(2,),
        controller_epoch=8,
        partition_epoch=12,
        leader_recovery_state=RECOVERING,
        isr_epochs=(900,),
        elr=(1,),
        elr_epochs=(700,),
        last_leader=1,
        removed=True,
        mzxid=33,
    )
    data = layout.encode_partition_state(full)
    assert layout.decode_partition_state(STATE_PATH, data, Stat(12, 1, 33, 0)) == full
    read = layout.decode_partition_state(STATE_PATH, data, Stat(12, 1, 33, 0))
    assert (read.partition_epoch, read.mzxid) == (12, 33)


@pytest.mark.rule("V6")
def test_a_state_that_kafka_rewrote_has_safe_meanings_for_what_is_missing() -> None:
    data = b'{"leader":1,"leader_epoch":5,"controller_epoch":7,"version":1,"isr":[1],"new":{}}'
    state = layout.decode_partition_state(STATE_PATH, data, Stat(4, 1, 2, 0))
    assert (state.isr_epochs, state.elr, state.last_leader) == (None, (), -1)
    assert (state.removed, state.leader_recovery_state, state.partition_epoch) == (False, 0, 4)


# V4, V5: registrations and assignments


@pytest.mark.rule("V4")
@told
async def test_a_registration_is_kafkas_and_its_creation_id_is_the_broker_epoch(
    cluster: Cluster,
) -> None:
    store = await cluster.open()
    await store.transact([Create("/brokers", b""), Create("/brokers/ids", b"")])
    broker = BrokerInfo(
        broker_id=7,
        broker_epoch=-1,
        endpoints=(
            Endpoint("INTERNAL", "host-7", 9093, "SASL_SSL"),
            Endpoint("OUTSIDE", "::1", 9092, "PLAINTEXT"),
        ),
        rack="r1",
        previous_broker_epoch=41,
        earlier_broker_epochs=(37,),
    )
    path = layout.broker_path(7)
    data = layout.encode_broker(broker, timestamp_ms=1234)
    assert json.loads(data) == {
        "version": 5,
        "host": "::1",
        "port": 9092,
        "endpoints": ["INTERNAL://host-7:9093", "OUTSIDE://[::1]:9092"],
        "jmx_port": -1,
        "timestamp": "1234",
        "listener_security_protocol_map": {"INTERNAL": "SASL_SSL", "OUTSIDE": "PLAINTEXT"},
        "features": {},
        "rack": "r1",
        "previous_broker_epoch": 41,
        "earlier_broker_epochs": [37],
    }
    [made, _] = await store.transact([Create(path, b"", ephemeral=True), SetData(path, data, 0)])
    node = await store.get(path)
    assert node is not None and made.stat is not None
    read = layout.decode_broker(path, 7, node)
    assert read.broker_epoch == node.stat.czxid == made.stat.czxid
    assert (read.endpoints, read.rack) == (broker.endpoints, "r1")
    assert (read.previous_broker_epoch, read.earlier_broker_epochs) == (41, (37,))


@pytest.mark.rule("V5")
def test_the_topic_node_is_kafkas_and_names_no_broker_twice() -> None:
    topic_id = topic_id_from_text("AAECAwQFBgcICQoLDA0ODw")
    assignment = layout.TopicAssignment(
        topic_id, {0: (1, 2, 3), 10: (3, 1), 2: (2,)}, adding={0: (3,)}, removing={}
    )
    data = layout.encode_topic(assignment)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partitions": {"0": [1, 2, 3], "2": [2], "10": [3, 1]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {},
    }
    assert layout.decode_topic("/brokers/topics/t", data) == assignment
    twice = b'{"version":3,"partitions":{"0":[1,2,1]},"adding_replicas":{},"removing_replicas":{}}'
    with pytest.raises(layout.LayoutError, match=r"partitions\.0 .*without repetition"):
        layout.decode_topic("/brokers/topics/t", twice)


# V24: names


@pytest.mark.rule("V24")
@pytest.mark.parametrize("name", ["a", "...", "A-z_0.9", "x" * 249, "__consumer_offsets"])
def test_topic_names_that_are_allowed(name: str) -> None:
    validate_topic_name(name)
    assert layout.topic_path(name) == f"/brokers/topics/{name}"


@pytest.mark.rule("V24")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", r"'\.' or '\.\.'"),
        ("..", r"'\.' or '\.\.'"),
        ("x" * 250, "250 characters, at most 249"),
        ("a/b", "only ASCII letters"),
        ("../../etc", "only ASCII letters"),
        ("a b", "only ASCII letters"),
        ("a\n", "only ASCII letters"),
        ("tópico", "only ASCII letters"),
    ],
)
def test_topic_names_that_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        validate_topic_name(name)
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


# G3: producer ids


@pytest.mark.rule("G3")
@told
async def test_two_that_take_producer_id_blocks_never_take_the_same(cluster: Cluster) -> None:
    stores = [await cluster.open(), await cluster.open()]
    path = layout.PRODUCER_ID_BLOCK
    await stores[0].transact([Create(path, layout.encode_producer_id_block(0, 0, 999))])
    taken: list[int] = []

    async def take(broker_id: int, store: MetadataStore) -> None:
        count = 0
        while count < 20:
            node = await store.get(path)
            assert node is not None
            _, _, last = layout.decode_producer_id_block(path, node.data)
            data = layout.encode_producer_id_block(broker_id, last + 1, last + 1000)
            try:
                await store.transact([SetData(path, data, node.stat.version)])
            except TransactionFailed as failed:
                assert isinstance(failed.error, BadVersion)
            else:
                taken.append(last + 1)
                count += 1

    loop = asyncio.get_running_loop()
    tasks = [asyncio.Task(take(n, store), loop=loop) for n, store in enumerate(stores)]
    for task in tasks:
        await task
    assert sorted(taken) == [1000 * number for number in range(1, 41)]
    node = await stores[0].get(path)
    assert node is not None
    assert json.loads(node.data) == {
        "version": 1,
        "broker": json.loads(node.data)["broker"],
        "block_start": "40000",
        "block_end": "40999",
    }
