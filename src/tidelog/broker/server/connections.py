"""One client connection: it receives frames and sends responses in order.

A connection decodes requests and passes them to their APIs. A connection keeps a queue of
responses, so that they are sent in the order of the requests. Requests of one connection begin in
order, and several may wait at the same time. Appends of all requests in a read event are submitted
together, so many small requests cost one write (docs/adr/0054). One packet can hold thousands of
requests with responses of megabytes each. When a connection's limits of waiting responses are
reached, further requests therefore begin only after earlier responses are sent. Response bytes that
the peer has not received count in the budget of all connections (`core.response_budget`,
docs/adr/0067). Malformed bytes close the connection, but never stop the broker. A connection does
not use sockets directly; see `Transport` in `core.ports`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from tidelog.broker.server.admission import Admission
from tidelog.broker.server.broker_claims import UNNAMED
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.fence import Fence
from tidelog.broker.server.idle_connections import IdleConnections
from tidelog.broker.server.request_meters import RequestMeters
from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.served import Handler
from tidelog.core import limits
from tidelog.core.authorization import ANONYMOUS
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, ProtocolError
from tidelog.core.ports import Buffer, Clock, Tracer, Transport
from tidelog.core.receive_budget import SMALL_REQUEST_BYTES
from tidelog.core.response_budget import UNCOUNTED_BYTES, ResponseBudget
from tidelog.wire.codec import (
    RequestHeader,
    SchemaError,
    UnsupportedVersion,
    decode_body,
    decode_header,
    decode_listing,
    encode_response,
)
from tidelog.wire.decoding import TooManyEntries
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.registry import (
    ALTER_PARTITION,
    API,
    API_VERSIONS,
    FETCH,
    FIRST_OWN_KEY,
    LEADER_AND_ISR,
    PRODUCE,
    STOP_REPLICA,
    UPDATE_METADATA,
)

_NS_PER_MS = 1_000_000
#: The empty frame of a request without a response (Produce with acks=0).
_NO_ANSWER: list[Buffer] = []


#: APIs whose requests may be large, because they carry records or the state of many partitions;
#: the limit of entries for other large requests does not apply to them.
_BULK_APIS = (PRODUCE, FETCH, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION)


class _Slot:
    """One request, and the place of its response in its connection's queue of responses."""

    __slots__ = (
        "arrived_ns", "begun_ns", "complete_ns", "frame_bytes", "handled_ns", "header", "parts",
        "pending", "size_bytes",
    )  # fmt: skip

    def __init__(self, header: RequestHeader, arrived_ns: int, begun_ns: int) -> None:
        self.header = header
        #: Monotonic times: the request's arrival, the begin and the end of its handler, and the
        #: completion of its response.
        self.arrived_ns = arrived_ns
        self.begun_ns = begun_ns
        self.handled_ns = begun_ns
        self.complete_ns = begun_ns
        #: The response's frame; None while the broker works on the request.
        self.parts: list[Buffer] | None = None
        self.size_bytes = 0
        #: Bytes of the request that count against the receive budget until the response is made.
        self.frame_bytes = 0
        self.pending: Pending | None = None


@dataclass(frozen=True, slots=True)
class ConnectionParts:
    """The parts that all connections of one broker share."""

    dispatcher: Dispatcher
    admission: Admission
    fence: Fence
    idle: IdleConnections
    responses: ResponseBudget
    meters: RequestMeters
    clock: Clock
    tracer: Tracer
    #: Submits the appends that a read event planned; returns False if a log directory has not
    #: written all of its appends yet.
    submit_appends: Callable[[], bool]
    #: Called when a connection is closed or lost.
    on_closed: Callable[[Connection], None]


class Connection:
    """The `FrameHandler` of one accepted connection."""

    def __init__(
        self,
        parts: ConnectionParts,
        transport: Transport,
        serves_own: bool = True,
        listener: str = "PLAINTEXT",
    ) -> None:
        self._parts = parts
        self._dispatcher = parts.dispatcher
        self._admission = parts.admission
        self._fence = parts.fence
        self._clock = parts.clock
        self._meters = parts.meters
        self._idle = parts.idle
        #: Number of the timer tick at the connection's last request or response
        #: (`idle_connections`).
        self.active_tick = parts.idle.tick
        #: Name of the listener that accepted this connection.
        self.listener = listener
        #: Whether this connection serves tidelog's own APIs (G5).
        self.serves_own = serves_own
        self._transport = transport
        self._slots: deque[_Slot] = deque()
        #: Bytes of responses that wait for earlier responses.
        self._held_bytes = 0
        self._responses = parts.responses
        self._share = parts.responses.share(transport.peer, self.abort)
        #: The principal of the peer; connections of PLAINTEXT listeners are not authenticated.
        self.principal = ANONYMOUS
        #: Whether the peer has proved to be a broker, by a request that only brokers send.
        self.is_broker = False
        #: The broker named by the request that proved the peer to be a broker.
        self.broker_id = UNNAMED
        #: Client id of the last request.
        self.client_id: str | None = None
        #: Requests that have arrived and have not begun.
        self._frames: deque[memoryview] = deque()
        #: Monotonic time at which the oldest request in `_frames` arrived.
        self._arrived_ns = 0
        #: Requests of this read event whose bytes count against the receive budget.
        self._large: list[tuple[_Slot, int]] = []
        #: Whether the frames of this read event stay valid after the event.
        self._kept = False
        self._closed = False
        #: Whether the connection is lost; its transport may still hold bytes.
        self._is_lost = False
        self._paused = False
        #: Whether the queue has a response that was made while this broker could not know whether
        #: its session had expired (V47).
        self._is_doubtful = False
        self._advancing = False
        self.peer = transport.peer
        if not parts.admission.is_serving:
            self._paused = True
            transport.pause_reading()

    # methods of FrameHandler

    def frames_received(self, frames: list[memoryview]) -> None:
        """Begin every request of a read event, then submit their appends together."""
        self.active_tick = self._idle.tick
        now_ns = self._clock.monotonic_ns()
        if not self._frames:
            self._arrived_ns = now_ns
        self._frames.extend(frames)
        now_ms = now_ns // _NS_PER_MS
        if now_ms >= self._fence.late_from_ms:
            self._fence.turned()  # the process was paused during this turn of the event loop
        self._advance(now_ns)

    def connection_lost(self, reason: str) -> None:
        """Drop all waiting requests, because no client will read the responses."""
        self._closed = self._is_lost = True
        self._held_bytes = 0
        self._frames.clear()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.pending is not None:
                slot.pending.cancel()
        self._count_rest()
        self._parts.on_closed(self)

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Count the response bytes not received by the peer; begin requests if it received some."""
        if self._is_lost:
            self._count_rest()
            return
        if sent_bytes or self._share.size_bytes or self._transport.held_bytes:
            self._count(sent_bytes > 0)
        if sent_bytes:
            self.active_tick = self._idle.tick
            if self._paused:
                self._advance()

    def begin(self) -> None:
        """Send waiting responses and begin waiting requests, because admission now allows that."""
        self._is_doubtful = False
        if not self._closed:
            self._flush()
            self._advance()

    def session_over(self) -> None:
        """Close the connection if it has a response made while the session's state was unknown."""
        if self._is_doubtful:
            self.close("the broker lost its session while it was stopped")

    # methods for handlers

    def close(self, reason: str) -> None:
        """Close the connection from this broker's side."""
        if not self._closed:
            self._closed = True
            self._transport.close(reason)

    def abort(self, reason: str) -> None:
        """Close the connection, and drop the unread responses."""
        self._parts.tracer.log("request", logging.WARNING, f"closing {self.peer}: {reason}")
        self._closed = True
        self._held_bytes = 0
        self._transport.abort(reason)

    def prove_broker(self, broker_id: int = UNNAMED) -> None:
        """Note that the peer is a broker; `broker_id` is the id that its request names."""
        self.broker_id = max(broker_id, self.broker_id)
        if not self.is_broker:
            self.is_broker = True
            self._share.move(self._responses.brokers)

    def keep_frames(self) -> None:
        """Keep the frames of this read event, because one of its requests is handled later."""
        self._kept = True
        self._transport.keep_frames()

    # requests

    def _is_full(self) -> bool:
        """Whether too many responses wait for the peer, so that no further request may begin."""
        room = self._share.room
        return (
            len(self._slots) >= room.max_in_flight
            or self._held_bytes + self._transport.queued_bytes > room.queue_limit_bytes
        )

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that the peer has not received."""
        return self._held_bytes + self._transport.queued_bytes

    def _count(self, has_progress: bool) -> None:
        """Count the response bytes, here and in the transport, that the peer has not received.

        `has_progress` means that the peer has received bytes since the last count.
        """
        self._share.hold(self._held_bytes + self._transport.held_bytes, has_progress)

    def _count_rest(self) -> None:
        """Count the bytes that a lost connection's transport still holds, until there are none."""
        if self._transport.held_bytes:
            self._count(has_progress=False)
        else:
            self._share.close()

    def _may_begin(self) -> bool:
        """Whether the first waiting request may begin; the caller ensures that there is one."""
        return not (
            self._closed or self._is_full() or (not self._admission.is_open and self._is_held())
        )

    def _is_held(self) -> bool:
        """Whether admission requires that the first request waits."""
        admission = self._admission
        if admission.is_open or not self._frames or not admission.holds(self._frames[0]):
            return False
        self.keep_frames()
        admission.waits(self.close)
        return True

    def _advance(self, now_ns: int | None = None) -> None:
        """Begin waiting requests, up to the limits; resume reading only when all have begun.

        `now_ns` is the monotonic time, if the caller knows it.
        """
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._frames and self._may_begin():
                self._begin_some(self._clock.monotonic_ns() if now_ns is None else now_ns)
                self._flush()
                now_ns = None
        finally:
            self._advancing = False
        if self._closed:
            return
        if self._held_bytes > UNCOUNTED_BYTES or self._share.size_bytes:
            self._count(has_progress=False)
        full = self._is_full() or (not self._admission.is_open and self._is_held())
        if full and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        elif self._paused and not full:
            self._paused = False
            self._transport.resume_reading()

    def _begin_some(self, now_ns: int) -> None:
        """Begin the first waiting request, and the following requests that may begin."""
        frames = self._frames
        self._kept = False
        now_ms = now_ns // _NS_PER_MS
        now_ns = self._begin(frames.popleft(), now_ms, now_ns)
        while frames and self._may_begin():
            now_ns = self._begin(frames.popleft(), now_ms, now_ns)
        if not self._parts.submit_appends() or frames:
            self.keep_frames()
        if self._large:
            self._release_large()

    def _release_large(self) -> None:
        """Release the receive budget of large requests whose bytes the broker no longer needs.

        If the broker still needs the bytes of a request, it releases the budget after the response.
        A Produce request that waits for replicas does not need its bytes, because its records are
        in the log.
        """
        large, self._large = self._large, []
        for slot, size_bytes in large:
            if self._kept and slot.parts is None:
                slot.frame_bytes = size_bytes
            else:
                self._transport.handled(size_bytes, slot.header.api_key)

    def _begin(self, frame: memoryview, now_ms: int, begun_ns: int) -> int:
        """Begin a request, and return the time in ns at which its handler ended.

        `now_ms` is the time of the read event, and `begun_ns` the last monotonic time that was
        read.
        """
        try:
            header, body_offset = decode_header(frame)
            handler = self._dispatcher.handler(header.api_key, header.api_version)
            if handler is None or (header.api_key >= FIRST_OWN_KEY and not self.serves_own):
                raise UnsupportedVersion(header)
            if len(frame) > limits.LISTING_REQUEST_BYTES and header.api_key not in _BULK_APIS:
                message, handler = self._read_listing(header, frame, body_offset, handler)
            else:
                message = decode_body(header, frame, body_offset)
        except UnsupportedVersion as error:
            self._refuse_version(error, len(frame), begun_ns)
            return begun_ns
        except ProtocolError as error:
            self._parts.tracer.log("request", logging.WARNING, f"closing {self.peer}: {error}")
            self._flush()
            self.close(f"malformed request: {error}")
            return begun_ns
        self.client_id = header.client_id
        slot = _Slot(header, self._arrived_ns, begun_ns)
        self._slots.append(slot)
        if len(frame) > SMALL_REQUEST_BYTES:
            self._large.append((slot, len(frame)))
        request = Request(header, message, self, now_ms)
        try:
            answer = handler(request)
        except AssertionError:
            raise
        except Exception as error:  # a defect of the broker: only this request fails
            answer = self._dispatcher.request_failed(request, error)
            if answer is None:
                self.close(f"internal error in {API[header.api_key].name}, which has no response")
                return begun_ns
        slot.handled_ns = slot.complete_ns = handled_ns = self._clock.monotonic_ns()
        if type(answer) is Pending:
            slot.pending = answer
            answer.deliver_to(lambda message: self._answered(slot, message))
        else:
            self._fill(slot, answer)
        return handled_ns

    def _read_listing(
        self, header: RequestHeader, frame: memoryview, body_offset: int, handler: Handler
    ) -> tuple[Any, Handler]:
        """Decode a large request that may have very many entries; return it and its handler.

        A request with too many entries gets an error response of its API. Raises ProtocolError if
        the request has too many entries even for an error response.
        """
        try:
            message = decode_listing(header, frame, body_offset, limits.MAX_LISTED_ENTRIES)
        except TooManyEntries as error:
            name = f"{API[header.api_key].name} request of {len(frame):,} bytes"
            try:
                message = decode_listing(header, frame, body_offset, limits.MAX_REFUSED_ENTRIES)
            except TooManyEntries as worse:
                raise ProtocolError(f"a {name} with {worse}") from worse
            self._parts.tracer.log(
                "request", logging.WARNING, f"refusing a {name} of {self.peer}: {error}"
            )
            handler = self._refuse
        return message, handler

    def _refuse(self, request: Request[Any]) -> Any:
        """Return the response to a request with too many entries."""
        return self._dispatcher.error_response(request, ErrorCode.INVALID_REQUEST)

    def _refuse_version(self, error: UnsupportedVersion, frame_bytes: int, begun_ns: int) -> None:
        """Refuse a version that this broker does not serve.

        An ApiVersions request gets the response that KIP-511 defines for an unserved version. An
        unserved version of an API other than ApiVersions closes the connection, because a client
        that knows the served versions does not send it.
        """
        header = error.header
        if header.api_key != API_VERSIONS:
            self._parts.tracer.log("request", logging.WARNING, f"closing {self.peer}: {error}")
            self._flush()
            self.close(f"unsupported version: {error}")
            return
        header = RequestHeader(API_VERSIONS, 0, header.correlation_id, header.client_id)
        slot = _Slot(header, self._arrived_ns, begun_ns)
        self._slots.append(slot)
        if frame_bytes > SMALL_REQUEST_BYTES:
            self._large.append((slot, frame_bytes))
        answer = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=self._dispatcher.advertised_versions(include_own=False),
        )
        self._fill(slot, answer)

    # responses

    def _answered(self, slot: _Slot, message: Any) -> None:
        slot.pending = None
        if self._closed:
            return
        slot.complete_ns = self._clock.monotonic_ns()
        self._fill(slot, message)
        self._is_doubtful = self._is_doubtful or self._fence.is_in_doubt
        if not self._advancing and self._slots and self._slots[0] is slot:
            self._flush()
            if self._paused:
                self._advance()
        if self._held_bytes > UNCOUNTED_BYTES or self._share.size_bytes:
            self._count(has_progress=False)

    def _fill(self, slot: _Slot, message: Any) -> None:
        """Make the frame of a response."""
        if slot.frame_bytes:
            self._transport.handled(slot.frame_bytes, slot.header.api_key)
            slot.frame_bytes = 0
        if message is None:
            slot.parts = _NO_ANSWER
            return
        header = slot.header
        try:
            parts = encode_response(
                header.api_key, header.api_version, header.correlation_id, message
            )
        except SchemaError as error:  # a defect: later responses must not overtake this one
            name = f"{API[header.api_key].name} version {header.api_version}"
            self._dispatcher.unexpected(f"the answer to {name} of {self.peer}", error)
            self.close(f"internal error in {name}")
            return
        slot.parts = parts
        slot.size_bytes = sum(map(len, parts))
        self._held_bytes += slot.size_bytes

    def _flush(self) -> None:
        """Send all responses that need not wait for an earlier response."""
        admission = self._admission
        if not admission.is_open and not admission.sends_answers:
            return
        slots = self._slots
        now_ns = 0
        while slots and not self._closed:
            slot = slots[0]
            parts = slot.parts
            if parts is None:
                return
            slots.popleft()
            self._held_bytes -= slot.size_bytes
            sending_ns = now_ns = now_ns or self._clock.monotonic_ns()
            if parts:
                self.active_tick = self._idle.tick
                self._transport.send(parts)
                now_ns = self._clock.monotonic_ns()
            header = slot.header
            self._meters.sent(
                (header.api_key, header.api_version, self.is_broker),
                slot.arrived_ns,
                slot.begun_ns,
                slot.handled_ns,
                slot.complete_ns,
                sending_ns,
                now_ns,
            )
