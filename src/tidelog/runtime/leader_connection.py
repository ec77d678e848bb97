"""A connection to a leader with several Produce requests in flight, which never blocks.

`send` gives the kernel as many bytes as it takes; `flush` continues when the socket is writable. A
broker responds on one connection in the order of the requests. The connection knows the batches of
each request, but does not interpret responses.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from typing import Final

from tidelog.client.produce_queue import ProduceBatch
from tidelog.client.steps import Address
from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.runtime.broker_connection import CONNECT_TIMEOUT_MS, BrokerConnection
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse
from tidelog.wire.registry import PRODUCE

#: Size of the kernel's send buffer, from which the kernel sends while the caller encodes batches.
_SEND_BUFFER_BYTES: Final = 2 * MIB


@dataclass(slots=True)
class SentRequest:
    """A sent request that waits for its response, and the request's batches."""

    batches: list[ProduceBatch]
    deadline_ms: int
    #: The value of the connection's `sent_total` when the kernel has taken the whole request.
    end_bytes: int = 0


class LeaderConnection:
    """One connection; it must be closed after ConnectionLost or ProtocolError."""

    def __init__(
        self, address: Address, client_id: str, max_in_flight: int, answered: bool
    ) -> None:
        """Connect and learn the broker's versions; raise NotSent, KafkaError, ProtocolError.

        `answered` is False with acks=0, because the requests then get no responses.
        """
        self.address = address
        self._max_in_flight = max_in_flight
        self._answered = answered
        self._connection = BrokerConnection(address, client_id, CONNECT_TIMEOUT_MS)
        self.socket = self._connection.socket
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.in_flight: deque[SentRequest] = deque()

    @property
    def free_slots(self) -> int:
        """Number of further requests that may be put in flight."""
        return self._max_in_flight - len(self.in_flight)

    @property
    def has_output(self) -> bool:
        """Whether bytes wait for the socket to be writable."""
        return self._connection.sent_total < self._connection.queued_total

    @property
    def deadline_ms(self) -> int:
        """The deadline of the oldest request in flight; there must be a request in flight."""
        return self.in_flight[0].deadline_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the oldest request has passed its deadline."""
        return bool(self.in_flight) and self.in_flight[0].deadline_ms <= now_ms

    def send(self, message: ProduceRequest, batches: list[ProduceBatch], deadline_ms: int) -> None:
        """Put a request in flight."""
        sent = SentRequest(batches, deadline_ms)
        version = self._connection.version(PRODUCE)
        sent.end_bytes = self._connection.send(PRODUCE, version, message, deadline_ms, sent)
        self.in_flight.append(sent)
        self._connection.flush()

    def flush(self) -> None:
        """Send as many bytes as the kernel takes."""
        self._connection.flush()

    def take_unanswered(self) -> list[SentRequest]:
        """Remove and return the requests with acks=0 that have been sent."""
        done: list[SentRequest] = []
        sent_total = self._connection.sent_total
        while not self._answered and self.in_flight and self.in_flight[0].end_bytes <= sent_total:
            done.append(self.in_flight.popleft())
        return done

    def receive(self) -> Iterator[tuple[SentRequest, ProduceResponse]]:
        """Yield the responses that have arrived, with their requests, in order."""
        for sent, response in self._connection.receive():
            self.in_flight.popleft()
            yield sent, response

    def close(self) -> None:
        """Close the connection; unanswered requests stay in `in_flight` for the caller."""
        self._connection.close()
