"""The tree of nodes in SQLite: schema, reads, transactions, and the record of changes.

`metadata.tree` applies the operations of a group of transactions to nodes. The affected nodes are
loaded with one query and changed in memory. Removed nodes, new nodes, new data and changed children
are then written with one SQL statement each. The table `changes` keeps the changes of the last
KEPT_TRANSACTIONS for watchers. This module uses no locks, threads or sockets: the caller holds the
store's lock and an open SQL transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from tidelog.core.dataclass import dataclass
from tidelog.metadata.paths import parent_of
from tidelog.metadata.store import (
    Create,
    Delete,
    Node,
    Op,
    Stat,
    StoreError,
)
from tidelog.metadata.tree import SET, Change, NodeSpace, TreeNode

#: Number of latest transactions whose changes the database keeps. A session that lags by more than
#: this number compares its watched nodes with their states when the watches were set.
KEPT_TRANSACTIONS = 2000
#: The database's `PRAGMA application_id`: "tide".
APPLICATION_ID = 0x74696465
SCHEMA_VERSION = 1
#: Minimum number of paths for which one query reads all nodes. A query for many paths costs 7 µs
#: plus 1.2 µs per path; a query for a single path costs 4.5 µs.
_MANY = 4
_PATHS_PER_QUERY = 2000

_SCHEMA = f"""
CREATE TABLE nodes(
  id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, parent INTEGER NOT NULL,
  version INTEGER NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL,
  owner INTEGER NOT NULL, made INTEGER NOT NULL, child_count INTEGER NOT NULL,
  data BLOB NOT NULL);
CREATE INDEX nodes_by_parent ON nodes(parent);
CREATE INDEX nodes_by_owner ON nodes(owner) WHERE owner <> 0;
CREATE TABLE sessions(
  id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, start_time INTEGER NOT NULL,
  timeout_ms INTEGER NOT NULL);
CREATE TABLE changes(zxid INTEGER PRIMARY KEY, list TEXT NOT NULL);
CREATE TABLE counters(
  one INTEGER PRIMARY KEY CHECK (one = 1), zxid INTEGER NOT NULL, last_node INTEGER NOT NULL,
  last_session INTEGER NOT NULL);
INSERT INTO counters VALUES (1, 0, 1, 0);
INSERT INTO nodes VALUES (1, '/', 0, 0, 0, 0, 0, 0, 0, x'');
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

_COLUMNS = "n.path, n.data, n.version, n.czxid, n.mzxid, n.owner, n.made, n.child_count, n.id"
_SELECT_ONE = f"SELECT {_COLUMNS} FROM nodes n WHERE n.path = ?"
_SELECT_MANY = f"SELECT {_COLUMNS} FROM json_each(?) v JOIN nodes n ON n.path = v.value"
_Row = tuple[str, bytes, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A node's transaction ids and counts; some of them change with the node or its children.

    Fields are None for a missing node.
    """

    data: tuple[int, int] | None
    children: tuple[int, int, int] | None


@dataclass(slots=True)
class Recorded:
    """The changes that the database has recorded after a transaction.

    `is_complete` is False if the database has already deleted some of the requested changes.
    """

    changes: list[Change]
    zxid: int
    is_complete: bool


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables of a new database; raise StoreError for another program's database."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == 0 and version == 0:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables == 0:
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            return
    if application != APPLICATION_ID:
        raise StoreError("", f"{path} is not a metadata store")
    if version != SCHEMA_VERSION:
        raise StoreError(
            "", f"{path} has layout version {version}, this release reads {SCHEMA_VERSION}"
        )


def read_nodes(connection: sqlite3.Connection, paths: Sequence[str]) -> list[Node | None]:
    """Return nodes in the order of `paths`."""
    found = {
        row[0]: Node(row[1], Stat(row[2], row[3], row[4], row[5]))
        for row in _select(connection, paths)
    }
    return [found.get(path) for path in paths]


def read_children(connection: sqlite3.Connection, path: str) -> list[str] | None:
    """Return the sorted names of a node's children, or None without the node."""
    row = connection.execute("SELECT id FROM nodes WHERE path = ?", (path,)).fetchone()
    if row is None:
        return None
    skipped = 1 if path == "/" else len(path) + 1
    rows = connection.execute("SELECT path FROM nodes WHERE parent = ?", row).fetchall()
    return sorted(child[skipped:] for (child,) in rows)


def read_fingerprints(
    connection: sqlite3.Connection, paths: Sequence[str]
) -> dict[str, Fingerprint]:
    """Return a `Fingerprint` for each path, by which watches detect changes of the node."""
    missing = Fingerprint(None, None)
    prints = dict.fromkeys(paths, missing)
    for path, _, _, czxid, mzxid, _, made, child_count, _ in _select(connection, paths):
        prints[path] = Fingerprint((czxid, mzxid), (czxid, made, child_count))
    return prints


def read_zxid(connection: sqlite3.Connection) -> int:
    """Return the id of the last transaction."""
    return int(connection.execute("SELECT zxid FROM counters").fetchone()[0])


def read_changes(connection: sqlite3.Connection, after_zxid: int) -> Recorded:
    """Return the changes after a transaction."""
    rows = connection.execute(
        "SELECT zxid, list FROM changes WHERE zxid > ? ORDER BY zxid", (after_zxid,)
    ).fetchall()
    if not rows:
        return Recorded([], after_zxid, True)
    changes = [change for _, listed in rows for change in listed.split("\n")]
    return Recorded(changes, rows[-1][0], rows[0][0] == after_zxid + 1)


def ephemeral_paths(connection: sqlite3.Connection, session_id: int) -> list[str]:
    """Return the sorted paths of a session's ephemeral nodes."""
    rows = connection.execute(
        "SELECT path FROM nodes WHERE owner <> 0 AND owner = ? ORDER BY path", (session_id,)
    )
    return [path for (path,) in rows.fetchall()]


class SqlNodes(NodeSpace):
    """The nodes of a group of metadata transactions that share one SQL transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._loaded: dict[str, TreeNode | None] = {}
        self._committed: list[list[Change]] = []
        row = connection.execute("SELECT zxid, last_node FROM counters").fetchone()
        self.zxid: int = row[0]
        self._first_zxid: int = row[0] + 1
        self._last_key: int = row[1]

    def load(self, ops: Iterable[Op]) -> None:
        """Read the nodes of the operations with one query; other nodes are read when needed."""
        wanted: dict[str, None] = {}
        for op in ops:
            path = op.path
            if isinstance(op, (Create, Delete)):
                wanted[parent_of(path)] = None
            wanted[path] = None
        paths = [path for path in wanted if path not in self._loaded]
        self._loaded.update(dict.fromkeys(paths))
        for row in _select(self._connection, paths):
            self._put(row)

    def add(self, changes: list[Change]) -> None:
        """Record the changes of a transaction, which gets the next transaction id."""
        if changes:
            self.zxid += 1
            self._committed.append(changes)

    def changes(self) -> list[Change]:
        """Return the changes of all transactions in this SQL transaction, in order."""
        return [change for changes in self._committed for change in changes]

    def write_back(self) -> None:
        """Write the changed nodes, and record the changes for watchers."""
        if not self._committed:
            return
        loaded, nodes = self._loaded, self.nodes
        set_data: dict[str, None] = {}
        counted: dict[str, None] = {}
        made: dict[str, None] = {}
        for changes in self._committed:
            for change in changes:
                path = change[1:]
                if change[0] == SET:
                    set_data[path] = None
                else:
                    counted[parent_of(path)] = None
                    made[path] = None
        removed = [
            (old.key,)
            for path in made
            if (old := loaded.get(path)) is not None and nodes.get(path) is not old
        ]
        # A node's row has its parent's key, and new nodes have no key yet, so parents are written
        # first.
        new = [(path, node) for path in made if (node := nodes.get(path)) and not node.key]
        new.sort(key=lambda item: item[0].count("/"))
        write = self._connection.executemany
        write("DELETE FROM nodes WHERE id = ?", removed)
        write("INSERT INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?)", (self._row(*item) for item in new))
        changed = [
            node for path in set_data if (node := nodes.get(path)) and loaded.get(path) is node
        ]
        write(
            "UPDATE nodes SET data = ?, version = ?, mzxid = ? WHERE id = ?",
            [(node.data, node.version, node.mzxid, node.key) for node in changed],
        )
        parents = [
            node for path in counted if (node := nodes.get(path)) and loaded.get(path) is node
        ]
        write(
            "UPDATE nodes SET made = ?, child_count = ? WHERE id = ?",
            [(node.made, node.child_count, node.key) for node in parents],
        )
        self._record()

    def _lookup(self, path: str) -> TreeNode | None:
        node = self.nodes.get(path)
        if node is None and path not in self._loaded:
            self._loaded[path] = None
            for row in _select(self._connection, (path,)):
                node = self._put(row)
        return node

    def _put(self, row: _Row) -> TreeNode:
        path, data, version, czxid, mzxid, owner, made, child_count, key = row
        node = TreeNode(data, version, czxid, mzxid, owner, made, child_count, key)
        self._loaded[path] = self.nodes[path] = node
        return node

    def _row(self, path: str, node: TreeNode) -> tuple[object, ...]:
        parent = self._lookup(parent_of(path))
        assert parent is not None and parent.key, f"{path} is written before its parent"
        self._last_key += 1
        node.key = self._last_key
        return (
            node.key,
            path,
            parent.key,
            node.version,
            node.czxid,
            node.mzxid,
            node.owner,
            node.made,
            node.child_count,
            node.data,
        )

    def _record(self) -> None:
        self._connection.executemany(
            "INSERT INTO changes VALUES (?, ?)",
            [
                (zxid, "\n".join(changes))
                for zxid, changes in enumerate(self._committed, self._first_zxid)
            ],
        )
        self._connection.execute(
            "DELETE FROM changes WHERE zxid <= ?", (self.zxid - KEPT_TRANSACTIONS,)
        )
        self._connection.execute(
            "UPDATE counters SET zxid = ?, last_node = ?", (self.zxid, self._last_key)
        )


def _select(connection: sqlite3.Connection, paths: Sequence[str]) -> list[_Row]:
    if len(paths) < _MANY:
        return [
            row for path in paths for row in connection.execute(_SELECT_ONE, (path,)).fetchall()
        ]
    rows: list[_Row] = []
    for start in range(0, len(paths), _PATHS_PER_QUERY):
        part = json.dumps(list(dict.fromkeys(paths[start : start + _PATHS_PER_QUERY])))
        rows.extend(connection.execute(_SELECT_MANY, (part,)).fetchall())
    return rows
