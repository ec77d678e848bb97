"""Memory of requests that are being received, over all connections: `queued.max.request.bytes`.

A request above `SMALL_REQUEST_BYTES` reserves its whole size before more than its beginning is
read, and keeps it until the response. Without room, its connection is not read, and waits in the
order of arrival. So no two requests can wait for each other's memory. The largest request gets its
turn: the budget has room for it after all other responses. Requests other than Produce have a
budget of their own, of the size of the largest request. Producers so cannot delay the controller's
commands, followers' fetches, or consumer groups.

A client may announce a request and send it slowly, or never. While others wait, the broker closes a
connection with a half-received request that stalls. It stalls when nothing came for `STALLED_MS`,
or less than `MIN_PROGRESS_BYTES` or a `MAX_PERIODS`th part of it in `PROGRESS_MS`. While others
wait, a slow sender so holds the room of its request for at most a minute. Knows no sockets: a
transport asks for room and is called back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.core.limits import KIB, MIB

if TYPE_CHECKING:
    from tidelog.core.config import BrokerConfig
    from tidelog.core.ports import Clock

#: Smaller requests take no room in the budget; `max.connections` of them are 256 MiB.
SMALL_REQUEST_BYTES: Final = 64 * KIB
#: Bytes that a connection with a half-received request must receive while others wait for room.
MIN_PROGRESS_BYTES: Final = MIB
PROGRESS_MS: Final = 10_000
#: How many times `PROGRESS_MS` may pass until a request is whole, while others wait.
MAX_PERIODS: Final = 6
#: A peer with bytes to send shows some of them within a round trip.
STALLED_MS: Final = 5_000
_CHECK_MS: Final = 1_000
#: Pause between two log lines about waiting requests.
_LOG_MS: Final = 60_000
_PRODUCE: Final = 0


def budget_bytes(config: BrokerConfig) -> int | None:
    """Return `queued.max.request.bytes` in force; None: no limit.

    The default gives way to a larger `socket.request.max.bytes`, so that each request has room.
    """
    if config.queued_max_request_bytes <= 0:
        return None
    return max(config.queued_max_request_bytes, config.socket_request_max_bytes)


class _Room:
    """A number of bytes, with the connections that hold them and that wait for them."""

    __slots__ = ("holders", "max_bytes", "used_bytes", "waiting")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        #: Connections with a half-received request that has its room.
        self.holders: dict[BudgetShare, None] = {}
        self.waiting: deque[BudgetShare] = deque()

    def has(self, size_bytes: int) -> bool:
        """Return whether a request of this size fits; one alone always does."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self.max_bytes


class ReceiveBudget:
    """The budget of one broker."""

    def __init__(
        self,
        max_bytes: int,
        max_request_bytes: int,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        """`log` takes a line for operators, where requests wait or connections are closed."""
        self._clock = clock
        self.log = log
        self._max_bytes = max_bytes
        self._writes = _Room(max_bytes)
        self._others = _Room(max_request_bytes)
        self._is_checking = False
        self._logged_ms: int | None = None

    @property
    def used_bytes(self) -> int:
        """Bytes of all requests that have room now."""
        return self._writes.used_bytes + self._others.used_bytes

    @property
    def waiting(self) -> int:
        """Connections that are not read because their request has no room."""
        return len(self._writes.waiting) + len(self._others.waiting)

    def share(
        self, peer: str, on_room: Callable[[], None], close: Callable[[str], None]
    ) -> BudgetShare:
        """Return the share of a new connection.

        `on_room`: the request that had to wait has room now; `close` ends the connection for a
        reason.
        """
        return BudgetShare(self, peer, on_room, close)

    def room(self, api_key: int) -> _Room:
        """Return the room in which requests of an API take their bytes."""
        return self._writes if api_key == _PRODUCE else self._others

    def wait(self, share: BudgetShare, room: _Room, size_bytes: int) -> None:
        """Let a connection wait for room; holders must show progress from now on."""
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
        """Free bytes; waiting requests take them, in their order."""
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
    """The part of the budget that one connection has. After `close` all calls do nothing."""

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
        #: Size of the half-received request; 0 while there is none above the limit.
        self.wanted_bytes = 0
        #: Whether that request has no room yet.
        self.is_waiting = False
        self._room: _Room | None = None
        #: Bytes of it that came since the last check of its progress, and the time of that check.
        self._since_begun = 0
        self._begun_ms = 0
        #: Bytes of whole requests without a response, by room.
        self._handled_later: dict[_Room, int] = {}

    def reserve(self, size_bytes: int, api_key: int) -> bool:
        """Reserve room for a request whose beginning has come; return whether it may be read on.

        Otherwise the connection must not be read before `on_room` is called.
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
        """Note that a request above the limit is whole.

        A request that came at once takes room in any case: its bytes are in memory.
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
        """Release the room of a whole request above the limit after its response."""
        if not self._closed:
            room = self._budget.room(api_key)
            self._handled_later[room] -= size_bytes
            if room.waiting:
                self._budget.release(room, size_bytes)
            else:
                room.used_bytes -= size_bytes
                assert room.used_bytes >= 0, "more is given back than was taken"

    def close(self) -> None:
        """Release everything: the connection is gone."""
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
                    self._budget.release(room, 0)  # a smaller request may be next
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
        """Give the waiting request its room."""
        assert self._room is not None, "a connection that waits knows for what"
        self.is_waiting = False
        self._take(self._room, self.wanted_bytes)
        self.begin_progress(now_ms)
        self._on_room()

    def begin_progress(self, now_ms: int) -> None:
        """Count progress from now on."""
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
