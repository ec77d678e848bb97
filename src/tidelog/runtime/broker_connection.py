"""A blocking connection to one broker, with the API versions that the broker serves.

The first exchange on every connection is ApiVersions (KIP-511). One request at a time: the producer
of `pipelined_producer` takes the socket over to have several in flight.
"""

from __future__ import annotations

import time
from typing import Final

import tidelog
from tidelog.client.steps import NO_ANSWER, Address, Call, NotSent, Response
from tidelog.client.versions import (
    ASKED_VERSIONS,
    ServedVersions,
    api_versions_request,
    decode_api_versions,
)
from tidelog.core.errors import ConnectionLost, ProtocolError, RequestTimeout, TidelogError
from tidelog.runtime.sockets import FrameSocket
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.registry import API_VERSIONS

#: Timeout of a connection attempt, after which the client tries the next address.
CONNECT_TIMEOUT_MS: Final = 5_000


class BrokerConnection:
    """A connection with the versions that its broker serves."""

    __slots__ = ("correlation_id", "served", "socket")

    def __init__(self, address: Address, client_id: str, timeout_ms: int) -> None:
        deadline = time.monotonic() + timeout_ms / 1000
        self.correlation_id = 0
        self.socket = FrameSocket(address, min(timeout_ms, CONNECT_TIMEOUT_MS))
        try:
            self.served = ServedVersions.from_response(
                address, self._ask_versions(client_id, deadline)
            )
        except (ConnectionLost, RequestTimeout) as error:
            self.socket.close()
            raise NotSent(str(error)) from error
        except TidelogError:
            self.socket.close()
            raise

    def _ask_versions(self, client_id: str, deadline: float) -> ApiVersionsResponse:
        for version in ASKED_VERSIONS:
            request = api_versions_request(version, tidelog.__version__)
            self.correlation_id += 1
            expected = self.correlation_id
            self.socket.send(
                encode_request(API_VERSIONS, version, expected, client_id, request), deadline
            )
            correlation_id, response = decode_api_versions(version, self.socket.receive(deadline))
            if correlation_id != expected:
                raise ProtocolError(
                    f"{self.socket.address} answered {correlation_id}, not {expected}"
                )
            if response is not None:
                return response
        raise ProtocolError(f"{self.socket.address} serves no version of ApiVersions known here")

    def exchange(self, call: Call, client_id: str) -> Response:
        """Send one request and wait for its response."""
        deadline = time.monotonic() + call.timeout_ms / 1000
        version = self.served.choose(call.api_key, call.max_version)
        message = call.build(version)
        self.correlation_id += 1
        expected = self.correlation_id
        frame = encode_request(call.api_key, version, expected, client_id, message)
        self.socket.send(frame, deadline)
        if not call.answered:
            return NO_ANSWER
        answer = self.socket.receive(deadline)
        correlation_id, response = decode_response(call.api_key, version, answer)
        if correlation_id != expected:
            raise ProtocolError(f"{call.address} answered {correlation_id}, not {expected}")
        return Response(version, response)
