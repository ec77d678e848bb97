"""The watches of one session of the embedded store, and the session's last seen transaction (S1).

Every request first updates the session with the commits of other processes. The database records
the changes of the last transactions only. If the session lags so far behind that the database no
longer has its next changes, the session compares each watched node with the node's state when the
watch was set. Even a session that lags misses no event of a watch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tidelog.metadata.store import WatchCallback, WatchEvent
from tidelog.metadata.tree import CHILDREN_DIFFER, MADE, REMOVED, SET, Change
from tidelog.metadata.watches import Watches
from tidelog.runtime.stores.sqlite_nodes import (
    Fingerprint,
    read_changes,
    read_fingerprints,
    read_zxid,
)


class SqliteWatches:
    """Watches by path, and the last transaction whose changes were applied to the watches."""

    def __init__(self, seen_zxid: int) -> None:
        self.seen_zxid = seen_zxid
        self._watches: Watches[WatchCallback] = Watches()
        #: The versions of each watched node and its children when the watch was set.
        self._prints: dict[str, Fingerprint] = {}

    def watch_data(
        self, connection: sqlite3.Connection, paths: Sequence[str], callback: WatchCallback
    ) -> None:
        """Set a data watch on each path; the session must have seen all changes in the database."""
        for path in paths:
            self._watches.watch_data(path, callback)
        self._prints.update(read_fingerprints(connection, paths))

    def watch_children(
        self, connection: sqlite3.Connection, path: str, callback: WatchCallback
    ) -> None:
        """Set a child watch; the session must have seen all changes in the database."""
        self._watches.watch_children(path, callback)
        self._prints.update(read_fingerprints(connection, (path,)))

    def changes_since_seen(self, connection: sqlite3.Connection) -> tuple[list[Change], int]:
        """Return the changes that this session has not seen, and the id of the last transaction."""
        if not len(self._watches):
            return [], read_zxid(connection)
        recorded = read_changes(connection, self.seen_zxid)
        if recorded.is_complete:
            return recorded.changes, recorded.zxid
        return self._compare(connection), recorded.zxid

    def fire(self, changes: Sequence[Change], zxid: int) -> list[tuple[WatchCallback, WatchEvent]]:
        """Advance the session to `zxid`; remove the watches that fire, and return the callbacks."""
        self.seen_zxid = zxid
        fired = self._watches.fire(changes)
        for _, event in fired:
            if not self._watches.is_watched(event.path):
                self._prints.pop(event.path, None)
        return fired

    def _compare(self, connection: sqlite3.Connection) -> list[Change]:
        now = read_fingerprints(connection, list(self._prints))
        changes: list[Change] = []
        for path in self._watches.data_paths():
            mark = _mark(self._prints[path].data, now[path].data)
            if mark:
                changes.append(mark + path)
        for path in self._watches.children_paths():
            was, is_now = self._prints[path].children, now[path].children
            if was != is_now:
                gone = is_now is None or was is None or was[0] != is_now[0]
                changes.append((REMOVED if gone else CHILDREN_DIFFER) + path)
        return changes


def _mark(was: tuple[int, int] | None, is_now: tuple[int, int] | None) -> str:
    """Return the kind of a node's first change between two states; "" if the states are equal.

    A state is (czxid, mzxid), or None for a missing node.
    """
    if was == is_now:
        return ""
    if was is None:
        return MADE
    if is_now is None or was[0] != is_now[0]:
        return REMOVED
    return SET
