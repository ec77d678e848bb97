"""The metadata store's contract, held by every store alike (`tidelog.metadata.store`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.store.clusters import Cluster, told

from tidelog.core.limits import MAX_NODE_BYTES, MAX_TRANSACTION_OPS
from tidelog.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    InvalidPath,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    RequestTooLarge,
    SessionEvent,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
    WatchEvent,
)

CREATED, DELETED = EventKind.CREATED, EventKind.DELETED
CHANGED, CHILDREN = EventKind.CHANGED, EventKind.CHILDREN


# nodes and transactions


@told
async def test_a_node_is_read_as_it_was_made(cluster: Cluster) -> None:
    store = await cluster.open()
    [made] = await store.transact([Create("/a", b"one")])
    assert made.stat is not None
    zxid = made.stat.czxid
    assert zxid > 0
    assert made == OpResult("/a", Stat(0, zxid, zxid, NO_OWNER))
    assert await store.get("/a") == Node(b"one", Stat(0, zxid, zxid, NO_OWNER))
    assert await store.get("/b") is None


@told
async def test_each_write_transaction_takes_one_transaction_id(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b""), Create("/b", b""), Create("/a/c", b"")])
    await store.transact([SetData("/a", b"x", 0), Delete("/b", 0)])
    await store.transact([Create("/d", b"")])
    a, c, d = await store.get_many(["/a", "/a/c", "/d"])
    assert a is not None and c is not None and d is not None
    assert c.stat.czxid == a.stat.czxid < a.stat.mzxid < d.stat.czxid


@pytest.mark.parametrize("cluster", ["sim", "sqlite"], indirect=True)
@told
async def test_ids_of_transactions_leave_no_gaps(cluster: Cluster) -> None:
    """ZooKeeper's count sessions and failures too."""
    store = await cluster.open()
    for zxid in (1, 2, 3):
        [made] = await store.transact([Create(f"/{zxid}", b"")])
        assert made.stat is not None and made.stat.czxid == zxid


@told
async def test_transactions_that_only_check_are_answered(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    assert await store.transact([Check("/a", 0)]) == [OpResult("/a", None)]
    assert await store.transact([]) == []


@pytest.mark.parametrize("cluster", ["sim", "sqlite"], indirect=True)
@told
async def test_transactions_that_only_check_or_fail_take_no_transaction_id(
    cluster: Cluster,
) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    assert await store.transact([Check("/a", 0)]) == [OpResult("/a", None)]
    assert await store.transact([]) == []
    with pytest.raises(TransactionFailed):
        await store.transact([Create("/b", b""), Check("/a", 1)])
    [made] = await store.transact([Create("/b", b"")])
    assert made.stat is not None and made.stat.czxid == 2


@told
async def test_versions_count_changes_of_data_alone(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    for version in range(3):
        [result] = await store.transact([SetData("/a", b"x", version)])
        assert result.stat is not None and result.stat.version == version + 1
    await store.transact([Create("/a/child", b"")])
    node = await store.get("/a")
    assert node is not None and node.stat.version == 3


@told
async def test_operations_of_a_transaction_see_the_earlier_ones(cluster: Cluster) -> None:
    store = await cluster.open()
    results = await store.transact(
        [
            Create("/a", b""),
            SetData("/a", b"one", 0),
            Check("/a", 1),
            Create("/a/b", b""),
            Delete("/a/b", 0),
            SetData("/a", b"two", 1),
        ]
    )
    assert [result.path for result in results] == ["/a", "/a", "/a", "/a/b", "/a/b", "/a"]
    assert results[0].stat is not None
    zxid = results[0].stat.czxid
    assert results[5].stat == Stat(2, zxid, zxid, NO_OWNER)
    assert await store.get("/a") == Node(b"two", Stat(2, zxid, zxid, NO_OWNER))
    assert await store.children("/a") == []


@told
async def test_a_node_removed_and_made_again_in_one_transaction_is_a_new_one(
    cluster: Cluster,
) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"old"), Create("/a/b", b"old")])
    [old] = await store.transact([SetData("/a/b", b"older", 0)])
    results = await store.transact(
        [Delete("/a/b", 1), Create("/a/b", b"new"), SetData("/a/b", b"newer", 0)]
    )
    assert old.stat is not None and results[2].stat is not None
    zxid = results[2].stat.mzxid
    assert zxid > old.stat.mzxid
    assert await store.get("/a/b") == Node(b"newer", Stat(1, zxid, zxid, NO_OWNER))
    assert await store.children("/a") == ["b"]


FAILURES: list[tuple[Op, type[StoreError], str]] = [
    (Create("/a", b""), NodeExists, "/a"),
    (Create("/missing/a", b""), NoNode, "/missing/a"),
    (Create("/e/child", b""), NoChildrenForEphemerals, "/e/child"),
    (SetData("/missing", b"", ANY_VERSION), NoNode, "/missing"),
    (SetData("/a", b"", 1), BadVersion, "/a"),
    (SetData("/a", b"", -2), BadVersion, "/a"),
    (Delete("/missing", 0), NoNode, "/missing"),
    (Delete("/a/b", 7), BadVersion, "/a/b"),
    (Delete("/a", 0), NotEmpty, "/a"),
    (Delete("/", ANY_VERSION), NotEmpty, "/"),
    (Check("/missing", ANY_VERSION), NoNode, "/missing"),
    (Check("/a", 1), BadVersion, "/a"),
]


@pytest.mark.parametrize(("op", "error", "path"), FAILURES, ids=str)
@told
async def test_an_operation_that_fails_leaves_nothing_of_its_transaction(
    cluster: Cluster, op: Op, error: type[StoreError], path: str
) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b""), Create("/a/b", b"")])
    await store.transact([Create("/e", b"", ephemeral=True)])
    before = await store.get_many(["/", "/a", "/a/b", "/e"])
    good = [
        SetData("/a", b"changed", 0),
        Create("/new", b""),
        SetData("/new", b"x", 0),
        Delete("/a/b", 0),
        Create("/a/b", b"again"),
        Create("/a/n-", b"", sequence=True),
        Delete("/e", ANY_VERSION),
        Create("/e", b"", ephemeral=True),
        SetData("/a", b"", 1),
        Delete("/new", 1),
    ]
    with pytest.raises(TransactionFailed) as raised:
        await store.transact([Check("/a", 0), op, *good])
    assert (raised.value.index, type(raised.value.error)) == (1, error)
    assert raised.value.error.path == raised.value.path == path
    if not isinstance(op, SetData) and op.path != "/a":
        with pytest.raises(TransactionFailed) as raised:
            await store.transact([*good, SetData("/missing", b"", 0)])
        assert raised.value.index == len(good)
    assert await store.get_many(["/", "/a", "/a/b", "/e"]) == before
    assert await store.children("/") == ["a", "e"]
    assert await store.children("/a") == ["b"]
    assert await store.get("/new") is None
    # The counter of sequence numbers is back too: a, then b, were made under /a's parent and /a.
    [made] = await store.transact([Create("/a/n-", b"", sequence=True)])
    assert made.path == "/a/n-0000000001"


@told
async def test_a_transaction_that_fails_does_not_take_its_neighbours_along(
    cluster: Cluster,
) -> None:
    """Those that wait together may be written together."""
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    tasks = [store.transact([SetData("/a", str(n).encode(), n)]) for n in (0, 7, 1, 1, 2)]
    outcomes: list[object] = []
    for task in tasks:
        try:
            results = await task
            outcomes.append([result.stat and result.stat.version for result in results])
        except TransactionFailed as failure:
            outcomes.append(type(failure.error))
    assert outcomes == [[1], BadVersion, [2], BadVersion, [3]]
    node = await store.get("/a")
    assert node is not None and node.data == b"2"


@told
async def test_requests_take_effect_in_the_order_they_were_made(cluster: Cluster) -> None:
    store = await cluster.open()
    seen: list[int | None] = []

    async def read() -> None:
        node = await store.get("/a")
        seen.append(None if node is None else node.stat.version)

    steps = [read(), store.transact([Create("/a", b"")]), read()]
    for _ in range(3):
        steps += [store.transact([SetData("/a", b"", ANY_VERSION)]), read()]
    tasks = [asyncio.Task(step, loop=asyncio.get_running_loop()) for step in steps]
    for task in tasks:
        await task
    assert seen == [None, 0, 1, 2, 3]


@told
async def test_any_version_matches_every_version(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    await store.transact([SetData("/a", b"x", ANY_VERSION), SetData("/a", b"y", ANY_VERSION)])
    await store.transact([Check("/a", ANY_VERSION), Delete("/a", ANY_VERSION)])
    assert await store.get("/a") is None


@told
async def test_a_version_starts_again_with_a_new_node(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b""), SetData("/a", b"", 0)])
    await store.transact([Delete("/a", 1)])
    await store.transact([Create("/a", b"")])
    with pytest.raises(TransactionFailed):
        await store.transact([SetData("/a", b"", 1)])


@told
async def test_sequence_nodes_are_numbered_by_the_children_ever_made(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/q", b""), Create("/q/plain", b"")])
    [first] = await store.transact([Create("/q/n_", b"1", sequence=True)])
    [second, _, third] = await store.transact(
        [
            Create("/q/n_", b"2", sequence=True),
            Delete("/q/n_0000000001", 0),
            Create("/q/m_", b"3", sequence=True),
        ]
    )
    assert (first.path, second.path, third.path) == (
        "/q/n_0000000001",
        "/q/n_0000000002",
        "/q/m_0000000003",
    )
    [bare] = await store.transact([Create("/q/", b"", sequence=True, ephemeral=True)])
    assert bare.path == "/q/0000000004"
    assert await store.children("/q") == [
        "0000000004",
        "m_0000000003",
        "n_0000000002",
        "plain",
    ]


@told
async def test_a_sequence_number_that_was_taken_by_name_is_an_error(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/q", b""), Create("/q/n_0000000001", b"")])
    with pytest.raises(TransactionFailed) as raised:
        await store.transact([Create("/q/n_", b"", sequence=True)])
    assert isinstance(raised.value.error, NodeExists)
    # ZooKeeper does not tell which number it was.
    assert raised.value.error.path in ("/q/n_0000000001", "/q/n_")


@told
async def test_children_are_sorted_and_direct(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact(
        [Create(path, b"") for path in ("/b", "/a", "/a/z", "/a/z/deep", "/a/b", "/ab", "/a-")]
    )
    assert await store.children("/") == ["a", "a-", "ab", "b"]
    assert await store.children("/a") == ["b", "z"]
    assert await store.children("/b") == []
    assert await store.children("/missing") is None


@told
async def test_many_nodes_are_read_in_order(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create(f"/n{number}", str(number).encode()) for number in range(300)])
    asked = [f"/n{number}" for number in range(299, -1, -1)] + ["/missing", "/n5", "/n5"]
    nodes = await store.get_many(asked)
    assert [node.data.decode() if node else "" for node in nodes] == [
        path.removeprefix("/n") if path != "/missing" else "" for path in asked
    ]
    assert await store.get_many([]) == []


@told
async def test_what_one_session_wrote_another_reads(cluster: Cluster) -> None:
    first, second = await cluster.open(), await cluster.open()
    for number in range(20):
        await first.transact(
            [Create("/a", b"0") if number == 0 else SetData("/a", b"x", number - 1)]
        )
        node = await second.get("/a")
        assert node is not None and node.stat.version == number


@told
async def test_of_two_sessions_that_set_one_version_one_wins(cluster: Cluster) -> None:
    stores = [await cluster.open() for _ in range(3)]
    await stores[0].transact([Create("/a", b"")])
    loop = asyncio.get_running_loop()
    for version in range(20):
        tasks = [
            asyncio.Task(store.transact([SetData("/a", b"", version)]), loop=loop)
            for store in stores
        ]
        won = 0
        for task in tasks:
            try:
                await task
                won += 1
            except TransactionFailed as failure:
                assert isinstance(failure.error, BadVersion)
        assert won == 1


# limits and names

BAD_PATHS = [
    "",
    "a",
    "/a/",
    "//",
    "/a//b",
    "/.",
    "/a/..",
    "/a/./b",
    "/a\x00",
    "/a\nb",
    "/\ue000",
    "/😀",
]


@pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
@told
async def test_what_is_no_path_is_refused(cluster: Cluster, path: str) -> None:
    store = await cluster.open()
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: store.get(path),
        lambda: store.get_many(["/", path]),
        lambda: store.children(path),
        lambda: store.transact([Create("/fine", b""), Create(path, b"")]),
        lambda: store.transact([Check(path, 0)]),
    )
    for call in calls:
        with pytest.raises(InvalidPath):
            await call()
    assert await store.children("/") == []


@told
async def test_names_may_hold_what_zookeeper_allows(cluster: Cluster) -> None:
    store = await cluster.open()
    names = ["...", ".a", "%_'\"\\ *", "ü", "日本", "a" * 249, "+", "=", "-", "&"]
    await store.transact([Create(f"/{name}", name.encode()) for name in names])
    assert await store.children("/") == sorted(names)
    nodes = await store.get_many([f"/{name}" for name in names])
    assert [node.data.decode() for node in nodes if node] == names


@told
async def test_requests_over_the_limits_are_refused(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", bytes(MAX_NODE_BYTES))])
    node = await store.get("/a")
    assert node is not None and node.data == bytes(MAX_NODE_BYTES)
    too_large = bytes(MAX_NODE_BYTES + 1)
    with pytest.raises(RequestTooLarge, match=f"{MAX_NODE_BYTES + 1} bytes in a node"):
        await store.transact([SetData("/a", too_large, 0)])
    with pytest.raises(RequestTooLarge, match=f"{MAX_TRANSACTION_OPS + 1} operations"):
        await store.transact([Check("/a", 0)] * (MAX_TRANSACTION_OPS + 1))
    with pytest.raises(RequestTooLarge, match="bytes in a transaction"):
        await store.transact([SetData("/a", bytes(600_000), n) for n in (0, 1)])
    most = [Create(f"/n{number}", b"") for number in range(MAX_TRANSACTION_OPS)]
    assert len(await store.transact(most)) == MAX_TRANSACTION_OPS


# watches


@told
async def test_a_data_watch_fires_once_on_creation_change_and_removal(cluster: Cluster) -> None:
    writer, watcher = await cluster.open(), await cluster.open()
    seen: list[WatchEvent] = []
    assert await watcher.get("/a", seen.append) is None
    await writer.transact([Create("/a", b"")])
    await cluster.until(lambda: len(seen) == 1)
    await writer.transact([SetData("/a", b"unseen", 0)])
    node = await watcher.get("/a", seen.append)
    assert node is not None and node.data == b"unseen"
    await writer.transact([SetData("/a", b"", 1)])
    await cluster.until(lambda: len(seen) == 2)
    await watcher.get("/a", seen.append)
    await writer.transact([Delete("/a", 2)])
    await cluster.until(lambda: len(seen) == 3)
    await writer.transact([Create("/a", b"")])
    await watcher.get("/a")
    assert seen == [WatchEvent(CREATED, "/a"), WatchEvent(CHANGED, "/a"), WatchEvent(DELETED, "/a")]


@told
async def test_a_child_watch_fires_once_on_children_and_removal(cluster: Cluster) -> None:
    writer, watcher = await cluster.open(), await cluster.open()
    await writer.transact([Create("/a", b""), Create("/b", b"")])
    seen: list[WatchEvent] = []
    assert await watcher.children("/a", seen.append) == []
    await writer.transact([SetData("/a", b"no child", 0), Create("/b/c", b"")])
    assert await watcher.get("/a") is not None
    assert seen == []
    await writer.transact([Create("/a/x", b""), Create("/a/y", b"")])
    await cluster.until(lambda: len(seen) == 1)
    assert await watcher.children("/a", seen.append) == ["x", "y"]
    await writer.transact([Create("/a/x/deep", b""), SetData("/a/y", b"", 0)])
    assert await watcher.children("/a/x") == ["deep"]
    assert len(seen) == 1
    await writer.transact([Delete("/a/y", 1)])
    await cluster.until(lambda: len(seen) == 2)
    assert await watcher.children("/b/c", seen.append) == []
    await writer.transact([Delete("/b/c", 0)])
    await cluster.until(lambda: len(seen) == 3)
    assert seen == [
        WatchEvent(CHILDREN, "/a"),
        WatchEvent(CHILDREN, "/a"),
        WatchEvent(DELETED, "/b/c"),
    ]


@told
async def test_a_child_watch_on_a_missing_node_is_not_left(cluster: Cluster) -> None:
    store = await cluster.open()
    seen: list[WatchEvent] = []
    assert await store.children("/a", seen.append) is None
    await store.transact([Create("/a", b""), Create("/a/b", b"")])
    await store.get("/a")
    assert seen == []


@told
async def test_a_watch_left_twice_fires_once(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    seen: list[WatchEvent] = []
    others: list[WatchEvent] = []

    def watch(event: WatchEvent) -> None:
        seen.append(event)

    await store.get("/a", watch)
    await store.get("/a", watch)
    await store.children("/a", watch)
    await store.get("/a", others.append)
    await store.transact([Delete("/a", 0)])
    assert seen == [WatchEvent(DELETED, "/a")] == others


@told
async def test_own_transactions_fire_own_watches_before_their_answer(cluster: Cluster) -> None:
    store = await cluster.open()
    told_of: list[WatchEvent] = []
    await store.get("/a", told_of.append)
    await store.transact([Create("/a", b"")])
    assert told_of == [WatchEvent(CREATED, "/a")]


@told
async def test_a_transaction_that_fails_fires_nothing(cluster: Cluster) -> None:
    store = await cluster.open()
    await store.transact([Create("/a", b"")])
    seen: list[WatchEvent] = []
    await store.get("/a", seen.append)
    with pytest.raises(TransactionFailed):
        await store.transact([SetData("/a", b"", 0), Check("/a", 0)])
    await store.get("/a")
    assert seen == []


@told
async def test_a_watch_may_leave_another_one(cluster: Cluster) -> None:
    writer, watcher = await cluster.open(), await cluster.open()
    await writer.transact([Create("/a", b"")])
    versions: list[int] = []
    tasks = []

    async def follow() -> None:
        node = await watcher.get("/a", changed)
        assert node is not None
        versions.append(node.stat.version)

    def changed(_: WatchEvent) -> None:
        tasks.append(asyncio.Task(follow(), loop=asyncio.get_running_loop()))

    await follow()
    for version in range(30):
        await writer.transact([SetData("/a", b"", version)])
    await cluster.until(lambda: versions[-1] == 30)
    assert versions == sorted(versions)


@told
async def test_a_large_transaction_reaches_every_watch(cluster: Cluster) -> None:
    writer, watcher = await cluster.open(), await cluster.open()
    seen: list[str] = []
    for number in range(200):
        await watcher.get(f"/n{number}", lambda event: seen.append(event.path))
    await writer.transact([Create(f"/n{number}", b"") for number in range(1000)])
    await cluster.until(lambda: len(seen) == 200)
    assert seen == [f"/n{number}" for number in range(200)]


# sessions


def changes_of(heard: list[SessionEvent]) -> list[SessionEvent]:
    """What became of sessions: a server that ends one also closes its connection, before."""
    return [event for event in heard if event is not SessionEvent.SUSPENDED]


@told
async def test_sessions_have_numbers_and_tell_what_becomes_of_them(cluster: Cluster) -> None:
    store = cluster.store()
    heard: list[SessionEvent] = []
    store.on_session(heard.append)
    assert store.session_id is None
    with pytest.raises(StoreUnavailable):
        await store.get("/")
    await store.open()
    first = store.session_id
    assert first is not None and first > NO_OWNER
    assert heard == [SessionEvent.CONNECTED]
    await store.open()
    assert (store.session_id, heard) == (first, [SessionEvent.CONNECTED])
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.get("/")
    await store.open()
    assert store.session_id is not None and store.session_id > first
    await store.close()


@told
async def test_ephemeral_nodes_name_their_session_and_go_with_its_close(cluster: Cluster) -> None:
    owner, other = await cluster.open(), await cluster.open()
    await owner.transact([Create("/a", b""), Create("/a/e", b"x", ephemeral=True)])
    node = await other.get("/a/e")
    assert node is not None and node.stat.ephemeral_owner == owner.session_id
    seen: list[WatchEvent] = []
    await other.get("/a/e", seen.append)
    await other.children("/a", seen.append)
    await owner.close()
    await cluster.until(lambda: len(seen) == 2)
    assert seen == [WatchEvent(DELETED, "/a/e"), WatchEvent(CHILDREN, "/a")]
    assert await other.children("/a") == []


@told
async def test_another_session_may_change_and_remove_an_ephemeral_node(cluster: Cluster) -> None:
    owner, other = await cluster.open(), await cluster.open()
    await owner.transact([Create("/e", b"", ephemeral=True)])
    await other.transact([SetData("/e", b"changed", 0)])
    node = await owner.get("/e")
    assert node is not None and node.stat.ephemeral_owner == owner.session_id
    await other.transact([Delete("/e", 1)])
    await owner.close()
    assert await other.get("/e") is None


@told
async def test_a_loop_that_does_not_turn_loses_its_session(cluster: Cluster) -> None:
    """DESIGN.md, rule 4: without `beat` the session is not renewed."""
    stuck, witness = await cluster.open(timeout_ms=300), await cluster.open()
    heard: list[SessionEvent] = []
    stuck.on_session(heard.append)
    await stuck.transact([Create("/e", b"", ephemeral=True)])
    seen: list[WatchEvent] = []
    await witness.get("/e", seen.append)
    cluster.silence(stuck)
    await cluster.until(lambda: bool(seen))
    assert await witness.get("/e") is None
    await cluster.until(lambda: SessionEvent.EXPIRED in heard)
    assert changes_of(heard) == [SessionEvent.EXPIRED]
    assert stuck.session_id is None
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: stuck.get("/"),
        lambda: stuck.transact([Create("/late", b"")]),
        lambda: stuck.children("/"),
    )
    for call in calls:
        with pytest.raises(SessionExpired):
            await call()


@told
async def test_a_loop_that_turns_keeps_its_session(cluster: Cluster) -> None:
    busy, witness = await cluster.open(timeout_ms=300), await cluster.open()
    await busy.transact([Create("/e", b"", ephemeral=True)])
    await cluster.sleep(1500)
    assert await witness.get("/e") is not None
    await busy.transact([SetData("/e", b"", 0)])


@told
async def test_after_an_expiry_a_new_session_starts_without_the_old_watches(
    cluster: Cluster,
) -> None:
    store, witness = await cluster.open(timeout_ms=300), await cluster.open()
    heard: list[SessionEvent] = []
    seen: list[WatchEvent] = []
    store.on_session(heard.append)
    old = store.session_id
    await store.get("/a", seen.append)
    await store.transact([Create("/e", b"", ephemeral=True)])
    cluster.silence(store)
    await cluster.until(lambda: SessionEvent.EXPIRED in heard)
    await store.open()
    assert store.session_id is not None and store.session_id != old
    assert changes_of(heard) == [SessionEvent.EXPIRED, SessionEvent.CONNECTED]
    [made] = await store.transact([Create("/e", b"", ephemeral=True)])
    assert made.stat is not None and made.stat.ephemeral_owner == store.session_id
    await witness.transact([Create("/a", b"")])
    assert await store.get("/a") is not None
    assert seen == []
