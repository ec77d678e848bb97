"""Atomic transactions on nodes in memory, by code that several stores share (V3, V6).

`NodeSpace` applies operations in place and keeps the steps that undo them. The simulated store has
its whole tree in a `Tree`. The embedded store loads the nodes that its next transactions need into
a `NodeSpace`, and writes the changed nodes back. Watches are in `metadata.watches`.
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

#: A change of one node by a transaction, as text: MADE, SET or REMOVED, then the node's path.
Change = str
MADE = "+"
SET = "="
REMOVED = "-"
#: First character of a Change that only says that the node's children differ. A store makes such a
#: Change if it compares two states of a node and does not know which children came or went.
CHILDREN_DIFFER = "*"

# Named tuples are made by `tuple.__new__`, because their own `__new__` takes twice as long.
_new = tuple.__new__


class TreeNode:
    """A node that transactions change in place.

    `child_count` is the number of the node's children. `made` is the number of children that it
    ever had, from which sequence nodes get their numbers. `key` identifies the node in a store's
    database; 0 before the node is stored.
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
        """The node's stat in the form that the store returns."""
        return Stat(self.version, self.czxid, self.mzxid, self.owner)


class NodeSpace:
    """The nodes to which operations are applied, by path.

    A subclass that does not hold all nodes in memory overrides `_lookup` to load them.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, TreeNode] = {}
        self._undo: list[Callable[[], None] | tuple[TreeNode, bytes, int, int]] = []
        self._changes: list[Change] = []

    def apply(
        self, ops: Sequence[Op], zxid: int, session_id: int
    ) -> tuple[list[OpResult], list[Change]]:
        """Apply a transaction with the transaction id `zxid`; if no node changes, the id stays
        unused.

        Raises TransactionFailed, and then leaves every node unchanged.
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
        """Return the node at `path`, None if it does not exist."""
        return self.nodes.get(path)

    def _attached(self, path: str, node: TreeNode) -> None:
        """Record that a node was added below its parent."""

    def _detached(self, path: str, node: TreeNode) -> None:
        """Record that a node was removed from its parent."""

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
    """A whole tree of nodes in memory; the root always exists."""

    def __init__(self) -> None:
        super().__init__()
        self.zxid = 0
        self.nodes["/"] = TreeNode(b"", 0, 0, 0, NO_OWNER)
        self._children: dict[str, dict[str, None]] = {"/": {}}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Node | None:
        """Return a node with its present data and stat, None if the node does not exist."""
        node = self.nodes.get(path)
        return None if node is None else Node(node.data, node.stat)

    def children(self, path: str) -> list[str] | None:
        """Return the sorted names of a node's children, None if the node does not exist."""
        names = self._children.get(path)
        return None if names is None else sorted(names)

    def ephemerals(self, session_id: int) -> list[str]:
        """Return the sorted paths of a session's ephemeral nodes."""
        return sorted(self._ephemerals.get(session_id, {}))

    def transact(self, ops: Sequence[Op], session_id: int) -> tuple[list[OpResult], list[Change]]:
        """Apply a transaction; if it changes a node, it uses the next transaction id."""
        results, changes = self.apply(ops, self.zxid + 1, session_id)
        if changes:
            self.zxid += 1
        return results, changes

    def copy(self) -> Tree:
        """Return an independent copy, like a backup of a store."""
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
        """Return the ids of the sessions that own ephemeral nodes, in ascending order."""
        return sorted(self._ephemerals)

    def dump(self) -> dict[str, Node]:
        """Return all nodes in the order of their paths, for checkers and comparisons."""
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
