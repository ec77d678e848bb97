"""A client's connection to one broker: a non-blocking socket, its frames, its requests in flight.

The first exchange on every connection is ApiVersions (KIP-511). The blocking client calls
`exchange`, which sends one request and waits for its response. The producer has several requests in
flight on several connections; its calls `send`, `flush` and `receive` never wait. After any failure
the caller must close the connection, so that no late response is taken for the response to a later
request.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import tidelog
from tidelog.client.steps import NO_ANSWER, Address, Call, NotSent, Response
from tidelog.client.versions import ASKED_VERSIONS, api_versions_request, error_code
from tidelog.core.errors import (
    ConnectionLost,
    ErrorCode,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    TidelogError,
)
from tidelog.core.limits import MAX_IOVECS, MAX_RESPONSE_BYTES, RECEIVE_POOL_BYTES
from tidelog.wire.frames import FrameError, FrameReader
from tidelog.wire.peer import Peer
from tidelog.wire.registry import API_VERSIONS, FETCH

#: Timeout of a connection attempt, after which the client tries the next address.
CONNECT_TIMEOUT_MS: Final = 5_000


class BrokerConnection:
    """A connection with the versions that its broker serves."""

    __slots__ = ("_output", "_peer", "_reader", "address", "queued_total", "sent_total", "socket")

    def __init__(self, address: Address, client_id: str, timeout_ms: int) -> None:
        """Connect and learn the broker's versions.

        Raises NotSent if the broker does not accept or respond, KafkaError if it rejects the
        request, and ProtocolError if the peer is not a broker.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        self.address = address
        self.socket = _connected(address, min(timeout_ms, CONNECT_TIMEOUT_MS))
        self._peer = Peer(client_id)
        self._reader = FrameReader(MAX_RESPONSE_BYTES, believed_bytes=RECEIVE_POOL_BYTES)
        self._output: deque[memoryview] = deque()
        #: Bytes of all requests so far, and the part of them that the kernel has accepted.
        self.queued_total = self.sent_total = 0
        try:
            self._learn_versions(deadline)
        except (ConnectionLost, RequestTimeout) as error:
            self.close()
            raise NotSent(str(error)) from error
        except TidelogError:
            self.close()
            raise

    def _learn_versions(self, deadline: float) -> None:
        for version in ASKED_VERSIONS:
            request = api_versions_request(version, tidelog.__version__)
            self.send(API_VERSIONS, version, request)
            response = self._response(deadline)
            if response.error_code == ErrorCode.NONE:
                self._peer.learn_versions(response)
                return
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                raise KafkaError(
                    error_code(response.error_code),
                    f"{self.address} rejected the ApiVersions request",
                )
        raise ProtocolError(f"{self.address} serves no version of ApiVersions known here")

    def version(self, api_key: int, highest: int | None = None) -> int:
        """Return the highest version of an API that both sides know, at most `highest`.

        Raises KafkaError UNSUPPORTED_VERSION if no version is in common.
        """
        try:
            return self._peer.version(api_key, highest)
        except KafkaError as error:
            raise KafkaError(error.code, f"{self.address}: {error.message}") from error

    # -- one request at a time --------------------------------------------------------------------

    def exchange(self, call: Call) -> Response:
        """Send one request and wait for its response.

        Raises KafkaError without sending if no API version is in common. Raises ConnectionLost,
        RequestTimeout and ProtocolError.
        """
        deadline = time.monotonic() + call.timeout_ms / 1000
        version = self.version(call.api_key, call.max_version)
        self.send(call.api_key, version, call.build(version))
        if call.answered:
            holds_frame = call.api_key == FETCH
            return Response(version, self._response(deadline, holds_frame=holds_frame))
        self._send_all(deadline)
        return NO_ANSWER

    def _send_all(self, deadline: float) -> None:
        while self.flush():
            if not self._wait(select.POLLOUT, deadline):
                raise RequestTimeout(f"{self.address} does not read its requests")

    def _response(self, deadline: float, *, holds_frame: bool = False) -> Any:
        """Send the queued request and return its response, which the caller may keep.

        With `holds_frame`, the response refers to the bytes of its frame, so their buffer is not
        reused.
        """
        self._send_all(deadline)
        while self._wait(select.POLLIN, deadline):
            responses = list(self.receive())
            if responses:
                if holds_frame:
                    self._reader.keep()
                return responses[0][1]
        raise RequestTimeout(f"no answer from {self.address} in time")

    def _wait(self, event: int, deadline: float) -> bool:
        """Wait for the socket; return False at the deadline."""
        poll = select.poll()
        poll.register(self.socket, event)
        left_ms = (deadline - time.monotonic()) * 1000
        return left_ms > 0 and bool(poll.poll(left_ms + 1))

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and no unrequested byte has arrived."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._reader.pending_bytes
        except OSError:
            return False
        return False

    # -- several requests in flight ---------------------------------------------------------------

    def send(
        self, api_key: int, version: int, message: Any, deadline_ms: int = 0, token: Any = None
    ) -> int:
        """Queue a request; return the value of `sent_total` once the kernel has all of the request.

        `receive` returns `token` with the response; a Produce with acks=0 has no response.
        """
        parts = self._peer.send(api_key, version, message, deadline_ms, 0, token)
        for part in parts:
            view = memoryview(part).cast("B")
            self._output.append(view)
            self.queued_total += len(view)
        return self.queued_total

    def flush(self) -> bool:
        """Send what the kernel takes; return whether bytes remain. Raises ConnectionLost."""
        output = self._output
        try:
            while output:
                parts = [output[index] for index in range(min(len(output), MAX_IOVECS))]
                sent = self.socket.sendmsg(parts)
                self.sent_total += sent
                while output and len(output[0]) <= sent:
                    sent -= len(output.popleft())
                if sent:
                    output[0] = output[0][sent:]
        except (BlockingIOError, InterruptedError):
            return True
        except OSError as error:
            raise ConnectionLost(f"connection to {self.address} lost: {error}") from error
        return False

    def receive(self) -> Iterator[tuple[Any, Any]]:
        """Yield the caller's token and the message of each response that has arrived, in order.

        Memory views in a message are valid only until the next call of `receive`. Raises
        ConnectionLost, ProtocolError.
        """
        buffer = self._reader.get_buffer()
        try:
            received = self.socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise ConnectionLost(f"connection to {self.address} lost: {error}") from error
        if not received:
            raise ConnectionLost(f"{self.address} closed the connection")
        failure: FrameError | None = None
        try:
            frames = self._reader.received(received)
        except FrameError as error:
            frames, failure = error.frames, error
        for frame in frames:
            try:
                response = self._peer.received(frame)
            except ProtocolError as error:
                raise ProtocolError(f"{self.address} sent {error}") from error
            yield response
        if failure is not None:
            raise ProtocolError(
                f"{self.address} sent {failure}: is it a Kafka broker?"
            ) from failure

    def close(self) -> None:
        """Close the connection; safe to repeat."""
        with contextlib.suppress(OSError):
            self.socket.close()


def _connected(address: Address, timeout_ms: int) -> socket.socket:
    """Return a connected, non-blocking socket; raise NotSent if that fails or takes too long."""
    try:
        connected = socket.create_connection(address, timeout=max(timeout_ms, 1) / 1000)
    except TimeoutError as error:
        raise NotSent(f"{address} did not accept a connection in {timeout_ms} ms") from error
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        raise NotSent(f"cannot connect to {address}: {error}") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(False)
    return connected
