"""The watches of one ZooKeeper session over all its connections (rule S1).

A server forgets a client's watches when the connection ends. The client sets the watches again over
the next connection, with the last transaction that it saw. If a watched node has changed since the
last seen transaction, the server fires the watch at once, so no event is missed. Paths here are the
store's, without the chroot.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.metadata.store import EventKind, WatchCallback, WatchEvent
from tidelog.runtime.stores import zookeeper_wire as wire

#: Maximum bytes of paths in one request that sets watches again, as in ZooKeeper's own client.
_MAX_REQUEST_BYTES = 128 * 1024


class ZookeeperWatches:
    """Watches by path, each of which fires once."""

    def __init__(self) -> None:
        # Dictionaries instead of sets, because callbacks fire in the order in which their watches
        # were set.
        self._data: dict[str, dict[WatchCallback, None]] = {}
        self._children: dict[str, dict[WatchCallback, None]] = {}
        #: Paths in `_data` whose node was missing when the watch was set.
        self._missing: set[str] = set()

    def watch_data(self, path: str, callback: WatchCallback, exists: bool) -> None:
        """Set a data watch on a node; `exists` is whether the node exists."""
        self._data.setdefault(path, {})[callback] = None
        if exists:
            self._missing.discard(path)
        else:
            self._missing.add(path)

    def watch_children(self, path: str, callback: WatchCallback) -> None:
        """Set a watch on the children of a node."""
        self._children.setdefault(path, {})[callback] = None

    def fire(self, kind: EventKind, path: str) -> list[tuple[WatchCallback, WatchEvent]]:
        """Remove the watches that an event triggers; return their callbacks, in order."""
        callbacks: dict[WatchCallback, None] = {}
        if kind is not EventKind.CHILDREN:
            callbacks.update(self._data.pop(path, {}))
            self._missing.discard(path)
        if kind in (EventKind.CHILDREN, EventKind.DELETED):
            callbacks.update(self._children.pop(path, {}))
        event = WatchEvent(kind, path)
        return [(callback, event) for callback in callbacks]

    def requests(self, chroot: str, seen_zxid: int) -> Iterator[wire.Message]:
        """Yield the requests that set all watches again over a new connection."""
        lists: tuple[list[str], list[str], list[str]] = ([], [], [])
        size_bytes = 0
        for number, path in self._all():
            lists[number].append(wire.chroot_path(chroot, path))
            size_bytes += len(chroot) + 4 * len(path)
            if size_bytes > _MAX_REQUEST_BYTES:
                yield wire.set_watches(seen_zxid, *lists)
                lists, size_bytes = ([], [], []), 0
        if any(lists):
            yield wire.set_watches(seen_zxid, *lists)

    def _all(self) -> Iterator[tuple[int, str]]:
        for path in self._data:
            yield (1 if path in self._missing else 0), path
        for path in self._children:
            yield 2, path
