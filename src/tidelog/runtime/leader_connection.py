"""A connection to a leader with several Produce requests in flight, and no thread that waits.

`send` never blocks: the kernel takes what it can, and `flush` goes on when the socket is writable.
Brokers respond on one connection in the order of the requests. Knows frames and correlation ids,
not what a response means.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.client.produce_queue import ProduceBatch
from tidelog.client.steps import Address
from tidelog.core.errors import ConnectionLost, ProtocolError
from tidelog.core.limits import MIB
from tidelog.runtime.broker_connection import CONNECT_TIMEOUT_MS, BrokerConnection
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse
from tidelog.wire.registry import PRODUCE

_RECEIVE_BYTES: Final = 64 * 1024
#: The kernel goes on sending while the caller encodes the next batches.
_SEND_BUFFER_BYTES: Final = 2 * MIB
#: Parts of one call of `sendmsg`.
_PARTS: Final = 64
_MAX_RESPONSE_BYTES: Final = 8 * MIB
_ANY_VERSION: Final = 0x7FFF


@dataclass(slots=True)
class SentRequest:
    """A request without its response, and the batches that it carries."""

    correlation_id: int
    version: int
    batches: list[ProduceBatch]
    deadline_ms: int
    #: Parts that the kernel has not taken yet.
    parts_left: int


class LeaderConnection:
    """One connection. Methods raise ConnectionLost and ProtocolError; then it must be closed."""

    def __init__(
        self, address: Address, client_id: str, max_in_flight: int, answered: bool
    ) -> None:
        """Connect and learn the broker's versions; raise NotSent, RequestTimeout.

        `answered`: whether requests have responses, which those with acks=0 lack.
        """
        self.address = address
        self._client_id = client_id
        self._max_in_flight = max_in_flight
        self._answered = answered
        self._connection = BrokerConnection(address, client_id, CONNECT_TIMEOUT_MS)
        self.socket = self._connection.socket.non_blocking()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.in_flight: deque[SentRequest] = deque()
        self._output: deque[tuple[memoryview, SentRequest]] = deque()
        self._input = bytearray()

    @property
    def free_slots(self) -> int:
        """How many more requests may be in flight."""
        return self._max_in_flight - len(self.in_flight)

    @property
    def has_output(self) -> bool:
        """Whether bytes wait for the socket to be writable."""
        return bool(self._output)

    @property
    def deadline_ms(self) -> int:
        """When the oldest request is overdue; there must be one."""
        return self.in_flight[0].deadline_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the oldest request should have had its response."""
        return bool(self.in_flight) and self.in_flight[0].deadline_ms <= now_ms

    def send(self, message: ProduceRequest, batches: list[ProduceBatch], deadline_ms: int) -> None:
        """Put a request in flight."""
        connection = self._connection
        connection.correlation_id += 1
        version = connection.served.choose(PRODUCE, _ANY_VERSION)
        parts = encode_request(
            PRODUCE, version, connection.correlation_id, self._client_id, message
        )
        sent = SentRequest(connection.correlation_id, version, batches, deadline_ms, len(parts))
        self.in_flight.append(sent)
        self._output += [(memoryview(part).cast("B"), sent) for part in parts]
        self.flush()

    def flush(self) -> None:
        """Send as many bytes as the kernel takes."""
        try:
            while self._output:
                views = [view for view, _ in list(self._output)[:_PARTS]]
                self._taken(self.socket.sendmsg(views))
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionLost(f"connection to {self.address} lost: {error}") from error

    def _taken(self, count: int) -> None:
        while self._output:
            view, sent = self._output[0]
            if len(view) > count:
                self._output[0] = (view[count:], sent)
                return
            count -= len(view)
            sent.parts_left -= 1
            self._output.popleft()

    def take_unanswered(self) -> list[SentRequest]:
        """Remove and return the requests with acks=0 that have left."""
        done: list[SentRequest] = []
        while not self._answered and self.in_flight and not self.in_flight[0].parts_left:
            done.append(self.in_flight.popleft())
        return done

    def receive(self) -> Iterator[tuple[SentRequest, ProduceResponse]]:
        """Yield the responses that have arrived, with their requests, in order."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionLost(f"connection to {self.address} lost: {error}") from error
        if not data:
            raise ConnectionLost(f"{self.address} closed the connection")
        self._input += data
        while len(self._input) >= 4:
            size = int.from_bytes(self._input[:4], "big", signed=True)
            if not 4 <= size <= _MAX_RESPONSE_BYTES:
                raise ProtocolError(f"{self.address} sent a frame of {size} bytes")
            if len(self._input) < 4 + size:
                return
            frame = bytes(self._input[4 : 4 + size])
            del self._input[: 4 + size]
            yield self._match(memoryview(frame))

    def _match(self, frame: memoryview) -> tuple[SentRequest, ProduceResponse]:
        if not self.in_flight:
            raise ProtocolError(f"{self.address} sent a response that was not requested")
        sent = self.in_flight[0]
        correlation_id, response = decode_response(PRODUCE, sent.version, frame)
        if correlation_id != sent.correlation_id or not isinstance(response, ProduceResponse):
            raise ProtocolError(
                f"{self.address} responded to {correlation_id}, not {sent.correlation_id}"
            )
        self.in_flight.popleft()
        return sent, response

    def close(self) -> None:
        """Close the connection; `in_flight` stays, for the caller to judge."""
        self._connection.socket.close()
