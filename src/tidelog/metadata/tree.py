"""Transactions over nodes, all or nothing: what operations mean, for every store (rules V3, V6).

`NodeSpace` applies operations to nodes that are in memory, in place, with a list of how to undo
them. The simulated store keeps its whole tree in one (`Tree`); the embedded store fills one with
the nodes that some transactions touch and writes back what changed: so both mean the same.
Knows no sessions beyond the number that owns an ephemeral node, no watches, no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.metadata.paths import name_of, parent_of, sequence_path
from tidelog.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    BadVersion,
    Check,
    Create,
    Delete,
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

#: What a transaction did to one node: one of the marks below, and the path.
Change = str
MADE = "+"
SET = "="
REMOVED = "-"
#: Children of the path were made or removed, unseen which: never made by a transaction.
CHILDREN_DIFFER = "*"

# Building a named tuple through its own __new__ costs twice as much.
_new = tuple.__new__


class TreeNode:
    """A node in place.

    `made` counts the children it ever had, for sequence numbers; `child_count` those it has.
    `key` is for the keeper of the nodes: what identifies the node where it is stored, 0 for one
    that is not stored yet.
    """

    __slots__ = ("child_count", "czxid", "data", "key", "made", "mzxid", "owner", "version")

    def __init__(
        self,
        data: bytes,
        version: int,
        czxid: int,
        mzxid: int,
        owner: int,
        made: int = 0,
        child_count: int = 0,
        key: int = 0,
    ) -> None:
        self.data = data
        self.version = version
        self.czxid = czxid
        self.mzxid = mzxid
        self.owner = owner
        self.made = made
        self.child_count = child_count
        self.key = key

    @property
    def stat(self) -> Stat:
        """What readers see of it."""
        return Stat(self.version, self.czxid, self.mzxid, self.owner)


class NodeSpace:
    """The nodes that operations are applied to, by path; one that does not hold all of them finds
    the rest in `_lookup`."""

    def __init__(self) -> None:
        self.nodes: dict[str, TreeNode] = {}
        self._undo: list[Callable[[], None] | tuple[TreeNode, bytes, int, int]] = []
        self._changes: list[Change] = []

    def apply(
        self, ops: Sequence[Op], zxid: int, session_id: int
    ) -> tuple[list[OpResult], list[Change]]:
        """Apply a transaction under the id `zxid`; without changes the id stays unused.

        Raises TransactionFailed and leaves everything as it was.
        """
        undo = self._undo = []
        changes = self._changes = []
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                if isinstance(op, SetData):
                    path = op.path
                    node = self._expect(path, op.version)
                    undo.append((node, node.data, node.version, node.mzxid))
                    node.data = op.data
                    version = node.version = node.version + 1
                    node.mzxid = zxid
                    changes.append(SET + path)
                    stat = _new(Stat, (version, node.czxid, zxid, node.owner))
                    results.append(_new(OpResult, (path, stat)))
                elif isinstance(op, Check):
                    self._expect(op.path, op.version)
                    results.append(OpResult(op.path, None))
                elif isinstance(op, Create):
                    results.append(self._create(op, zxid, session_id))
                else:
                    results.append(self._delete(op))
            except StoreError as error:
                self._undo_all()
                raise TransactionFailed(index, error) from None
        return results, changes

    def _undo_all(self) -> None:
        for step in reversed(self._undo):
            if isinstance(step, tuple):
                node, data, version, mzxid = step
                node.data, node.version, node.mzxid = data, version, mzxid
            else:
                step()

    def _lookup(self, path: str) -> TreeNode | None:
        """The node at `path`, if there is one."""
        return self.nodes.get(path)

    def _attached(self, path: str, node: TreeNode) -> None:
        """A node was put under its parent."""

    def _detached(self, path: str, node: TreeNode) -> None:
        """A node was taken from its parent."""

    def _expect(self, path: str, version: int) -> TreeNode:
        node = self.nodes.get(path) or self._lookup(path)
        if node is None:
            raise NoNode(path)
        if version != node.version and version != ANY_VERSION:
            raise BadVersion(path)
        return node

    def _create(self, op: Create, zxid: int, session_id: int) -> OpResult:
        parent = self._lookup(parent_of(op.path))
        if parent is None:
            raise NoNode(op.path)
        path = sequence_path(op.path, parent.made) if op.sequence else op.path
        if self._lookup(path) is not None:
            raise NodeExists(path)
        if parent.owner != NO_OWNER:
            raise NoChildrenForEphemerals(path)
        node = TreeNode(op.data, 0, zxid, zxid, session_id if op.ephemeral else NO_OWNER)

        def forget() -> None:
            self._detach(path, node, parent)
            parent.made -= 1

        self._attach(path, node, parent)
        parent.made += 1
        self._undo.append(forget)
        self._changes.append(MADE + path)
        return OpResult(path, node.stat)

    def _delete(self, op: Delete) -> OpResult:
        path = op.path
        node = self._expect(path, op.version)
        if node.child_count or path == "/":
            raise NotEmpty(path)
        parent = self._lookup(parent_of(path))
        assert parent is not None, f"{path} has no parent"
        self._detach(path, node, parent)
        self._undo.append(lambda: self._attach(path, node, parent))
        self._changes.append(REMOVED + path)
        return OpResult(path, None)

    def _attach(self, path: str, node: TreeNode, parent: TreeNode) -> None:
        self.nodes[path] = node
        parent.child_count += 1
        self._attached(path, node)

    def _detach(self, path: str, node: TreeNode, parent: TreeNode) -> None:
        del self.nodes[path]
        parent.child_count -= 1
        self._detached(path, node)


class Tree(NodeSpace):
    """A whole tree in memory; the root is always there."""

    def __init__(self) -> None:
        super().__init__()
        self.zxid = 0
        self.nodes["/"] = TreeNode(b"", 0, 0, 0, NO_OWNER)
        self._children: dict[str, dict[str, None]] = {"/": {}}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Node | None:
        """A node as it is now."""
        node = self.nodes.get(path)
        return None if node is None else Node(node.data, node.stat)

    def children(self, path: str) -> list[str] | None:
        """Names of its children, sorted; None if there is no such node."""
        names = self._children.get(path)
        return None if names is None else sorted(names)

    def ephemerals(self, session_id: int) -> list[str]:
        """Paths of a session's ephemeral nodes, sorted."""
        return sorted(self._ephemerals.get(session_id, {}))

    def transact(self, ops: Sequence[Op], session_id: int) -> tuple[list[OpResult], list[Change]]:
        """Apply a transaction under the next transaction id, if it changes anything."""
        results, changes = self.apply(ops, self.zxid + 1, session_id)
        if changes:
            self.zxid += 1
        return results, changes

    def copy(self) -> Tree:
        """An independent copy, as a backup of a store has it."""
        other = Tree()
        other.zxid = self.zxid
        other.nodes = {
            path: TreeNode(
                node.data, node.version, node.czxid, node.mzxid, node.owner, node.made,
                node.child_count,
            )
            for path, node in self.nodes.items()
        }  # fmt: skip
        other._children = {path: dict(names) for path, names in self._children.items()}
        other._ephemerals = {owner: dict(paths) for owner, paths in self._ephemerals.items()}
        return other

    def owners(self) -> list[int]:
        """Sessions that have ephemeral nodes, ascending."""
        return sorted(self._ephemerals)

    def dump(self) -> dict[str, Node]:
        """Everything, by path in order: for checkers and comparisons."""
        return {path: Node(node.data, node.stat) for path, node in sorted(self.nodes.items())}

    def _attached(self, path: str, node: TreeNode) -> None:
        self._children[path] = {}
        self._children[parent_of(path)][name_of(path)] = None
        if node.owner != NO_OWNER:
            self._ephemerals.setdefault(node.owner, {})[path] = None

    def _detached(self, path: str, node: TreeNode) -> None:
        del self._children[path]
        del self._children[parent_of(path)][name_of(path)]
        if node.owner != NO_OWNER:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]
