"""One connection to a ZooKeeper server: sending, receiving, pings, and detection of silence.

Requests are sent in the order in which the loop made them. Received frames become calls on the
loop, in the order in which the server sent them (S1). Pings and requests renew the session only
while the loop is not stuck (DESIGN.md, rule 4). This module neither connects nor interprets
requests: each request decodes its own response.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MAX_RESPONSE_BYTES
from tidelog.metadata.store import EventKind, StoreError
from tidelog.runtime.stores import zookeeper_wire as wire

#: Fraction of the session timeout after which the thread sends a ping if it has sent no request.
_PING_PART = 1 / 4
#: Fraction of the session timeout after which the loop counts as stuck if it has not called `beat`.
#: While the loop is stuck, the thread sends no pings, so that the session can expire.
BEAT_PART = 1 / 3
#: Fraction of the session timeout after which a server that does not respond counts as dead.
_SILENCE_PART = 2 / 3
#: Maximum wait for bytes between two checks of the connection, as a fraction of the session
#: timeout.
_TURN_PART = 1 / 12
_LONGEST_TURN_S = 0.5
_RECEIVE_BYTES = 256 * 1024
_LAST_XID = 0x7FFFFFFF
_LENGTH = struct.Struct(">i")

Call = Callable[[], None]


class Dropped(Exception):
    """The error for a connection to a server that must be dropped; the message says why."""


@dataclass(slots=True, eq=False)
class ServerRequest:
    """A request to the servers.

    `read` makes the result from error code, frame and offset on the store's thread. `settle` gets
    the result or a StoreError on the loop.
    """

    message: wire.Message
    read: Callable[[int, bytes, int], object]
    settle: Callable[[object], None]
    #: Whether the request may change the store, so that its outcome is unknown without a response.
    is_write: bool = False
    #: Whether the request is valid for one connection only.
    is_of_connection: bool = False
    #: Whether the thread has sent the whole request, which the server may then have applied.
    is_sent: bool = False
    #: Time on the loop's clock (s) at which a request that waits for a connection fails.
    deadline_s: float = 0.0


class LoopSide(Protocol):
    """The methods that the thread of a session has called on the event loop."""

    def connected(self, generation: int, session_id: int, seen_zxid: int) -> None:
        """Use a new connection; requests for the connection carry its number `generation`."""

    def answered(self, request: ServerRequest, answer: object) -> None:
        """Handle the response to the oldest unanswered request."""

    def changed(self, kind: EventKind, path: str) -> None:
        """Handle a change of a watched node; `path` is the server's path, including the chroot."""

    def dropped(self, reason: str) -> None:
        """Handle the loss of the connection."""

    def expired(self) -> None:
        """Handle the end of the session, which a server has declared."""

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of the thread; `ended` is the thread's last call to the loop."""


@dataclass(slots=True, eq=False)
class Line:
    """The state that the loop and the thread share.

    Each field has one writer, the loop or the thread, or every write of the field is one atomic
    operation.
    """

    deliver: Callable[[Sequence[Call]], None]
    loop_side: LoopSide
    outbox: deque[tuple[int, ServerRequest]] = field(default_factory=deque)
    last_beat_s: float = field(default_factory=time.monotonic)
    timeout_s: float = 0.0
    seen_zxid: int = 0
    last_contact_s: float = 0.0
    is_stopping: bool = False
    #: Why the last connection failed or was lost, for messages.
    last_failure: str = ""
    wake: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
    _is_woken: bool = False

    def rouse(self) -> None:
        """Wake the thread to check the outbox; may be called on any thread."""
        if not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self.wake, 1)

    def hear(self) -> None:
        """Record that the thread is awake and will check the outbox.

        The loop's next request wakes the thread again.
        """
        os.eventfd_read(self.wake)
        self._is_woken = False

    def close(self) -> None:
        """Close the descriptor after the thread has ended and requests have stopped."""
        os.close(self.wake)

    @property
    def loop_turns(self) -> bool:
        """Whether the loop called `beat` recently enough to renew the session."""
        return time.monotonic() - self.last_beat_s < self.timeout_s * BEAT_PART


class Conversation:
    """One connection after its handshake, until its end."""

    def __init__(self, line: Line, generation: int, sock: socket.socket) -> None:
        self._line = line
        self._generation = generation
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(line.wake, select.POLLIN)
        self._poll.register(sock, select.POLLIN)
        self._xid = 0
        #: Requests without a response, as (xid, request, total bytes sent up to the request's end).
        self._in_flight: deque[tuple[int, ServerRequest, int]] = deque()
        self._queued_bytes = 0
        self._sent_bytes = 0
        self._is_ping_out = False
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._wants_write = False
        now = time.monotonic()
        self._last_sent_s = now
        #: Time of the last byte received during the wait for a response; before the first such
        #: byte, the time at which the wait began.
        self._silent_since_s = now
        line.last_contact_s = now

    def serve(self) -> None:
        """Serve the connection until it drops; always raises Dropped or OSError."""
        try:
            self._serve()
        finally:
            # A server cannot apply a partly sent request.
            for _, request, end in self._in_flight:
                request.is_sent = request.is_sent and end <= self._sent_bytes

    def _serve(self) -> None:
        line = self._line
        while True:
            turn_s = min(line.timeout_s * _TURN_PART, _LONGEST_TURN_S)
            ready = dict(self._poll.poll(turn_s * 1000))
            if line.wake in ready:
                line.hear()
            if line.is_stopping:
                raise Dropped("closed")
            if len(ready) > (line.wake in ready):
                self._receive()
            self._take_requests()
            self._keep_alive()
            self._send()

    # out

    def _take_requests(self) -> None:
        if not self._line.loop_turns:
            return  # while the loop is stuck, no request may renew the session
        outbox = self._line.outbox
        while outbox:
            generation, request = outbox.popleft()
            if generation != self._generation:
                continue  # the loop resends requests of lost connections
            self._xid = self._xid % _LAST_XID + 1
            if not self._in_flight and not self._is_ping_out:
                self._silent_since_s = time.monotonic()
            request.is_sent = True
            self._queue(request.message.frame(self._xid))
            self._in_flight.append((self._xid, request, self._queued_bytes))

    def _queue(self, frame: bytes) -> None:
        self._outgoing += frame
        self._queued_bytes += len(frame)

    def _keep_alive(self) -> None:
        now = time.monotonic()
        line = self._line
        if self._in_flight or self._is_ping_out:
            silence_s = now - self._silent_since_s
            if silence_s > line.timeout_s * _SILENCE_PART:
                raise Dropped(f"no answer for {silence_s * 1000:.0f} ms")
        if self._is_ping_out or now - self._last_sent_s < line.timeout_s * _PING_PART:
            return
        if line.loop_turns:
            if not self._in_flight:
                self._silent_since_s = now
            self._is_ping_out = True
            self._queue(wire.PING.frame(wire.XID_PING))

    def _send(self) -> None:
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            self._last_sent_s = self._line.last_contact_s = time.monotonic()
            self._sent_bytes += sent
            del self._outgoing[:sent]
        if bool(self._outgoing) != self._wants_write:
            self._wants_write = bool(self._outgoing)
            events = select.POLLIN | (select.POLLOUT if self._wants_write else 0)
            self._poll.modify(self._socket, events)

    # in

    def _receive(self) -> None:
        """Receive all available bytes; complete frames are delivered even after an error."""
        try:
            while True:
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise Dropped("the server has closed the connection")
                self._incoming += data
                if len(data) < _RECEIVE_BYTES and not isinstance(self._socket, ssl.SSLSocket):
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        finally:
            self._read_frames()

    def _read_frames(self) -> None:
        incoming = self._incoming
        calls: list[Call] = []
        start = 0
        try:
            while len(incoming) - start >= _LENGTH.size:
                length = _LENGTH.unpack_from(incoming, start)[0]
                if not 0 < length <= MAX_RESPONSE_BYTES:
                    raise Dropped(f"a frame of {length} bytes: not ZooKeeper's")
                end = start + _LENGTH.size + length
                if len(incoming) < end:
                    break
                frame = bytes(memoryview(incoming)[start + _LENGTH.size : end])
                start = end
                call = self._read_frame(frame)
                if call is not None:
                    calls.append(call)
        except (struct.error, UnicodeDecodeError) as error:
            raise Dropped(f"a frame that is not ZooKeeper's: {error}") from error
        finally:
            if start:
                del incoming[:start]
                self._silent_since_s = self._line.last_contact_s = time.monotonic()
            if calls:
                self._line.deliver(calls)

    def _read_frame(self, frame: bytes) -> Call | None:
        header, offset = wire.read_header(frame)
        line = self._line
        if header.xid == wire.XID_PING:
            self._is_ping_out = False
            return None
        if header.xid == wire.XID_WATCH_EVENT:
            kind, path = wire.read_event(frame, offset)
            if kind is None:
                return None
            return _changed(line.loop_side, kind, path)
        if not self._in_flight or self._in_flight[0][0] != header.xid:
            raise Dropped(f"an answer to request {header.xid}, which was not asked")
        request = self._in_flight[0][1]
        if header.error in (wire.SESSION_EXPIRED, wire.SESSION_MOVED):
            # The server rejected all requests of the session, so it applied none of them. The next
            # connection shows the state of the session.
            for _, unserved, _ in self._in_flight:
                unserved.is_sent = False
            raise Dropped("the server refuses the session")
        self._in_flight.popleft()
        if request.message is wire.CLOSE:
            line.is_stopping = True
        # A ping's zxid is ignored, because it may be ahead of events that have not arrived yet.
        if header.zxid > 0:
            line.seen_zxid = header.zxid
        try:
            answer = request.read(header.error, frame, offset)
        except StoreError as error:
            answer = error
        return _answered(line.loop_side, request, answer)


def _changed(loop_side: LoopSide, kind: EventKind, path: str) -> Call:
    return lambda: loop_side.changed(kind, path)


def _answered(loop_side: LoopSide, request: ServerRequest, answer: object) -> Call:
    return lambda: loop_side.answered(request, answer)
