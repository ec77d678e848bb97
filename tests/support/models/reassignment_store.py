"""The store of `ReassignmentModel`: a handful of nodes, and a controller that dies between writes.

Real: `StoreReader`, by which a new controller loads, and `StoreWriter`. Each write of a decision is
a transaction of its own here, as production may split a decision that large. A transaction id is
the sum of the versions of the topic's node and the state's node. It rises with every write of
either, so that two ways to the same nodes are one state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from tests.support.controller.values import TP, topic_id

from tidelog.broker.controller.store_reader import StoreReader
from tidelog.broker.controller.store_writer import StoreWriter
from tidelog.controller.reassignments.cancelling import CancelRead
from tidelog.controller.reassignments.stored_nodes import ReassignmentsRead
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Outcome, Write
from tidelog.core.types import PartitionState
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Node,
    NoNode,
    Op,
    OpResult,
    SetData,
    Stat,
    TransactionFailed,
)

TOPIC_PATH = layout.topic_path("t")
STATE_PATH = layout.partition_state_path(TP)
CONFIG_PATH = layout.config_path("topics", "t")
T = TypeVar("T")
#: Path, data, version and transaction of the last write of each node, by path.
Nodes = tuple[tuple[str, bytes, int, int], ...]


class ControllerDiedError(Exception):
    """The controller's process ends before its next transaction."""


class _Silent:
    """A tracer without followers."""

    def event(self, name: str, **details: object) -> None:
        """Nothing."""

    def mark(self, name: str) -> None:
        """Nothing."""


class _InTurn:
    """Tasks that run one after the other."""

    async def gather_ordered(self, *awaitables: Awaitable[T]) -> list[T]:
        """Return all results in order."""
        return [await item for item in awaitables]


class ModelStore:
    """The nodes; `transactions` more may be written, as many as wanted where it is None."""

    def __init__(self, nodes: Nodes, transactions: int | None = None) -> None:
        self._nodes = {
            path: Node(data, Stat(version, 0, mzxid, 0)) for path, data, version, mzxid in nodes
        }
        self._left = transactions

    def key(self) -> Nodes:
        """The content as a value."""
        return tuple(
            (path, node.data, node.stat.version, node.stat.mzxid)
            for path, node in sorted(self._nodes.items())
        )

    async def get(self, path: str, on_change: object = None) -> Node | None:
        """A node; nothing watches here, as the model reads whenever it likes."""
        return self._nodes.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes as they are."""
        return [self._nodes.get(path) for path in paths]

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing."""
        if self._left == 0:
            raise ControllerDiedError
        if self._left is not None:
            self._left -= 1
        after = dict(self._nodes)
        for index, op in enumerate(ops):
            if isinstance(op, Create):
                after[op.path] = Node(op.data, Stat(0, 0, 0, 0))
                continue
            node = after.get(op.path)
            if node is None:
                raise TransactionFailed(index, NoNode(op.path))
            if op.version not in (ANY_VERSION, node.stat.version):
                raise TransactionFailed(index, BadVersion(op.path))
            if isinstance(op, SetData):
                after[op.path] = Node(op.data, node.stat._replace(version=node.stat.version + 1))
            elif not isinstance(op, Check):
                del after[op.path]
        mzxid = sum(after[path].stat.version for path in (TOPIC_PATH, STATE_PATH))
        results = []
        for op in ops:
            found = after.get(op.path)
            if found is not None and isinstance(op, SetData):
                found = after[op.path] = Node(found.data, found.stat._replace(mzxid=mzxid))
            results.append(OpResult(op.path, None if found is None else found.stat))
        self._nodes = after
        return results

    def state(self) -> PartitionState:
        """What is published of the partition."""
        node = self._nodes[STATE_PATH]
        return layout.decode_partition_state(STATE_PATH, node.data, node.stat)

    def assignment(self) -> TopicAssignment:
        """What the topic's node says."""
        return layout.decode_topic(TOPIC_PATH, self._nodes[TOPIC_PATH].data)


def first_nodes(state: PartitionState, replicas: tuple[int, ...], minimum: int) -> Nodes:
    """The nodes of a partition in full health."""
    data = {
        layout.CONTROLLER_EPOCH: b"",
        TOPIC_PATH: layout.encode_topic(TopicAssignment(topic_id("t"), {0: replicas})),
        STATE_PATH: layout.encode_partition_state(state),
        CONFIG_PATH: layout.encode_config({"min.insync.replicas": str(minimum)}),
    }
    return tuple((path, data[path], 0, 0) for path in sorted(data))


def elected(nodes: Nodes) -> tuple[Nodes, int]:
    """The nodes with the next controller epoch, and that epoch."""
    store = ModelStore(nodes)
    [result] = finished(store.transact([SetData(layout.CONTROLLER_EPOCH, b"", ANY_VERSION)]))
    return store.key(), result.stat.version


def with_node(nodes: Nodes, path: str, data: bytes) -> Nodes:
    """The nodes with a request of the administrator's."""
    store = ModelStore(nodes)
    finished(store.transact([Create(path, data)]))
    return store.key()


def written(
    nodes: Nodes, epoch: int, writes: Sequence[Write], transactions: int | None
) -> tuple[Nodes, list[Outcome] | None]:
    """The nodes after a decision, and its outcomes; None where its controller has died meanwhile.

    `transactions` is how many of the writes it lives to see.
    """
    store = ModelStore(nodes, transactions)
    writer = StoreWriter(store, _InTurn(), _Silent(), epoch)  # type: ignore[arg-type]  # fakes stand in
    outcomes: list[Outcome] = []
    try:
        for write in writes:
            outcomes.extend(finished(writer.write([write])))
    except ControllerDiedError:
        return store.key(), None
    return store.key(), outcomes


def topics_read(nodes: Nodes) -> TopicsRead:
    """Return the reading of the topic, as by a controller that begins."""
    read: TopicsRead = finished(_reader(nodes).load([], ["t"], [], _ignore))[0]
    return read


def requests_read(nodes: Nodes) -> tuple[ReassignmentsRead, CancelRead]:
    """Return the readings of the administrator's requests."""
    reader = _reader(nodes).reassignments
    return finished(reader.reassignments(_ignore)), finished(reader.cancel(_ignore))


def _reader(nodes: Nodes) -> StoreReader:
    return StoreReader(ModelStore(nodes), _InTurn(), _Silent())  # type: ignore[arg-type]  # fakes stand in


def _ignore(event: object) -> None:
    """Nothing watches here."""


def finished(story: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns that waits for nothing."""
    try:
        story.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the store made its caller wait")
