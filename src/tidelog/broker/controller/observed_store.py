"""The metadata store as the controller's flow uses it: each outcome is a sign of life (V42).

Passes every call on and decides nothing: a caller gets the result that the store gave.
`controller.activity` counts how long an outcome has failed to come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.metadata.store import (
    MetadataStore,
    Node,
    Op,
    OpResult,
    SessionCallback,
    WatchCallback,
)


class ObservedStore:
    """A `MetadataStore` that calls `moved` at each outcome, good or bad."""

    def __init__(self, store: MetadataStore, moved: Callable[[], None]) -> None:
        self._store = store
        self._moved = moved

    @property
    def session_id(self) -> int | None:
        """The session's id."""
        return self._store.session_id

    @property
    def session_timeout_ms(self) -> int:
        """How long the session outlives its last sign of life."""
        return self._store.session_timeout_ms

    async def open(self) -> None:
        """Start a session."""
        await self._store.open()

    async def close(self) -> None:
        """End the session."""
        await self._store.close()

    def on_session(self, callback: SessionCallback) -> None:
        """Call back at every change of the session's state."""
        self._store.on_session(callback)

    def beat(self) -> None:
        """Report that the loop turns."""
        self._store.beat()

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Read a node."""
        try:
            return await self._store.get(path, watch)
        finally:
            self._moved()

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes."""
        try:
            return await self._store.get_many(paths)
        finally:
            self._moved()

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """List children."""
        try:
            return await self._store.children(path, watch)
        finally:
            self._moved()

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations."""
        try:
            return await self._store.transact(ops)
        finally:
            self._moved()
