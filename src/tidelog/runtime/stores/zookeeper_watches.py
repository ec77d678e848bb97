"""The watches of one session with ZooKeeper, over all its connections (rule S1).

A server forgets a client's watches with its connection. The client leaves them again over the next
connection, with the last transaction that it saw. Watches that a later change concerned fire at
once, so none is missed. Knows paths of the store's nodes, not of the server's.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.metadata.store import EventKind, WatchCallback, WatchEvent
from tidelog.runtime.stores import zookeeper_wire as wire

#: Bytes of paths in one request that leaves watches again: ZooKeeper's own client sends as many.
_MAX_REQUEST_BYTES = 128 * 1024


class ZookeeperWatches:
    """Watches by path; each fires once."""

    def __init__(self) -> None:
        # Dictionaries in place of sets: callbacks fire in the order they were left.
        self._data: dict[str, dict[WatchCallback, None]] = {}
        self._children: dict[str, dict[WatchCallback, None]] = {}
        #: The watches of `_data` whose node was missing.
        self._missing: set[str] = set()

    def watch_data(self, path: str, callback: WatchCallback, exists: bool) -> None:
        """Leave a watch on a node that exists, or does not."""
        self._data.setdefault(path, {})[callback] = None
        if exists:
            self._missing.discard(path)
        else:
            self._missing.add(path)

    def watch_children(self, path: str, callback: WatchCallback) -> None:
        """Leave a watch on the children of a node."""
        self._children.setdefault(path, {})[callback] = None

    def fire(self, kind: EventKind, path: str) -> list[tuple[WatchCallback, WatchEvent]]:
        """Remove the watches that an event concerns; return the calls, in order."""
        callbacks: dict[WatchCallback, None] = {}
        if kind is not EventKind.CHILDREN:
            callbacks.update(self._data.pop(path, {}))
            self._missing.discard(path)
        if kind in (EventKind.CHILDREN, EventKind.DELETED):
            callbacks.update(self._children.pop(path, {}))
        event = WatchEvent(kind, path)
        return [(callback, event) for callback in callbacks]

    def requests(self, chroot: str, seen_zxid: int) -> Iterator[wire.Message]:
        """Yield the requests that leave all watches again over a new connection."""
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
