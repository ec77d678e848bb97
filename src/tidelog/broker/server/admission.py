"""The admission of requests: which ones wait before they begin, and for how long at most.

All of them wait while this broker is fenced (V47). Requests of clients also wait until the
controller has sent the first whole view of the cluster. A broker without a view would answer
Metadata with an empty cluster; librdkafka then drops every broker that it knows and never recovers.
Two kinds of requests pass. Requests between brokers pass, because one of them brings the view. So
do requests that a broker answers by the partitions that it leads. Requests stay in the order of
their connection, and waiting ones are bounded. A connection stops reading behind its first waiting
request, and closes after `MAX_REQUEST_HOLD_MS`.
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

#: Requests that a broker answers by the partitions that it leads, without a view of the cluster.
_BY_ROLE = (API_VERSIONS, PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_KEY_BYTES = 2


class Admission:
    """The decision for each request whether it begins now."""

    def __init__(
        self,
        fence: Fence,
        timers: TimerWheel,
        *,
        has_view: Callable[[], bool],
        is_inter_broker: Callable[[int], bool],
    ) -> None:
        """`has_view`: whether the controller has sent a whole view of the cluster.

        `is_inter_broker`: whether an API key is used between brokers.
        """
        self._fence = fence
        self._timers = timers
        self._has_view = has_view
        self._is_inter_broker = is_inter_broker
        #: Requests are read only once this broker is registered. A command for an earlier process
        #: under its id must find no broker that obeys it (V30).
        self.is_serving = False
        #: Has all open connections begin the requests that wait, in their order.
        self.begin_all: Callable[[], None] = lambda: None
        #: Whether no request has to wait: connections check this first.
        self.is_open = False
        #: How to close each connection whose first request waits, with the timeout that does it.
        self._waiting: dict[Callable[[str], None], Timeout] = {}

    def holds(self, frame: memoryview) -> bool:
        """Whether the request in `frame` waits."""
        if self.is_open:
            return False
        if self._fence.is_fenced:
            return True
        key = int.from_bytes(frame[:_KEY_BYTES], "big", signed=True)
        return not (key in _BY_ROLE or key >= FIRST_OWN_KEY or self._is_inter_broker(key))

    @property
    def sends_answers(self) -> bool:
        """Whether responses may leave."""
        return self.is_open or not self._fence.is_fenced

    def waits(self, close: Callable[[str], None]) -> None:
        """Note that the first request of the connection that `close` closes waits."""
        if close not in self._waiting:
            self._waiting[close] = self._timers.after(
                MAX_REQUEST_HOLD_MS, lambda: self._too_long(close)
            )

    def gone(self, close: Callable[[str], None]) -> None:
        """Note that the connection is closed."""
        timeout = self._waiting.pop(close, None)
        if timeout is not None:
            timeout.cancel()

    def changed(self) -> None:
        """Begin requests that no longer wait; the fence or the view has changed."""
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
