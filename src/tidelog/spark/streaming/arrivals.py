"""The wait of an idle stream until a leader has new records, or for a tenth of a second.

With the trigger "0 seconds", Spark requests offsets from an idle source about 90 times a second.
The wait spares the cluster most requests for offsets, and delays no record. Each leader gets one
Fetch request at the ends of its logs, and holds the request until a record comes
(`fetch.max.wait.ms`). The wait drops the fetched records, because the batch's tasks read the
records again.

A leader that does not respond delays only the detection of its own records, because the wait ends
after its time limit anyway.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

#: Fetch size in bytes; a response has at least one batch, however small this size is.
_SMALLEST_FETCH: Final = 1

_log = logging.getLogger("tidelog.spark")


class Arrivals:
    """A wait for records at or beyond given offsets, with a thread and a client per leader."""

    def __init__(self, connect: Callable[[], BlockingClient], isolation_level: int) -> None:
        self._connect = connect
        self._isolation_level = isolation_level
        self._arrived = threading.Event()
        self._watches: dict[int, _Watch] = {}

    def wait(self, by_leader: Mapping[int, Mapping[TopicPartition, int]], wait_ms: int) -> bool:
        """Return True once a log has a record from the given offset on; False after `wait_ms`."""
        self._arrived.clear()
        for leader, offsets in by_leader.items():
            watch = self._watches.get(leader)
            if watch is None:
                watch = _Watch(self._connect(), self._isolation_level, self._arrived)
                self._watches[leader] = watch
            watch.begin(offsets, wait_ms)
        return self._arrived.wait(wait_ms / 1000)

    def close(self) -> None:
        """End the threads; each thread closes its client after its last request."""
        for watch in self._watches.values():
            watch.end()
        self._watches.clear()


class _Watch:
    """A thread that waits for new records of one leader, with at most one waiting Fetch request."""

    def __init__(
        self, client: BlockingClient, isolation_level: int, arrived: threading.Event
    ) -> None:
        self._client = client
        self._isolation_level = isolation_level
        self._arrived = arrived
        self._orders: queue.SimpleQueue[tuple[dict[TopicPartition, int], int] | None] = (
            queue.SimpleQueue()
        )
        self._is_free = threading.Event()
        self._is_free.set()
        threading.Thread(target=self._run, name="tidelog-arrivals", daemon=True).start()

    def begin(self, offsets: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Fetch at the given offsets, unless an earlier fetch is still waiting."""
        if self._is_free.is_set():
            self._is_free.clear()
            self._orders.put((dict(offsets), wait_ms))

    def end(self) -> None:
        self._orders.put(None)

    def _run(self) -> None:
        with self._client:
            while (order := self._orders.get()) is not None:
                offsets, wait_ms = order
                begun = time.monotonic()
                try:
                    found = self._client.fetch_many(
                        offsets,
                        partition_max_bytes=_SMALLEST_FETCH,
                        max_wait_ms=wait_ms,
                        isolation_level=self._isolation_level,
                    )
                    if any(len(each.records) for each in found.values()):
                        self._arrived.set()
                except TidelogError as error:
                    # The error is only logged: the stream reader lists offsets after each wait, and
                    # its request raises the error.
                    _log.debug("waiting for records at %s: %s", sorted(offsets), error)
                    time.sleep(max(0.0, begun + wait_ms / 1000 - time.monotonic()))
                self._is_free.set()
