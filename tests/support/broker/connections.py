"""As much of a broker and of a transport as one connection touches, and frames for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tests.support.ports import FakeTracer, ManualClock

from tidelog.broker.apis import error_response
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.request_meters import RequestMeters
from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import QUEUED_RESPONSE_BYTES
from tidelog.core.metrics import Metrics
from tidelog.core.ports import Buffer
from tidelog.core.response_budget import ResponseBudget
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.registry import DESCRIBE_CLUSTER


class FakeTransport:
    def __init__(self) -> None:
        self.peer = "client:1"
        self.queued_bytes = 0
        self.aborted: str | None = None
        self.sent: list[bytes] = []
        self.closed: str | None = None
        self.reading = True
        self.kept = 0

    def send(self, parts: Sequence[Buffer]) -> None:
        self.sent.append(b"".join(bytes(part) for part in parts))

    def has_ended(self) -> bool:
        return self.closed is not None

    def keep_frames(self) -> None:
        self.kept += 1

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """The room of a frame is free again: here is enough of it."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    @property
    def held_bytes(self) -> int:
        return self.queued_bytes

    def close(self, reason: str) -> None:
        self.closed = reason

    def abort(self, reason: str) -> None:
        self.aborted = reason


class FakeBroker:
    """As much of a broker as a connection touches: its parts, and their dispatcher."""

    def __init__(self, handle: Callable[[Request[Any]], Any]) -> None:
        self.clock = ManualClock()
        self.tracer = FakeTracer()
        self.handle = handle
        #: The APIs that `handle` serves.
        self.served: tuple[int, ...] = (DESCRIBE_CLUSTER,)
        self.idle = SimpleNamespace(tick=0)
        self.meters = RequestMeters(Metrics(), self.clock)
        self.lines: list[str] = []
        self.responses = ResponseBudget(QUEUED_RESPONSE_BYTES, self.clock, self.lines.append)
        self.admission = SimpleNamespace(is_open=True, sends_answers=True, is_serving=True)
        self.dispatcher = self
        self.fence = SimpleNamespace(late_from_ms=1 << 62, is_in_doubt=False)
        self.written = True
        self.submitted = 0
        self.defects: list[str] = []
        self.gone: list[Connection] = []

    def handler(self, api_key: int, version: int) -> Any:
        return self.handle if api_key in self.served else None

    def advertised_versions(self, *, include_own: bool) -> list[ApiVersion]:
        return [ApiVersion(DESCRIBE_CLUSTER, 0, 1)]

    def submit_appends(self) -> bool:
        self.submitted += 1
        return self.written

    def on_closed(self, connection: Connection) -> None:
        self.gone.append(connection)

    def error_response(self, request: Request[Any], error: ErrorCode) -> Any:
        return error_response(request, error)

    def unexpected(self, where: str, error: BaseException) -> None:
        self.defects.append(where)

    def request_failed(self, request: Request[Any], error: Exception) -> Any:
        self.defects.append(repr(error))
        return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def frame(correlation_id: int, api_key: int = DESCRIBE_CLUSTER, version: int = 0) -> memoryview:
    message: Any = (
        DescribeClusterRequest() if api_key == DESCRIBE_CLUSTER else ApiVersionsRequest("a", "1")
    )
    parts = encode_request(api_key, version, correlation_id, "tester", message)
    return memoryview(b"".join(bytes(part) for part in parts))[4:]


def answers(transport: FakeTransport) -> list[int]:
    return [
        decode_response(DESCRIBE_CLUSTER, 0, memoryview(data)[4:])[0] for data in transport.sent
    ]
