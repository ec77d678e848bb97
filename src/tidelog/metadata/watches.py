"""One-shot watches of one session: who has to hear of which change (rule S1).

Two kinds, as ZooKeeper has them: a data watch sees a node made, changed, removed; a child watch
sees its children made and removed, and its own removal. A callback that is left twice on one path
fires once. `callback` may be anything hashable: the store decides how it is called.
Knows neither nodes nor sessions.
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
        # Dictionaries in place of sets: callbacks fire in the order they were left.
        self._data: dict[str, dict[C, None]] = {}
        self._children: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._data) + len(self._children)

    def watch_data(self, path: str, callback: C) -> None:
        """Fire once when the node at `path` is made, changed or removed."""
        self._data.setdefault(path, {})[callback] = None

    def watch_children(self, path: str, callback: C) -> None:
        """Fire once when a child of `path` is made or removed, or `path` is removed."""
        self._children.setdefault(path, {})[callback] = None

    def fire(self, changes: Iterable[Change]) -> list[tuple[C, WatchEvent]]:
        """Take off the watches that these changes concern; what to call, in order."""
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
        """Whether a watch of either kind is left on `path`."""
        return path in self._data or path in self._children

    def data_paths(self) -> list[str]:
        """Paths with data watches, in the order they were left."""
        return list(self._data)

    def children_paths(self) -> list[str]:
        """Paths with child watches, in the order they were left."""
        return list(self._children)

    def clear(self) -> None:
        """Drop all without firing."""
        self._data.clear()
        self._children.clear()
