"""The watches of one session, each of which fires once (S1).

There are two kinds of watches, as in ZooKeeper. A data watch fires when the node is created,
changed or deleted. A child watch fires when a child is created or deleted, and when the node is
deleted. If the same callback watches a path twice, it is called once. A `callback` is any hashable
value, and the store decides how to call it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from tidelog.metadata.paths import parent_of
from tidelog.metadata.store import EventKind, WatchEvent
from tidelog.metadata.tree import CHILDREN_DIFFER, MADE, REMOVED, SET, Change

C = TypeVar("C")

_KINDS = {MADE: EventKind.CREATED, SET: EventKind.CHANGED, REMOVED: EventKind.DELETED}


class Watches(Generic[C]):
    """The watches that have not fired, by path."""

    def __init__(self) -> None:
        # Dictionaries, not sets, because callbacks are called in the order in which they were
        # registered.
        self._data: dict[str, dict[C, None]] = {}
        self._children: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._data) + len(self._children)

    def watch_data(self, path: str, callback: C) -> None:
        """Set a data watch, which fires once when the node at `path` is created, changed or
        deleted.
        """
        self._data.setdefault(path, {})[callback] = None

    def watch_children(self, path: str, callback: C) -> None:
        """Set a child watch, which fires once when a child is created or deleted, or `path` is
        deleted.
        """
        self._children.setdefault(path, {})[callback] = None

    def fire(self, changes: Iterable[Change]) -> list[tuple[C, WatchEvent]]:
        """Remove the watches that `changes` fire; return the callbacks to call, in order, each with
        its event.
        """
        fired: list[tuple[C, WatchEvent]] = []
        data, children = self._data, self._children
        if not data and not children:
            return fired
        for change in changes:
            mark, path = change[0], change[1:]
            if mark != CHILDREN_DIFFER:
                hit = data.pop(path, None)
                if mark == REMOVED and path in children:
                    hit = (hit or {}) | children.pop(path)
                if hit:
                    event = WatchEvent(_KINDS[mark], path)
                    fired.extend([(callback, event) for callback in hit])
            if mark == SET or not children:
                continue
            parent = path if mark == CHILDREN_DIFFER else parent_of(path)
            hit = children.pop(parent, None)
            if hit:
                event = WatchEvent(EventKind.CHILDREN, parent)
                fired.extend([(callback, event) for callback in hit])
        return fired

    def is_watched(self, path: str) -> bool:
        """Whether `path` has a data watch or a child watch."""
        return path in self._data or path in self._children

    def data_paths(self) -> list[str]:
        """Return the paths with data watches, in the order of the watches."""
        return list(self._data)

    def children_paths(self) -> list[str]:
        """Return the paths with child watches, in the order of the watches."""
        return list(self._children)

    def clear(self) -> None:
        """Drop all watches without calling back."""
        self._data.clear()
        self._children.clear()
