"""One connection to a ZooKeeper server: frames out, frames in, pings, silence.

Requests go out in the order in which the loop made them. Incoming frames become calls for the loop,
in the order of the wire (S1). The session is renewed, by pings and requests, only while the loop
turns (DESIGN.md, rule 4). Knows neither how connections are made nor the meaning of requests:
requests decode their own responses.
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
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.core.limits import MAX_RESPONSE_BYTES
from tidelog.metadata.store import EventKind, StoreError
from tidelog.runtime.stores import zookeeper_wire as wire

#: Parts of the session timeout: silence after which a ping is sent; age of the loop's last beat up
#: to which it is sent; silence of a server after a request, up to which it counts as alive.
_PING_PART = 1 / 4
BEAT_PART = 1 / 3
_SILENCE_PART = 2 / 3
_TURN_PART = 1 / 12
_LONGEST_TURN_S = 0.5
_RECEIVE_BYTES = 256 * 1024
_LAST_XID = 0x7FFFFFFF
_LENGTH = struct.Struct(">i")

Call = Callable[[], None]


class Dropped(Exception):
    """The connection is of no more use."""


@dataclass(slots=True, eq=False)
class ServerRequest:
    """A request to the servers.

    `read` makes its result of error code, frame and offset, on the store's thread. `settle` gets
    that result, or a StoreError, on the loop.
    """

    message: wire.Message
    read: Callable[[int, bytes, int], object]
    settle: Callable[[object], None]
    #: It may change something: without a response its outcome is unknown.
    is_write: bool = False
    #: It means nothing to a later connection.
    is_of_connection: bool = False
    #: Set by the thread: it has gone out whole, and may have been applied.
    is_sent: bool = False
    #: When the loop gives it up while it waits for a connection; seconds of the loop's clock.
    deadline_s: float = 0.0


class LoopSide(Protocol):
    """The thread's calls to the loop; each runs on the loop."""

    def connected(self, generation: int, session_id: int, seen_zxid: int) -> None:
        """Use a new connection; requests for it carry its generation."""

    def answered(self, request: ServerRequest, answer: object) -> None:
        """Take the response to the oldest unanswered request."""

    def changed(self, kind: EventKind, path: str) -> None:
        """Take the change of a watched node; the path is the server's."""

    def dropped(self, reason: str) -> None:
        """Note that the connection is gone."""

    def expired(self) -> None:
        """Note that a server has declared the session over."""

    def ended(self, error: BaseException | None) -> None:
        """Note the thread's end; no call comes after this one."""


@dataclass(slots=True, eq=False)
class Line:
    """The state that the loop and the thread share.

    Each field is written by one of them, or by single operations that need no lock.
    """

    deliver: Callable[[Sequence[Call]], None]
    loop_side: LoopSide
    outbox: deque[tuple[int, ServerRequest]] = field(default_factory=deque)
    last_beat_s: float = field(default_factory=time.monotonic)
    timeout_s: float = 0.0
    seen_zxid: int = 0
    last_contact_s: float = 0.0
    is_stopping: bool = False
    #: The reason of the last lost or failed connection, for messages.
    last_failure: str = ""
    wake: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
    _is_woken: bool = False

    def rouse(self) -> None:
        """Wake the thread to look at the outbox; any thread."""
        if not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self.wake, 1)

    def hear(self) -> None:
        """Note that the thread is awake, before it looks at the outbox.

        Later requests wake it again.
        """
        os.eventfd_read(self.wake)
        self._is_woken = False

    def close(self) -> None:
        """Close the descriptor: the thread has ended, and no request is made any more."""
        os.close(self.wake)

    @property
    def loop_turns(self) -> bool:
        """Whether the last beat is young enough to renew the session."""
        return time.monotonic() - self.last_beat_s < self.timeout_s * BEAT_PART


class Conversation:
    """One connection, from its handshake to its end."""

    def __init__(self, line: Line, generation: int, sock: socket.socket) -> None:
        self._line = line
        self._generation = generation
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(line.wake, select.POLLIN)
        self._poll.register(sock, select.POLLIN)
        self._xid = 0
        #: Each with its xid, and the number of bytes that had gone out at the request's end.
        self._in_flight: deque[tuple[int, ServerRequest, int]] = deque()
        self._queued_bytes = 0
        self._sent_bytes = 0
        self._is_ping_out = False
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._wants_write = False
        now = time.monotonic()
        self._last_sent_s = now
        #: Since when a response is awaited, or the time of the last byte after that.
        self._silent_since_s = now
        line.last_contact_s = now

    def serve(self) -> None:
        """Serve the connection until it drops: raises Dropped, OSError."""
        try:
            self._serve()
        finally:
            # A server cannot apply half a request.
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
            return  # a request renews the session as well as a ping
        outbox = self._line.outbox
        while outbox:
            generation, request = outbox.popleft()
            if generation != self._generation:
                continue  # the loop resends it over this connection
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
        """Receive all available bytes; frames complete before a break are delivered, too."""
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
            # Rejected as a whole: the next connection learns the session's state.
            for _, unserved, _ in self._in_flight:
                unserved.is_sent = False
            raise Dropped("the server refuses the session")
        self._in_flight.popleft()
        if request.message is wire.CLOSE:
            line.is_stopping = True
        # Only responses count: a ping's zxid may be ahead of events that are still to come.
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
