"""The memory budget for requests of all connections: `queued.max.request.bytes`.

A connection reserves the whole size of a request above `SMALL_REQUEST_BYTES` when it has read the
request's beginning. The reservation lasts until the broker has responded. If the budget has no room
for a request, the broker stops reading from its connection; connections get room in order of
arrival. No two requests can thus wait for each other's memory, and even the largest request gets
room. Requests other than Produce have their own budget of the size of the largest request, so
producers cannot delay the controller's commands, followers' fetches, or consumer groups.

A client may announce a request and send it slowly, or never. While other connections wait for room,
the broker closes a connection whose half-received request stalls. A request stalls if no byte
arrives for `STALLED_MS`. A request also stalls if fewer than `MIN_PROGRESS_BYTES`, or less than a
`MAX_PERIODS`th of the request, arrive in `PROGRESS_MS`. A slow sender thus holds room for at most a
minute while others wait. This module uses no sockets: a transport asks for room, and the budget
calls the transport back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.core.limits import KIB, MIB

if TYPE_CHECKING:
    from tidelog.core.clock import Clock
    from tidelog.core.config import BrokerConfig

#: Size up to which requests take no room in the budget. If each of `max.connections` connections
#: sends a request of `SMALL_REQUEST_BYTES`, the requests take 256 MiB.
SMALL_REQUEST_BYTES: Final = 64 * KIB
#: Bytes that must arrive for a half-received request in `PROGRESS_MS` while others wait for room.
MIN_PROGRESS_BYTES: Final = MIB
PROGRESS_MS: Final = 10_000
#: Number of periods of `PROGRESS_MS` within which a request must be complete while others wait.
MAX_PERIODS: Final = 6
#: Time without a byte after which a request has stalled; a peer that still sends delivers bytes
#: within a round trip.
STALLED_MS: Final = 5_000
_CHECK_MS: Final = 1_000
#: Least time between two log lines about waiting requests.
_LOG_MS: Final = 60_000
_PRODUCE: Final = 0


def budget_bytes(config: BrokerConfig) -> int | None:
    """Return `queued.max.request.bytes` in force, or None for no limit.

    The default of `queued.max.request.bytes` is raised to `socket.request.max.bytes` if that is
    larger, so that every request fits.
    """
    if config.queued_max_request_bytes <= 0:
        return None
    return max(config.queued_max_request_bytes, config.socket_request_max_bytes)


class _Room:
    """One part of the receive budget: its free bytes, and the connections that hold bytes of it or
    wait for room.
    """

    __slots__ = ("holders", "max_bytes", "used_bytes", "waiting")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        #: Connections with a half-received request that has room.
        self.holders: dict[BudgetShare, None] = {}
        self.waiting: deque[BudgetShare] = deque()

    def has(self, size_bytes: int) -> bool:
        """Return whether a request of this size fits; any request fits into an empty budget."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self.max_bytes


class ReceiveBudget:
    """The receive budget of one broker."""

    def __init__(
        self,
        max_bytes: int,
        max_request_bytes: int,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        """`log` gets a line for operators when requests wait or a connection is closed."""
        self._clock = clock
        self.log = log
        self._max_bytes = max_bytes
        self._writes = _Room(max_bytes)
        self._others = _Room(max_request_bytes)
        self._is_checking = False
        self._logged_ms: int | None = None

    @property
    def used_bytes(self) -> int:
        """Total size of the requests that hold room in the budgets now."""
        return self._writes.used_bytes + self._others.used_bytes

    @property
    def waiting(self) -> int:
        """Number of connections that are not read, because their request has no room."""
        return len(self._writes.waiting) + len(self._others.waiting)

    def share(
        self, peer: str, on_room: Callable[[], None], close: Callable[[str], None]
    ) -> BudgetShare:
        """Return the object with which a new connection reserves room in the budget.

        The budget calls `on_room` when a request that had to wait gets room. The budget calls
        `close` with a reason to end the connection.
        """
        return BudgetShare(self, peer, on_room, close)

    def room(self, api_key: int) -> _Room:
        """Return the budget for an API's requests; all APIs but Produce share one budget."""
        return self._writes if api_key == _PRODUCE else self._others

    def wait(self, share: BudgetShare, room: _Room, size_bytes: int) -> None:
        """Let a connection wait for room; connections that hold room must now make progress."""
        now_ms = self._clock.monotonic_ms()
        if not room.waiting:
            for holder in room.holders:
                holder.begin_progress(now_ms)
        room.waiting.append(share)
        if self._logged_ms is None or now_ms - self._logged_ms >= _LOG_MS:
            self._logged_ms = now_ms
            self.log(
                f"{self.waiting} connections wait to send requests, {share.peer} one of "
                f"{size_bytes:,} bytes: requests of {room.used_bytes:,} bytes are being received "
                f"or handled (queued.max.request.bytes={self._max_bytes})"
            )
        if not self._is_checking:
            self._is_checking = True
            self._clock.call_later(_CHECK_MS, self._check)

    def release(self, room: _Room, size_bytes: int) -> None:
        """Free bytes, and grant room to waiting requests in their order."""
        room.used_bytes -= size_bytes
        assert room.used_bytes >= 0, "more is given back than was taken"
        waiting = room.waiting
        now_ms = self._clock.monotonic_ms() if waiting else 0
        while waiting and room.has(waiting[0].wanted_bytes):
            waiting.popleft().grant(now_ms)

    def _check(self) -> None:
        self._is_checking = False
        now_ms = self._clock.monotonic_ms()
        for room in (self._writes, self._others):
            if room.waiting:
                for holder in list(room.holders):
                    holder.check_progress(now_ms, len(room.waiting))
        if self.waiting and not self._is_checking:
            self._is_checking = True
            self._clock.call_later(_CHECK_MS, self._check)


class BudgetShare:
    """The share of the receive budget that one connection holds. After `close`, all calls do
    nothing.
    """

    __slots__ = (
        "_begun_ms", "_budget", "_close", "_closed", "_handled_later", "_on_room", "_room",
        "_since_begun", "is_waiting", "peer", "wanted_bytes",
    )  # fmt: skip

    def __init__(
        self,
        budget: ReceiveBudget,
        peer: str,
        on_room: Callable[[], None],
        close: Callable[[str], None],
    ) -> None:
        self._budget = budget
        self._on_room = on_room
        self._close = close
        self._closed = False
        self.peer = peer
        #: Size of the half-received request; 0 if there is none above `SMALL_REQUEST_BYTES`.
        self.wanted_bytes = 0
        #: Whether the half-received request waits for room.
        self.is_waiting = False
        self._room: _Room | None = None
        #: Bytes of the half-received request that have arrived since its last check of progress.
        self._since_begun = 0
        #: Time of the last check of progress.
        self._begun_ms = 0
        #: Bytes of completely received requests without a response, by budget.
        self._handled_later: dict[_Room, int] = {}

    def reserve(self, size_bytes: int, api_key: int) -> bool:
        """Reserve room for a request that has begun to arrive; return whether reading may continue.

        After False, the connection must not be read until the budget calls `on_room`.
        """
        if self._closed:
            return True
        room = self._room = self._budget.room(api_key)
        self.wanted_bytes = size_bytes
        if room.waiting or not room.has(size_bytes):
            self.is_waiting = True
            self._budget.wait(self, room, size_bytes)
            return False
        self._take(room, size_bytes)
        if room.waiting:
            self.begin_progress(0)
        return True

    def received(self, nbytes: int) -> None:
        """Count bytes of the half-received request."""
        self._since_begun += nbytes

    def completed(self, size_bytes: int, api_key: int) -> None:
        """Note that a request above `SMALL_REQUEST_BYTES` has been received completely.

        A request that arrived in one piece takes room without waiting, because its bytes are
        already in memory.
        """
        if self._closed:
            return
        room = self._room
        if room is None:
            room = self._budget.room(api_key)
            room.used_bytes += size_bytes
        else:
            self._room = None
            room.holders.pop(self, None)
            self.wanted_bytes = 0
        self._handled_later[room] = self._handled_later.get(room, 0) + size_bytes

    def handled(self, size_bytes: int, api_key: int) -> None:
        """Release the room of a request above `SMALL_REQUEST_BYTES` after its response."""
        if not self._closed:
            room = self._budget.room(api_key)
            self._handled_later[room] -= size_bytes
            if room.waiting:
                self._budget.release(room, size_bytes)
            else:
                room.used_bytes -= size_bytes
                assert room.used_bytes >= 0, "more is given back than was taken"

    def close(self) -> None:
        """Release all room of the connection, which is closed."""
        if self._closed:
            return
        self._closed = True
        room = self._room
        if room is not None:
            room.holders.pop(self, None)
            if self.is_waiting:
                was_first = room.waiting[0] is self
                room.waiting.remove(self)
                if was_first:
                    # The next request in the queue may be smaller, and thus get room now.
                    self._budget.release(room, 0)
            else:
                self._budget.release(room, self.wanted_bytes)
        for held, size_bytes in self._handled_later.items():
            self._budget.release(held, size_bytes)
        self._handled_later.clear()

    # the budget's side

    def _take(self, room: _Room, size_bytes: int) -> None:
        room.used_bytes += size_bytes
        room.holders[self] = None

    def grant(self, now_ms: int) -> None:
        """Reserve the room for the waiting request and call `on_room`."""
        assert self._room is not None, "a connection that waits knows for what"
        self.is_waiting = False
        self._take(self._room, self.wanted_bytes)
        self.begin_progress(now_ms)
        self._on_room()

    def begin_progress(self, now_ms: int) -> None:
        """Start a new period of `PROGRESS_MS`, in which the request must make progress."""
        self._begun_ms = now_ms
        self._since_begun = 0

    def check_progress(self, now_ms: int, waiting: int) -> None:
        """Close the connection if its half-received request makes no progress."""
        elapsed_ms = now_ms - self._begun_ms
        if elapsed_ms < (PROGRESS_MS if self._since_begun else STALLED_MS):
            return
        expected_bytes = max(MIN_PROGRESS_BYTES, self.wanted_bytes // MAX_PERIODS)
        if self._since_begun >= expected_bytes:
            self.begin_progress(now_ms)
            return
        self._budget.log(
            f"closing {self.peer}: {self._since_begun:,} bytes of a request of "
            f"{self.wanted_bytes:,} bytes came in {elapsed_ms:,} ms (at least "
            f"{expected_bytes:,} in {PROGRESS_MS:,} ms expected) while {waiting} connections "
            "wait for queued.max.request.bytes"
        )
        self._close("a half-received request held memory that others wait for")
