"""The tree itself, in memory: transactions over nodes, all or nothing (rules S1, V3, V6).

The reference for every store: the simulated one holds one of these, and the embedded one is tested
against it operation by operation. A transaction applies in place, with a list of how to undo it.
Knows no sessions beyond the number that owns an ephemeral node, no watches, no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.metadata.paths import name_of, parent_of, sequence_path
from tidelog.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
    TransactionFailed,
)


class Change(NamedTuple):
    """One node made (CREATED), changed (CHANGED) or removed (DELETED) by a transaction."""

    kind: EventKind
    path: str


class _TreeNode:
    """A node in place; `made` counts the children it ever had, for sequence numbers."""

    __slots__ = ("children", "czxid", "data", "made", "mzxid", "owner", "version")

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = zxid
        self.mzxid = zxid
        self.owner = owner
        self.made = 0
        self.children: dict[str, None] = {}

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.owner)


class Tree:
    """Nodes by path; the root is always there."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes: dict[str, _TreeNode] = {"/": _TreeNode(b"", 0, NO_OWNER)}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Node | None:
        """A node as it is now."""
        node = self._nodes.get(path)
        return None if node is None else Node(node.data, node.stat)

    def children(self, path: str) -> list[str] | None:
        """Names of its children, sorted; None if there is no such node."""
        node = self._nodes.get(path)
        return None if node is None else sorted(node.children)

    def paths(self) -> list[str]:
        """All paths, sorted."""
        return sorted(self._nodes)

    def ephemerals(self, session_id: int) -> list[str]:
        """Paths of a session's ephemeral nodes, sorted."""
        return sorted(self._ephemerals.get(session_id, {}))

    def apply(self, ops: Sequence[Op], session_id: int) -> tuple[list[OpResult], list[Change]]:
        """Apply a transaction under the next transaction id; operations that change nothing take
        none. Raises TransactionFailed and leaves everything as it was."""
        zxid = self.zxid + 1
        undo: list[Callable[[], None]] = []
        results: list[OpResult] = []
        changes: list[Change] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._apply_one(op, zxid, session_id, undo, changes))
            except StoreError as error:
                for step in reversed(undo):
                    step()
                raise TransactionFailed(index, error) from None
        if changes:
            self.zxid = zxid
        return results, changes

    def _apply_one(
        self,
        op: Op,
        zxid: int,
        session_id: int,
        undo: list[Callable[[], None]],
        changes: list[Change],
    ) -> OpResult:
        if isinstance(op, SetData):
            node = self._expect(op.path, op.version)
            before = (node.data, node.version, node.mzxid)

            def restore() -> None:
                node.data, node.version, node.mzxid = before

            undo.append(restore)
            node.data = op.data
            node.version += 1
            node.mzxid = zxid
            changes.append(Change(EventKind.CHANGED, op.path))
            return OpResult(op.path, node.stat)
        if isinstance(op, Check):
            self._expect(op.path, op.version)
            return OpResult(op.path, None)
        if isinstance(op, Create):
            return self._create(op, zxid, session_id, undo, changes)
        return self._delete(op, undo, changes)

    def _expect(self, path: str, version: int) -> _TreeNode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _create(
        self,
        op: Create,
        zxid: int,
        session_id: int,
        undo: list[Callable[[], None]],
        changes: list[Change],
    ) -> OpResult:
        parent = self._nodes.get(parent_of(op.path))
        if parent is None:
            raise NoNode(op.path)
        path = sequence_path(op.path, parent.made) if op.sequence else op.path
        if path in self._nodes:
            raise NodeExists(path)
        if parent.owner != NO_OWNER:
            raise NoChildrenForEphemerals(path)
        node = _TreeNode(op.data, zxid, session_id if op.ephemeral else NO_OWNER)

        def forget() -> None:
            self._detach(path, node)
            parent.made -= 1

        self._attach(path, node)
        parent.made += 1
        undo.append(forget)
        changes.append(Change(EventKind.CREATED, path))
        return OpResult(path, node.stat)

    def _delete(
        self, op: Delete, undo: list[Callable[[], None]], changes: list[Change]
    ) -> OpResult:
        node = self._expect(op.path, op.version)
        if node.children or op.path == "/":
            raise NotEmpty(op.path)
        self._detach(op.path, node)
        undo.append(lambda: self._attach(op.path, node))
        changes.append(Change(EventKind.DELETED, op.path))
        return OpResult(op.path, None)

    def _attach(self, path: str, node: _TreeNode) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children[name_of(path)] = None
        if node.owner != NO_OWNER:
            self._ephemerals.setdefault(node.owner, {})[path] = None

    def _detach(self, path: str, node: _TreeNode) -> None:
        del self._nodes[path]
        del self._nodes[parent_of(path)].children[name_of(path)]
        if node.owner != NO_OWNER:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]

    def dump(self) -> dict[str, tuple[bytes, Stat]]:
        """Everything, by path in order: for checkers and comparisons."""
        return {path: (self._nodes[path].data, self._nodes[path].stat) for path in self.paths()}
