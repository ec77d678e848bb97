"""The client's state of one connection: sent requests, pending responses, deadlines.

This module does no I/O and reads no clock: `now_ms` is an argument, and the caller sends and
receives frames. Kafka responds to one connection's requests in order, so a response must carry the
oldest correlation id. A response with another correlation id is a ProtocolError, after which the
connection must be closed. An expired request keeps its place among the pending requests, because
its response may still come. After an expiry, a caller should close the connection, as Kafka's
clients do. If the connection stays open, a late response gets the token LATE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.primitives import Buffer
from tidelog.wire.registry import API


class _Late:
    """The token in place of a request's own token when a response comes after the request has
    expired.
    """

    def __repr__(self) -> str:
        return "LATE"


LATE: Final = _Late()


@dataclass(slots=True)
class _InFlight:
    correlation_id: int
    api_key: int
    version: int
    deadline_ms: int
    token: Any


class CorrelationIds:
    """Consecutive correlation ids, which begin again at 0 after 2**31 - 1.

    If connections share an instance, their requests are numbered in the order of sending, across
    all these connections.
    """

    __slots__ = ("upcoming",)

    def __init__(self, first: int = 0) -> None:
        #: The correlation id that `take` returns next.
        self.upcoming = first

    def take(self) -> int:
        """Return the next correlation id, and advance to the following id."""
        taken = self.upcoming
        self.upcoming = (taken + 1) & 0x7FFFFFFF
        return taken


class Peer:
    """One connection's requests in flight, with correlation ids and deadlines, and API versions."""

    __slots__ = ("_client_id", "_correlation_ids", "_in_flight", "versions")

    def __init__(
        self, client_id: str | None, correlation_ids: CorrelationIds | None = None
    ) -> None:
        """`correlation_ids` continues an earlier connection's numbers; None begins at 0."""
        self._client_id = client_id
        self._correlation_ids = CorrelationIds() if correlation_ids is None else correlation_ids
        self._in_flight: deque[_InFlight] = deque()
        #: Versions that the peer supports, by API key; empty until `learn_versions`.
        self.versions: Mapping[int, tuple[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """Number of requests without a response, including expired requests."""
        return len(self._in_flight)

    def learn_versions(self, response: ApiVersionsResponse) -> None:
        """Note the version ranges of an ApiVersions response, even with UNSUPPORTED_VERSION."""
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def version(self, api_key: int, highest: int | None = None) -> int:
        """Return the highest version of an API that both sides support, at most `highest`.

        Raises KafkaError UNSUPPORTED_VERSION if both sides support no common version.
        """
        api = API[api_key]
        served = self.versions.get(api_key)
        if served is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the peer does not serve {api.name}")
        ours = api.max_version if highest is None else min(api.max_version, highest)
        best = min(ours, served[1])
        if best < max(api.min_version, served[0]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the peer serves {api.name} {served[0]} to {served[1]}; "
                f"this side needs {api.min_version} to {ours}",
            )
        return best

    def send(
        self, api_key: int, version: int, message: Any, now_ms: int, timeout_ms: int, token: Any
    ) -> list[Buffer]:
        """Register a request and return the parts of its frame, which the caller sends.

        `token` identifies the request for the caller: `received`, `expired` or `close` returns it.
        A Produce with acks 0 has no response, so no method returns its token. Raises SchemaError if
        the version cannot carry the message.
        """
        correlation_id = self._correlation_ids.upcoming
        parts = encode_request(api_key, version, correlation_id, self._client_id, message)
        self._correlation_ids.take()
        if not (isinstance(message, ProduceRequest) and message.acks == 0):
            self._in_flight.append(
                _InFlight(correlation_id, api_key, version, now_ms + timeout_ms, token)
            )
        return parts

    def received(self, frame: memoryview) -> tuple[Any, Any]:
        """Return token and message of a response; the token is LATE if the request had expired.

        Raises ProtocolError for bytes that are not the response to the oldest request.
        """
        if not self._in_flight:
            raise ProtocolError(f"a response of {len(frame)} bytes to no request")
        oldest = self._in_flight[0]
        got = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or got != oldest.correlation_id:
            raise ProtocolError(
                f"a response with correlation id {got} where {oldest.correlation_id} is due"
            )
        _, message = decode_response(oldest.api_key, oldest.version, frame)
        self._in_flight.popleft()
        return oldest.token, message

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a pending request; None without a pending request."""
        deadlines = [each.deadline_ms for each in self._in_flight if each.token is not LATE]
        return min(deadlines, default=None)

    def expired(self, now_ms: int) -> list[Any]:
        """Return the tokens of newly expired requests, oldest first."""
        tokens = []
        for each in self._in_flight:
            if each.deadline_ms <= now_ms and each.token is not LATE:
                tokens.append(each.token)
                each.token = LATE
        return tokens

    def close(self) -> list[Any]:
        """Forget all requests; return the tokens of pending requests that have not expired."""
        tokens = [each.token for each in self._in_flight if each.token is not LATE]
        self._in_flight.clear()
        return tokens
