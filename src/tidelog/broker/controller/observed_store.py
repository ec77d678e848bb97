"""The metadata store as the controller uses it: each outcome of a call counts as progress (V42).

The class passes on every call, measures its time, and returns the store's own result.
`controller.activity` notices if no outcome comes for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.broker.controller.metrics import STORE_MS
from tidelog.core.clock import Clock
from tidelog.core.metrics import Metrics
from tidelog.metadata.store import (
    MetadataStore,
    Node,
    Op,
    OpResult,
    SessionCallback,
    WatchCallback,
)

_NS_PER_US = 1_000


class ObservedStore:
    """A `MetadataStore` that reports every outcome of another store's operations by calling
    `moved`.
    """

    def __init__(
        self, store: MetadataStore, moved: Callable[[], None], clock: Clock, metrics: Metrics
    ) -> None:
        self._store = store
        self._moved = moved
        self._clock = clock
        self._metrics = metrics

    def _ended(self, operation: str, begun_ns: int) -> None:
        """Report that a call has ended, and record its duration."""
        self._moved()
        time_us = (self._clock.monotonic_ns() - begun_ns) // _NS_PER_US
        self._metrics.observe(STORE_MS, time_us, operation)

    @property
    def session_id(self) -> int | None:
        """The id of this broker's session in the metadata store, None without a session."""
        return self._store.session_id

    @property
    def session_timeout_ms(self) -> int:
        """Milliseconds after its last renewal at which the session expires."""
        return self._store.session_timeout_ms

    async def open(self) -> None:
        """Open a session."""
        await self._store.open()

    async def close(self) -> None:
        """Close the session."""
        await self._store.close()

    def on_session(self, callback: SessionCallback) -> None:
        """Call `callback` at every change of the session's state."""
        self._store.on_session(callback)

    def beat(self) -> None:
        """Renew the session; callers do so from the event loop, and so prove that it runs."""
        self._store.beat()

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Return a node, None if absent."""
        begun_ns = self._clock.monotonic_ns()
        try:
            return await self._store.get(path, watch)
        finally:
            self._ended("get", begun_ns)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes at these paths, None for an absent node."""
        begun_ns = self._clock.monotonic_ns()
        try:
            return await self._store.get_many(paths)
        finally:
            self._ended("get_many", begun_ns)

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """Return the names of a node's children, None if the node is absent."""
        begun_ns = self._clock.monotonic_ns()
        try:
            return await self._store.children(path, watch)
        finally:
            self._ended("children", begun_ns)

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations in one transaction."""
        begun_ns = self._clock.monotonic_ns()
        try:
            return await self._store.transact(ops)
        finally:
            self._ended("transact", begun_ns)
