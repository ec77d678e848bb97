"""The client's side of one connection as a state: requests sent, responses due, deadlines.

No I/O and no clock: `now_ms` is an argument, frames go out as parts and come in as views. Kafka
responds to one connection's requests in order, so a response must carry the oldest correlation id.
Any other is a ProtocolError, after which the connection is of no use. An expired request keeps its
place: every request behind it waits for the same peer. A driver should therefore close the
connection, as Kafka's clients do. Where it does not, the late response comes with the token LATE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.primitives import Buffer
from tidelog.wire.registry import API


class _Late:
    """The token of a response whose request had expired."""

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
    """Numbers of requests, each one higher than the last; 0 again after 2**31 - 1.

    Connections that share them number their requests in the order in which all were sent.
    """

    __slots__ = ("upcoming",)

    def __init__(self, first: int = 0) -> None:
        #: The next result of `take`.
        self.upcoming = first

    def take(self) -> int:
        """Return the next number, which is then used up."""
        taken = self.upcoming
        self.upcoming = (taken + 1) & 0x7FFFFFFF
        return taken


class Peer:
    """Correlation ids, requests in flight, their deadlines, and the peer's API versions."""

    __slots__ = ("_client_id", "_correlation_ids", "_in_flight", "versions")

    def __init__(
        self, client_id: str | None, correlation_ids: CorrelationIds | None = None
    ) -> None:
        """`correlation_ids` go on from an earlier connection; None begins at 0."""
        self._client_id = client_id
        self._correlation_ids = CorrelationIds() if correlation_ids is None else correlation_ids
        self._in_flight: deque[_InFlight] = deque()
        #: Versions that the peer serves, by API key; empty until `learn_versions`.
        self.versions: Mapping[int, tuple[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """Requests without a response so far, expired ones included."""
        return len(self._in_flight)

    def learn_versions(self, response: ApiVersionsResponse) -> None:
        """Take over the ranges of an ApiVersions response, also of an UNSUPPORTED_VERSION one."""
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def version(self, api_key: int, highest: int | None = None) -> int:
        """Return the highest version of an API that both sides know, at most `highest`.

        Raises KafkaError UNSUPPORTED_VERSION where there is none.
        """
        api = API[api_key]
        low, high = self.versions.get(api_key, (0, -1))
        best = min(api.max_version, high)
        if highest is not None:
            best = min(best, highest)
        if best < max(api.min_version, low):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.name}: the peer speaks versions {low} to {high}, "
                f"this side {api.min_version} to {api.max_version}",
            )
        return best

    def send(
        self, api_key: int, version: int, message: Any, now_ms: int, timeout_ms: int, token: Any
    ) -> list[Buffer]:
        """Return the parts to write.

        `token` comes back with the response, or from `expired` or `close`. A Produce with acks 0
        has no response: its token never comes back. Raises SchemaError where the message cannot be
        sent at this version.
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
        """Return token and message of a response; the token is LATE where the request had expired.

        Raises ProtocolError for bytes that are not the response to the oldest request.
        """
        if not self._in_flight:
            raise ProtocolError(f"{len(frame)} bytes of answer where nothing was asked")
        oldest = self._in_flight[0]
        got = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or got != oldest.correlation_id:
            raise ProtocolError(
                f"an answer with correlation id {got} where {oldest.correlation_id} is due"
            )
        _, message = decode_response(oldest.api_key, oldest.version, frame)
        self._in_flight.popleft()
        return oldest.token, message

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a pending request; None without one."""
        deadlines = [each.deadline_ms for each in self._in_flight if each.token is not LATE]
        return min(deadlines, default=None)

    def expired(self, now_ms: int) -> list[Any]:
        """Return the tokens of requests whose deadline has come, each once, oldest first."""
        tokens = []
        for each in self._in_flight:
            if each.deadline_ms <= now_ms and each.token is not LATE:
                tokens.append(each.token)
                each.token = LATE
        return tokens

    def close(self) -> list[Any]:
        """Forget all requests; return the tokens of those that had neither response nor expiry."""
        tokens = [each.token for each in self._in_flight if each.token is not LATE]
        self._in_flight.clear()
        return tokens
