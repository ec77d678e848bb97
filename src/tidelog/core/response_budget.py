"""The memory budget for responses that peers have not read: `queued.max.response.bytes`.

The connections of clients share one budget, and the connections of brokers a second one, so that no
client can delay replication. A fetch's response uses the budget from the read of its records until
the kernel takes its bytes. The budget does not count responses that the kernel takes at once, nor a
few small responses that wait for an earlier response of their connection.

The less room the budget has, the fewer records a fetch gets (`grant_bytes`), but at least one
batch. No fetch waits for the disk read of another fetch (`disk_reads`). Only fetches wait for room;
responses to requests of other APIs never wait. While more than half of the budget is used, a
connection with many unread bytes begins no further request. At the limit, the broker closes
connections whose peers read nothing. Fetches wait only while the used bytes exceed the limit by a
quarter. All fetches in one turn of the loop read at most `MAX_TURN_BYTES` together; further fetches
read in the next turns (docs/adr/0067). This module uses no sockets: connections report the bytes
that they hold, and the budget resumes fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.core.disk_reads import DiskReads
from tidelog.core.limits import KIB, MAX_IN_FLIGHT_PER_CONNECTION, MAX_SEND_QUEUE_BYTES, MIB

if TYPE_CHECKING:
    from tidelog.core.ports import Clock

#: Maximum number of bytes of records that the fetches of one turn of the loop read from the page
#: cache. To read `MAX_TURN_BYTES` and to check their checksums takes 10 ms. A single fetch also
#: gets at most `MAX_TURN_BYTES`.
MAX_TURN_BYTES: Final = 16 * MIB
#: A fetch gets an eighth of the free room: many slow readers share the room, and a single reader is
#: not slowed down.
_GRANTED_PART: Final = 8
#: Pending reads from the disks hold at most half of the budget.
_READS_PART: Final = 2
#: Least number of bytes granted to a fetch while there is free room: the consumers' default of
#: `max.partition.fetch.bytes`.
LEAST_GRANT_BYTES: Final = MIB
#: Bytes that a fetch may read if the budget is full, as many as the kernel buffers for a
#: connection.
SHORT_GRANT_BYTES: Final = 64 * KIB
#: Unread bytes of a connection above which it begins no further request while room is short.
SHORT_QUEUE_BYTES: Final = 64 * KIB
#: Responses of a connection that wait for an earlier response are counted if they are together
#: larger than `UNCOUNTED_BYTES`. If smaller responses were counted, each client that sends several
#: requests at once would count as a slow reader. On 4,096 connections the uncounted responses take
#: at most 16 MiB.
UNCOUNTED_BYTES: Final = 4 * KIB
#: Limit on the pending requests of one connection while fetches wait for their turn. An idempotent
#: producer has at most `SHORT_IN_FLIGHT` requests in flight.
SHORT_IN_FLIGHT: Final = 5
#: Maximum number of expired fetches that respond without records in one turn of the loop; each
#: costs up to 0.1 ms.
_DUE_AT_ONCE: Final = 100
#: If a peer reads no byte for `STALLED_MS`, the broker may close its connection to free memory for
#: others.
STALLED_MS: Final = 10_000
#: Bytes that fetches may read in one turn of the loop before the budget lowers `grant_bytes`, so
#: that the turn stays within `MAX_TURN_BYTES`.
_TURN_STEP_BYTES: Final = 2 * MIB
_CHECK_MS: Final = 1_000
#: Least time between two log lines about unread responses.
_LOG_MS: Final = 60_000
#: Number of connections that a log line names.
_NAMED: Final = 3


class WaitingRead:
    """A fetch that waits for its turn to read."""

    __slots__ = ("is_due", "resume", "unread_bytes")

    def __init__(
        self,
        resume: Callable[[int], None],
        unread_bytes: Callable[[], int],
        *,
        is_due: bool = False,
    ) -> None:
        """`resume` reads up to the granted bytes, or responds without records.

        `unread_bytes` returns the bytes of earlier responses that the fetch's connection holds.
        """
        self.resume = resume
        self.unread_bytes = unread_bytes
        #: Whether the fetch's maximum wait time is over, so that it responds even without records.
        self.is_due = is_due


class ResponseRoom:
    """The response budget of all connections of clients, or of all connections of brokers."""

    __slots__ = (
        "_clock", "_is_checking", "_is_looking", "_is_urgent", "_log", "_logged_ms", "_max_bytes",
        "_of", "_turn_bytes", "_waiting", "grant_bytes", "holders", "is_exhausted",
        "max_in_flight", "queue_limit_bytes", "reads", "used_bytes",
    )  # fmt: skip

    def __init__(
        self,
        of: str,
        max_bytes: int,
        clock: Clock,
        log: Callable[[str], None],
        directories: int = 1,
    ) -> None:
        """`of` names the owners of the connections in log lines: clients or brokers.

        `directories` is the number of log directories that share the room for disk reads.
        """
        self._of = of
        self._max_bytes = max_bytes
        self._clock = clock
        self._log = log
        #: Bytes that a fetch may read now; 0 if fetches must wait for their turn.
        self.grant_bytes = 0
        #: Unread bytes above which a connection begins no further request.
        self.queue_limit_bytes = MAX_SEND_QUEUE_BYTES
        #: Number of pending requests from which a connection begins no further request.
        self.max_in_flight = MAX_IN_FLIGHT_PER_CONNECTION
        #: Bytes that connections hold, and the bytes of pending disk reads.
        self.used_bytes = 0
        #: The pending disk reads, which hold at most half of the budget over all directories.
        self.reads = DiskReads(clock, max_bytes // (_READS_PART * directories))
        #: Whether so many bytes are unread that fetches must wait.
        self.is_exhausted = False
        #: The connections that hold bytes of unread responses.
        self.holders: dict[ResponseShare, None] = {}
        #: Bytes that fetches have read in this turn of the loop.
        self._turn_bytes = 0
        self._is_looking = False
        self._waiting: dict[WaitingRead, None] = {}
        self._is_checking = False
        #: Whether a check is scheduled for the next turn of the loop.
        self._is_urgent = False
        self._logged_ms: int | None = None
        self._changed()

    @property
    def waiting(self) -> int:
        """Number of fetches that wait for their turn."""
        return len(self._waiting)

    # fetches

    def read(self, size_bytes: int) -> None:
        """Count records that a fetch has read on the loop in this turn."""
        self._turn_bytes += size_bytes
        if self._turn_bytes >= _TURN_STEP_BYTES:
            if not self._is_looking:
                self._is_looking = True
                self._clock.call_later(0, self._next_turn)
            self._changed()

    def wait(self, fetch: WaitingRead) -> None:
        """Queue a fetch, to be resumed in order as soon as it may read."""
        self._waiting[fetch] = None
        self.max_in_flight = SHORT_IN_FLIGHT
        if self.is_exhausted:
            self._begin_checks()
        elif not self._is_looking:
            self._is_looking = True
            self._clock.call_later(0, self._next_turn)

    def leave(self, fetch: WaitingRead) -> None:
        """Remove a fetch that no longer waits."""
        self._waiting.pop(fetch, None)

    def take(self, size_bytes: int) -> None:
        """Add the bytes of a pending disk read to the used bytes; a negative number subtracts."""
        self.used_bytes += size_bytes
        self._changed()

    def _next_turn(self) -> None:
        self._is_looking = False
        self._turn_bytes = 0
        waiting = self._waiting
        while waiting and (granted := self._grant()):
            fetch = next(iter(waiting))
            del waiting[fetch]
            if fetch.unread_bytes() > SHORT_QUEUE_BYTES:
                granted = SHORT_GRANT_BYTES  # the connection already holds much of the budget
            fetch.resume(granted)
        if waiting and not self.is_exhausted and not self._is_looking:
            self._is_looking = True
            self._clock.call_later(0, self._next_turn)
        self._changed()

    def _grant(self) -> int:
        left = MAX_TURN_BYTES - self._turn_bytes
        if left < LEAST_GRANT_BYTES or self.is_exhausted:
            return 0
        free = self._max_bytes - self.used_bytes
        if free <= 0:
            return SHORT_GRANT_BYTES
        return min(max(free // _GRANTED_PART, LEAST_GRANT_BYTES), left)

    def _changed(self) -> None:
        """Update the limits of fetches and connections after a change of `used_bytes`."""
        used, most = self.used_bytes, self._max_bytes
        was_exhausted = self.is_exhausted
        self.is_exhausted = used >= most + most // 4
        # A new fetch must not overtake waiting fetches.
        self.grant_bytes = 0 if self._waiting else self._grant()
        self.max_in_flight = SHORT_IN_FLIGHT if self._waiting else MAX_IN_FLIGHT_PER_CONNECTION
        self.queue_limit_bytes = MAX_SEND_QUEUE_BYTES if used < most // 2 else SHORT_QUEUE_BYTES
        if used >= most:
            # If no connection holds bytes, a check cannot free memory, and so is not urgent.
            self._begin_checks(is_urgent=used >= 2 * most and bool(self.holders))
        if was_exhausted and not self.is_exhausted and self._waiting and not self._is_looking:
            self._is_looking = True
            self._clock.call_later(0, self._next_turn)

    # connections

    def changed(self, share: ResponseShare, size_bytes: int) -> None:
        """Update the number of bytes that a connection holds."""
        self.used_bytes += size_bytes - share.size_bytes
        share.size_bytes = size_bytes
        if size_bytes:
            self.holders[share] = None
        else:
            self.holders.pop(share, None)
        self._changed()

    def _begin_checks(self, *, is_urgent: bool = False) -> None:
        if is_urgent:
            if not self._is_urgent:
                self._is_urgent = True
                self._clock.call_later(0, self._check)
        elif not self._is_checking:
            self._is_checking = True
            self._clock.call_later(_CHECK_MS, self._check_later)

    def _check_later(self) -> None:
        self._is_checking = False
        self._check()

    def _check(self) -> None:
        """Close connections whose peers read nothing, until the budget has room."""
        self._is_urgent = False
        self._report()
        now_ms = self._clock.monotonic_ms()
        largest = sorted(self.holders, key=lambda share: -share.size_bytes)
        for share in largest:
            must_go = self.used_bytes >= 2 * self._max_bytes
            if self.used_bytes < self._max_bytes:
                break
            if must_go or now_ms - share.progress_ms >= STALLED_MS:
                share.abort(
                    f"{share.size_bytes:,} bytes of responses were not read, of {self.used_bytes:,}"
                    f" of all {self._of} (queued.max.response.bytes={self._max_bytes})"
                )
        if self.is_exhausted:
            self._answer_due()
        if self.used_bytes >= self._max_bytes or (self.is_exhausted and self._waiting):
            self._begin_checks()

    def _answer_due(self) -> None:
        """Let expired fetches respond without records."""
        due = [fetch for fetch in self._waiting if fetch.is_due]
        for fetch in due[:_DUE_AT_ONCE]:
            if fetch in self._waiting:  # an earlier response may have closed the fetch's connection
                del self._waiting[fetch]
                fetch.resume(0)
        if len(due) > _DUE_AT_ONCE and not self._is_urgent:
            self._is_urgent = True
            self._clock.call_later(0, self._check)

    def _report(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._logged_ms is not None and now_ms - self._logged_ms < _LOG_MS:
            return
        self._logged_ms = now_ms
        largest = sorted(self.holders, key=lambda share: -share.size_bytes)[:_NAMED]
        named = ", ".join(
            f"{share.peer} {share.size_bytes:,}" for share in largest if share.is_open
        )
        self._log(
            f"{len(self.holders)} connections of {self._of} do not read their responses of"
            f" {self.used_bytes:,} bytes (queued.max.response.bytes={self._max_bytes}): fetches"
            f" get fewer records, and connections that take nothing for {STALLED_MS // 1000} s are"
            f" closed; most bytes: {named}"
        )


class ResponseShare:
    """The share of a response budget that the unread responses of one connection hold."""

    __slots__ = ("_abort", "_clock", "peer", "progress_ms", "room", "size_bytes")

    def __init__(
        self, peer: str, abort: Callable[[str], None], room: ResponseRoom, clock: Clock
    ) -> None:
        self.peer = peer
        #: Function that closes the connection; None after the connection was closed, to break a
        #: reference cycle.
        self._abort: Callable[[str], None] | None = abort
        self.room = room
        self._clock = clock
        #: Bytes that the connection holds for its peer.
        self.size_bytes = 0
        #: When the peer last read bytes, or the connection began to hold bytes.
        self.progress_ms = 0

    @property
    def is_open(self) -> bool:
        """Whether the connection is still open."""
        return self._abort is not None

    def hold(self, size_bytes: int, has_progress: bool) -> None:
        """Set the connection's unread bytes; `has_progress` says that the peer has read bytes."""
        if self._abort is None:
            return
        if has_progress or not self.size_bytes:
            self.progress_ms = self._clock.monotonic_ms()
        self.room.changed(self, size_bytes)

    def move(self, room: ResponseRoom) -> None:
        """Count the connection's unread bytes in another budget from now on."""
        size_bytes = self.size_bytes
        self.room.changed(self, 0)
        self.room = room
        room.changed(self, size_bytes)

    def abort(self, reason: str) -> None:
        """Close the connection, and so free its bytes."""
        abort = self._abort
        self.close()
        if abort is not None:
            abort(reason)

    def close(self) -> None:
        """Release the bytes of a connection that has closed."""
        if self._abort is not None:
            self._abort = None
            self.room.changed(self, 0)


class ResponseBudget:
    """The response budgets of one broker: one for clients, one for brokers."""

    def __init__(
        self, max_bytes: int, clock: Clock, log: Callable[[str], None], directories: int = 1
    ) -> None:
        """`log` gets lines for operators; `directories` is the number of log directories."""
        self._clock = clock
        self.clients = ResponseRoom("clients", max_bytes, clock, log, directories)
        self.brokers = ResponseRoom("brokers", max_bytes, clock, log, directories)

    def share(self, peer: str, abort: Callable[[str], None]) -> ResponseShare:
        """Return a new connection's share of the clients' budget.

        If the peer is a broker, the connection's share moves to the budget of brokers later. `peer`
        is the `host:port` of the peer. `abort` closes the connection and drops queued bytes.
        """
        return ResponseShare(peer, abort, self.clients, self._clock)
