"""Transfer of a cluster's metadata between stores: export, import, comparison (rule S6).

An export has only persistent nodes, and omits notification nodes. An export has no registrations,
controller or sessions, because all brokers are down during a transfer. A backup is an export of one
moment while brokers run. The format is text: a header line, then one JSON object per node, parents
first. An import leaves out the recorded incarnations of brokers (`isr_epochs`). Transaction ids in
the new store continue above all imported ids, so that no incarnation in the new store is mistaken
for one in the old store (V10). This module uses stores only through their interface.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MAX_TRANSACTION_BYTES
from tidelog.metadata import layout
from tidelog.metadata.json_fields import LayoutError, encode_json
from tidelog.metadata.paths import is_path, join, name_of, parent_of
from tidelog.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    Create,
    Delete,
    MetadataStore,
    Node,
    NoNode,
    Op,
    SetData,
    Stat,
    StoreError,
    TransactionFailed,
)

#: Parents of notification nodes. An export omits notification nodes, because the numbers in their
#: names start again in another store.
_NOTIFICATIONS = (layout.CONFIG_CHANGES, layout.ISR_CHANGES, layout.LOG_DIR_EVENTS)
_FORMAT = "tidelog metadata"
_VERSION = 1
_OPS_PER_TRANSACTION = 500
_BYTES_PER_TRANSACTION = MAX_TRANSACTION_BYTES // 2
#: Maximum number of transactions with which an import raises the transaction ids of a ZooKeeper
#: store. A store makes some 10,000 transactions per second.
MAX_RAISED_IDS = 2_000_000
_RAISED_AT_ONCE = 1000
#: Maximum number of readings of a store while brokers run, until two successive readings are equal.
_READINGS = 30


class TransferError(StoreError):
    """The error for a transfer that failed; it wrote nothing, unless the message says otherwise."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(path, message)


@dataclass(frozen=True, slots=True)
class SavedNode:
    """A persistent node of an export; `mzxid` is the transaction of its last change in the exported
    store.
    """

    path: str
    data: bytes
    mzxid: int


@dataclass(frozen=True, slots=True)
class SavedTree:
    """A cluster's metadata; `zxid` is the highest transaction id in it."""

    cluster_id: str
    zxid: int
    nodes: tuple[SavedNode, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A node that differs between two trees; a side is None if its tree lacks the node."""

    path: str
    first: bytes | None
    second: bytes | None


async def read_tree(store: MetadataStore, where: str) -> SavedTree:
    """Return all persistent nodes.

    Raises TransferError while brokers are registered, or if the store has no cluster.
    """
    await refuse_brokers(store, where)
    return _tree_of(await _persistent_nodes(store), where)


async def read_running_tree(store: MetadataStore, where: str) -> SavedTree:
    """Return the persistent nodes of one moment, while brokers run.

    The nodes are read until two successive readings are equal, and thus show the state between the
    readings. Raises TransferError if the store has no cluster, or if each of many readings differs
    from the previous reading.
    """
    before = await _persistent_nodes(store)
    for _ in range(_READINGS):
        after = await _persistent_nodes(store)
        if before == after:
            return _tree_of(after, where)
        before = after
    raise TransferError(
        f"{where}: the metadata changed during each of {_READINGS} readings; try again when fewer"
        " leaders, replicas or topics change"
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The persistent nodes of a store, and the highest transaction id among its nodes."""

    nodes: tuple[SavedNode, ...]
    zxid: int


async def _persistent_nodes(store: MetadataStore) -> _Found:
    nodes: list[SavedNode] = []
    zxid = 0
    level = ["/"]
    while level:
        children = await asyncio.gather(*[store.children(path) for path in level])
        paths = [
            join(parent, name)
            for parent, names in zip(level, children, strict=True)
            for name in names or ()
        ]
        found = await store.get_many(paths)
        level = []
        for path, node in zip(paths, found, strict=True):
            if node is None:
                continue
            # `zxid` includes the transaction ids of registrations, because they are broker epochs.
            zxid = max(zxid, node.stat.mzxid, node.stat.czxid)
            if node.stat.ephemeral_owner != NO_OWNER:
                continue
            nodes.append(SavedNode(path, node.data, node.stat.mzxid))
            if path not in _NOTIFICATIONS:
                level.append(path)
    return _Found(tuple(nodes), zxid)


def _tree_of(found: _Found, where: str) -> SavedTree:
    cluster_id = next((node for node in found.nodes if node.path == layout.CLUSTER_ID), None)
    if cluster_id is None:
        raise TransferError(f"{where} holds no cluster: {layout.CLUSTER_ID} is not there")
    name = layout.decode_cluster_id(layout.CLUSTER_ID, cluster_id.data)
    return SavedTree(name, found.zxid, found.nodes)


async def accept_older(store: MetadataStore, where: str) -> bool:
    """Remove the node that marks a store as an older copy (E8); return whether the node existed.

    Raises TransferError if the store has no cluster. Raises TransferError if a partition still has
    the state of the older copy: without the mark, the next controller would trust this state.
    """
    tree = _tree_of(await _persistent_nodes(store), where)
    mark = next((node for node in tree.nodes if node.path == layout.STORE_WENT_BACK), None)
    if mark is None:
        return False
    left = [node.path for node in tree.nodes if _counts_by_mark_only(node, mark)]
    if left:
        raise TransferError(
            f"{where}: {len(left)} partitions have no leader that was found by comparing logs,"
            f" {left[0]} is still as in the copy; start the brokers of all replicas, wait until"
            " `tidelog health` reports no partition without a leader, then accept"
        )
    try:
        await store.transact([Delete(layout.STORE_WENT_BACK, ANY_VERSION)])
    except TransactionFailed as failure:
        if isinstance(failure.error, NoNode):
            return False
        raise
    return True


def _counts_by_mark_only(node: SavedNode, mark: SavedNode) -> bool:
    """Return whether a controller would trust this partition state if the store had no node `mark`.

    The node `mark` says that the store is an older copy (E8).
    """
    if not is_state(node.path) or node.mzxid > mark.mzxid:
        return False
    stat = Stat(version=0, czxid=0, mzxid=node.mzxid, ephemeral_owner=NO_OWNER)
    try:
        state = layout.decode_partition_state(node.path, node.data, stat)
    except LayoutError:
        return False  # the controller ignores a partition state that it cannot read
    return bool(state.isr) and not (state.is_unproven or state.removed)


async def refuse_brokers(store: MetadataStore, where: str) -> None:
    """Raise TransferError while brokers are registered: the transfer could lose their writes."""
    brokers = await store.children(layout.BROKER_IDS)
    if brokers:
        raise TransferError(
            f"{where}: brokers {', '.join(brokers)} are registered; stop them all first (the"
            " registration of a dead broker ends with its session)"
        )


async def write_tree(store: MetadataStore, tree: SavedTree, where: str) -> int:
    """Write all nodes into a store without a cluster; return their number. Raises TransferError.

    A store counts as a store without a cluster if brokers created all of its nodes at their
    registration.
    """
    await refuse_brokers(store, where)
    bare = await _bare_nodes(store, where)
    await _raise_ids(store, tree.zxid, where)
    # The cluster's id is deleted first, and the deepest nodes before their parents.
    for path in sorted(bare, key=lambda path: (path != layout.CLUSTER_ID, -path.count("/"), path)):
        await store.transact([Delete(path, ANY_VERSION)])
    await _raise_ids(store, tree.zxid, where)
    known = {"/"}
    batch: list[Op] = []
    size_bytes = 0
    for node in tree.nodes:
        if parent_of(node.path) not in known:
            raise TransferError(f"the export has no parent of {node.path}: it is incomplete")
        known.add(node.path)
        data = without_lives(node)
        node_bytes = len(node.path.encode()) + len(data)
        if batch and (
            len(batch) >= _OPS_PER_TRANSACTION or size_bytes + node_bytes > _BYTES_PER_TRANSACTION
        ):
            await store.transact(batch)
            batch, size_bytes = [], 0
        # The cluster's id is written last, so that an incomplete import does not count as a
        # cluster.
        if node.path != layout.CLUSTER_ID:
            batch.append(Create(node.path, data))
            size_bytes += node_bytes
    batch.append(Create(layout.CLUSTER_ID, layout.encode_cluster_id(tree.cluster_id)))
    await store.transact(batch)
    return len(tree.nodes)


async def _bare_nodes(store: MetadataStore, where: str) -> list[str]:
    """Return the nodes of an unused store, which only registrations of brokers have created.

    Raises TransferError if the store has topics, configurations or requests.
    """
    bare = dict.fromkeys((*layout.PERSISTENT_ROOTS, layout.CLUSTER_ID, layout.CONTROLLER_EPOCH))
    found = await _persistent_nodes(store)
    if not any(node.path in bare for node in found.nodes):
        return []  # the store has only nodes of other programs, which stay unchanged
    for node in found.nodes:
        if node.path not in bare and parent_of(node.path) != layout.BROKER_STAMPS:
            raise TransferError(
                f"{where} holds a cluster already, with {node.path}: import into an empty directory"
                " or chroot, or one in which brokers have only registered"
            )
    return [node.path for node in found.nodes]


async def _raise_ids(store: MetadataStore, above: int, where: str) -> None:
    """Raise the transaction ids of the store above `above`."""
    probe = "/tidelog-import"
    [made] = await store.transact([Create(probe, b"")])
    assert made.stat is not None
    missing = above - made.stat.czxid
    try:
        if missing > MAX_RAISED_IDS:
            raise TransferError(
                f"{where}: its transaction ids are at {made.stat.czxid}, those of the export at"
                f" {above}: import into the embedded store, or a ZooKeeper with higher ids"
            )
        for first in range(0, max(missing, 0), _RAISED_AT_ONCE):
            count = min(_RAISED_AT_ONCE, missing - first)
            await asyncio.gather(
                *[store.transact([SetData(probe, b"", ANY_VERSION)]) for _ in range(count)]
            )
    finally:
        await store.transact([Delete(probe, ANY_VERSION)])


def without_lives(node: SavedNode) -> bytes:
    """Return a node's data, without the `isr_epochs` of a partition's state.

    A broker's stamp node keeps the id of the transaction that wrote it, by which the broker
    recognizes an older store after the import of an old export (E8).
    """
    if node.path.startswith(f"{layout.BROKER_STAMPS}/"):
        return layout.encode_stamp(_stamp_of(node))
    if not is_state(node.path):
        return node.data
    try:
        state = json.loads(node.data)
    except ValueError:
        return node.data  # an illegible state is copied unchanged
    if not isinstance(state, dict) or state.pop("isr_epochs", None) is None:
        return node.data
    return encode_json(state)


def _stamp_of(node: SavedNode) -> int:
    stat = Stat(version=0, czxid=0, mzxid=node.mzxid, ephemeral_owner=NO_OWNER)
    try:
        return layout.decode_stamp(node.path, Node(node.data, stat))
    except LayoutError:
        return node.mzxid  # invalid data: use the node's last transaction


def is_state(path: str) -> bool:
    """Return whether a path is the path of a partition's state node."""
    parts = path.split("/")
    return len(parts) == 7 and path.startswith(f"{layout.TOPICS}/") and name_of(path) == "state"


def to_lines(tree: SavedTree) -> Iterator[str]:
    """Yield an export as lines of text."""
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "cluster_id": tree.cluster_id,
        "zxid": tree.zxid,
        "nodes": len(tree.nodes),
    }
    yield json.dumps(head)
    for node in tree.nodes:
        entry: dict[str, Any] = {"path": node.path, "mzxid": node.mzxid}
        try:
            entry["data"] = node.data.decode()
        except UnicodeDecodeError:
            entry["base64"] = base64.b64encode(node.data).decode()
        yield json.dumps(entry, ensure_ascii=False)


def from_lines(lines: Iterable[str], where: str) -> SavedTree:
    """Parse an export; raise TransferError naming file and line."""
    head: dict[str, Any] | None = None
    nodes: list[SavedNode] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if head is None:
                if entry["format"] != _FORMAT or entry["version"] != _VERSION:
                    raise ValueError("another format or version")
                head = {"id": str(entry["cluster_id"]), "zxid": int(entry["zxid"])}
                head["nodes"] = int(entry["nodes"])
                continue
            data = (
                entry["data"].encode()
                if "data" in entry
                else base64.b64decode(entry["base64"], validate=True)
            )
            if not is_path(entry["path"]):
                raise ValueError(f"{entry['path']!r} is not a path of a node")
            nodes.append(SavedNode(entry["path"], data, int(entry["mzxid"])))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TransferError(
                f"{where}, line {number}: not an export of `tidelog store export`: {error}"
            ) from error
    if head is None:
        raise TransferError(f"{where} is empty: an export of `tidelog store export` expected")
    if head["nodes"] != len(nodes):
        raise TransferError(
            f"{where} is incomplete: {len(nodes)} nodes, {head['nodes']} were exported"
        )
    return SavedTree(head["id"], head["zxid"], tuple(nodes))


def compare(first: SavedTree, second: SavedTree) -> list[Difference]:
    """Return the differing nodes by path, ignoring recorded incarnations of brokers."""
    ones = {node.path: node for node in first.nodes}
    others = {node.path: node for node in second.nodes}
    differences: list[Difference] = []
    for path in sorted({**ones, **others}):
        node, other = ones.get(path), others.get(path)
        if node is None or other is None or _meaning(node) != _meaning(other):
            differences.append(
                Difference(
                    path, None if node is None else node.data, None if other is None else other.data
                )
            )
    return differences


def _meaning(node: SavedNode) -> object:
    """Return the data in comparable form; the order of JSON keys does not matter."""
    data = without_lives(node)
    try:
        return json.loads(data)
    except ValueError:
        return data


__all__: Sequence[str] = (
    "Difference",
    "LayoutError",
    "SavedNode",
    "SavedTree",
    "TransferError",
    "compare",
    "from_lines",
    "read_running_tree",
    "read_tree",
    "to_lines",
    "write_tree",
)
