"""SQLite and the tree in memory mean the same by every operation, alone and in groups."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.metadata.store import (
    Check,
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SetData,
    TransactionFailed,
)
from tidelog.metadata.tree import Change, NodeSpace, Tree
from tidelog.runtime.stores.sqlite_nodes import (
    SqlNodes,
    ephemeral_paths,
    prepare,
    read_changes,
    read_children,
    read_nodes,
    read_zxid,
)

PATHS = st.sampled_from(
    ["/", "/a", "/b", "/a/x", "/a/y", "/a/x/p", "/b/n", "/a/n0000000000", "/a/n0000000001"]
)
VERSIONS = st.sampled_from([-1, -1, 0, 0, 1, 2, -2])
OPS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), st.booleans(), st.just(False)),
    st.builds(
        Create, st.sampled_from(["/a/n", "/b/n", "/n"]), st.just(b"s"), st.booleans(), st.just(True)
    ),
    st.builds(SetData, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
TRANSACTION = st.tuples(st.lists(OPS, max_size=6), st.integers(1, 2))
#: Transactions of a group share one SQL transaction.
GROUPS = st.lists(st.lists(TRANSACTION, min_size=1, max_size=4), max_size=8)

Outcome = list[OpResult] | tuple[int, str, str]


def outcome_of(
    space: NodeSpace, ops: list[Op], zxid: int, session_id: int
) -> tuple[Outcome, list[Change]]:
    try:
        return space.apply(ops, zxid, session_id)
    except TransactionFailed as failed:
        return (failed.index, type(failed.error).__name__, failed.error.path), []


def dump(connection: sqlite3.Connection) -> dict[str, Node | None]:
    paths = [path for (path,) in connection.execute("SELECT path FROM nodes ORDER BY path")]
    return dict(zip(paths, read_nodes(connection, paths), strict=True))


@examples(300)
@given(GROUPS)
def test_sqlite_agrees_with_the_tree(groups: list[list[tuple[list[Op], int]]]) -> None:
    tree = Tree()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection, "memory")
        for group in groups:
            before = tree.zxid
            expected: list[Change] = []
            connection.execute("BEGIN")
            nodes = SqlNodes(connection)
            nodes.load(op for ops, _ in group for op in ops)
            for ops, session_id in group:
                wanted, changes = outcome_of(tree, ops, tree.zxid + 1, session_id)
                tree.zxid += bool(changes)
                expected += changes
                outcome, applied = outcome_of(nodes, ops, nodes.zxid + 1, session_id)
                nodes.add(applied)
                assert (outcome, applied) == (wanted, changes)
            nodes.write_back()
            connection.execute("COMMIT")
            assert read_zxid(connection) == nodes.zxid == tree.zxid
            recorded = read_changes(connection, before)
            assert (recorded.changes, recorded.is_complete) == (expected, True)
            assert dump(connection) == tree.dump()
            for path in tree.dump():
                assert read_children(connection, path) == tree.children(path)
            for session_id in (1, 2):
                assert ephemeral_paths(connection, session_id) == tree.ephemerals(session_id)


@examples(100)
@given(GROUPS)
def test_a_transaction_that_fails_leaves_the_tree_as_it_was(
    groups: list[list[tuple[list[Op], int]]],
) -> None:
    tree = Tree()
    for group in groups:
        for ops, session_id in group:
            before = tree.dump()
            made = {path: node.made for path, node in tree.nodes.items()}
            counts = {path: node.child_count for path, node in tree.nodes.items()}
            try:
                tree.transact([*ops, Check("/missing", 0)], session_id)
            except TransactionFailed:
                assert tree.dump() == before
                assert {path: node.made for path, node in tree.nodes.items()} == made
                assert {path: node.child_count for path, node in tree.nodes.items()} == counts
                for path in before:
                    assert len(tree.children(path) or []) == counts[path]
            else:
                raise AssertionError("a check of a missing node passed")
            outcome_of_transaction(tree, ops, session_id)


def outcome_of_transaction(tree: Tree, ops: list[Op], session_id: int) -> None:
    try:
        tree.transact(ops, session_id)
    except TransactionFailed:
        return
