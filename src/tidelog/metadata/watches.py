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
from tidelog.metadata.tree import Change

C = TypeVar("C")


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
        for kind, path in changes:
            hit = self._data.pop(path, None)
            if kind is EventKind.DELETED and path in self._children:
                hit = (hit or {}) | self._children.pop(path)
            if hit:
                event = WatchEvent(kind, path)
                fired.extend((callback, event) for callback in hit)
            if kind is EventKind.CHANGED or not self._children:
                continue
            parent = parent_of(path)
            watchers = self._children.pop(parent, None)
            if watchers:
                event = WatchEvent(EventKind.CHILDREN, parent)
                fired.extend((callback, event) for callback in watchers)
        return fired

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
