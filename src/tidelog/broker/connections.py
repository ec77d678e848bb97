"""One client connection: frames in, answers out, in order.

Decodes requests, hands them to their API, and keeps a queue of answers so that they leave in the
order of the requests. Requests of one connection are begun in order and may wait together; their
appends are submitted once per read event, so that many small requests cost one write
(DESIGN.md, facts measured). Bad bytes close the connection, never the broker.
Knows nothing of sockets: see `Transport` in `core.ports`.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from tidelog.broker.requests import Pending, Request
from tidelog.core import limits
from tidelog.core.errors import ErrorCode, InvariantError, ProtocolError
from tidelog.core.ports import Transport
from tidelog.wire.codec import (
    RequestHeader,
    SchemaError,
    UnsupportedVersion,
    decode_body,
    decode_header,
    encode_response,
)
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.registry import API, API_VERSIONS

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

#: An answer that is being worked on.
_WAITING: Any = object()
#: A request that gets no answer (Produce with acks=0).
_NO_ANSWER: Any = object()


class _Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("header", "message", "pending")

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        self.message: Any = _WAITING
        self.pending: Pending | None = None


class Connection:
    """FrameHandler of one accepted connection."""

    def __init__(self, broker: Broker, transport: Transport) -> None:
        self._broker = broker
        self._transport = transport
        self._slots: deque[_Slot] = deque()
        self._closed = False
        self._paused = False
        self._reading = False
        self.peer = transport.peer
        if not broker.is_serving:
            self._paused = True
            transport.pause_reading()

    # FrameHandler

    def frames_received(self, frames: list[memoryview]) -> None:
        """Begin every request of a read event, then submit their appends together."""
        broker = self._broker
        now_ms = broker.clock.monotonic_ms()
        self._reading = True
        try:
            for frame in frames:
                self._begin(frame, now_ms)
                if self._closed:
                    break
            if not broker.submit_appends():
                self._transport.keep_frames()
        finally:
            self._reading = False
        self._flush()
        self._limit()

    def connection_lost(self, reason: str) -> None:
        """Drop what waits; nobody will read the answers."""
        self._closed = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.pending is not None:
                slot.pending.cancel()
        self._broker.connection_closed(self)

    def send_queue_drained(self) -> None:
        """The peer reads again: so do we."""
        self._limit()

    def begin(self) -> None:
        """The broker serves from now on: read what has waited."""
        self._limit()

    # what handlers may do

    def close(self, reason: str) -> None:
        """Close the connection from our side."""
        if not self._closed:
            self._closed = True
            self._transport.close(reason)

    # requests

    def _begin(self, frame: memoryview, now_ms: int) -> None:
        broker = self._broker
        try:
            header, body_offset = decode_header(frame)
            handler = broker.handler(header.api_key, header.api_version)
            if handler is None:
                raise UnsupportedVersion(header)
            message = decode_body(header, frame, body_offset)
        except UnsupportedVersion as error:
            self._refuse_version(error)
            return
        except ProtocolError as error:
            broker.tracer.log("request", logging.WARNING, f"closing {self.peer}: {error}")
            self.close(f"malformed request: {error}")
            return
        slot = _Slot(header)
        self._slots.append(slot)
        try:
            answer = handler(broker, Request(header, message, self, now_ms))
        except InvariantError:
            raise
        except Exception as error:  # a defect of ours: this connection pays, the broker lives
            broker.unexpected(f"{API[header.api_key].name} from {self.peer}", error)
            self.close(f"internal error in {API[header.api_key].name}")
            return
        if type(answer) is Pending:
            slot.pending = answer
            answer.deliver_to(lambda message: self._answered(slot, message))
        else:
            slot.message = _NO_ANSWER if answer is None else answer

    def _refuse_version(self, error: UnsupportedVersion) -> None:
        """A version we do not serve: ApiVersions gets its documented answer, others are closed
        (KIP-511), as a client that has read our ranges would not send them."""
        header = error.header
        if header.api_key != API_VERSIONS:
            self._broker.tracer.log("request", logging.WARNING, f"closing {self.peer}: {error}")
            self.close(f"unsupported version: {error}")
            return
        slot = _Slot(RequestHeader(API_VERSIONS, 0, header.correlation_id, header.client_id))
        slot.message = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self._broker.advertised_versions()
        )
        self._slots.append(slot)

    # answers

    def _answered(self, slot: _Slot, message: Any) -> None:
        slot.pending = None
        slot.message = _NO_ANSWER if message is None else message
        if not self._reading and self._slots and self._slots[0] is slot:
            self._flush()
            if self._paused:
                self._limit()

    def _flush(self) -> None:
        slots = self._slots
        while slots and not self._closed:
            message = slots[0].message
            if message is _WAITING:
                return
            header = slots.popleft().header
            if message is _NO_ANSWER:
                continue
            try:
                parts = encode_response(
                    header.api_key, header.api_version, header.correlation_id, message
                )
            except SchemaError as error:  # a defect of ours, as in `_begin`
                name = f"{API[header.api_key].name} version {header.api_version}"
                self._broker.unexpected(f"the answer to {name} of {self.peer}", error)
                self.close(f"internal error in {name}")
                return
            self._transport.send(parts)

    def _limit(self) -> None:
        """Stop reading from a peer that asks more than it takes; go on when it has caught up."""
        if self._closed:
            return
        too_much = (
            len(self._slots) >= limits.MAX_IN_FLIGHT_PER_CONNECTION
            or self._transport.queued_bytes > limits.MAX_SEND_QUEUE_BYTES
        )
        if too_much and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        elif self._paused and not too_much:
            self._paused = False
            self._transport.resume_reading()
