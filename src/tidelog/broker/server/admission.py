"""The admission of requests: which requests wait before they begin, and how long at most.

While this broker is fenced, all requests wait (V47). Requests of clients also wait until the
controller has sent the first full view of the cluster. A broker without a view would respond to
Metadata with an empty cluster; librdkafka would then drop every broker that it knows and never
recover. Two kinds of requests do not wait for the view. The first kind are inter-broker requests,
because UpdateMetadata, from which the broker gets its view, is one of them. The second kind are
requests that a broker answers from the partitions that it leads. The requests of a connection stay
in order, and the number of waiting requests is bounded. While the first request of a connection
waits, the broker reads no further requests from it, and closes it after `MAX_REQUEST_HOLD_MS`.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.server.fence import Fence
from tidelog.broker.server.timers import Timeout, TimerWheel
from tidelog.core.limits import MAX_REQUEST_HOLD_MS
from tidelog.wire.registry import (
    API_VERSIONS,
    FETCH,
    FIRST_OWN_KEY,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)

#: Requests that a broker answers from the partitions that it leads, without a view of the cluster.
_BY_ROLE = (API_VERSIONS, PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_KEY_BYTES = 2


class Admission:
    """The decision whether a request begins now or waits: for the registration, for the fence, or
    for a view of the cluster.
    """

    def __init__(
        self,
        fence: Fence,
        timers: TimerWheel,
        *,
        has_view: Callable[[], bool],
        is_inter_broker: Callable[[int], bool],
    ) -> None:
        """`has_view` returns whether the controller has sent a full view of the cluster.

        `is_inter_broker` returns whether only brokers send requests with an API key.
        """
        self._fence = fence
        self._timers = timers
        self._has_view = has_view
        self._is_inter_broker = is_inter_broker
        #: Whether this broker is registered and begins requests. Before the registration, it must
        #: not execute a command that was meant for an earlier process with the same broker id
        #: (V30).
        self.is_serving = False
        #: Called to make all open connections begin their waiting requests, in order.
        self.begin_all: Callable[[], None] = lambda: None
        #: True if no request has to wait; connections check this field first.
        self.is_open = False
        #: Functions that close the connections whose first request waits, each with its timeout.
        self._waiting: dict[Callable[[str], None], Timeout] = {}

    def holds(self, frame: memoryview) -> bool:
        """Whether the request in `frame` has to wait."""
        if self.is_open:
            return False
        if self._fence.is_fenced:
            return True
        key = int.from_bytes(frame[:_KEY_BYTES], "big", signed=True)
        return not (key in _BY_ROLE or key >= FIRST_OWN_KEY or self._is_inter_broker(key))

    @property
    def sends_answers(self) -> bool:
        """Whether connections may send responses."""
        return self.is_open or not self._fence.is_fenced

    def waits(self, close: Callable[[str], None]) -> None:
        """Note that the first request of a connection waits; `close` closes that connection."""
        if close not in self._waiting:
            self._waiting[close] = self._timers.after(
                MAX_REQUEST_HOLD_MS, lambda: self._too_long(close)
            )

    def gone(self, close: Callable[[str], None]) -> None:
        """Note that a connection is closed."""
        timeout = self._waiting.pop(close, None)
        if timeout is not None:
            timeout.cancel()

    def changed(self) -> None:
        """Begin requests that need no longer wait after a change of the fence or the view."""
        is_fenced = self._fence.is_fenced
        self.is_open = self._has_view() and not is_fenced
        if self.is_serving and not is_fenced:
            waiting, self._waiting = self._waiting, {}
            for timeout in waiting.values():
                timeout.cancel()
            self.begin_all()

    def _too_long(self, close: Callable[[str], None]) -> None:
        del self._waiting[close]
        close(f"a request could not be begun for {MAX_REQUEST_HOLD_MS} ms")
