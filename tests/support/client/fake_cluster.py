"""A cluster with scripted responses: real sockets and frames, no broker behind them.

Each `FakeBroker` runs a thread per connection and keeps every request. `on(api_key, handler)` sets
the response. A handler takes the request and returns a message, `CLOSE` (the connection breaks
after the request was read), or None (no response).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from tidelog.wire.codec import RequestHeader, UnsupportedVersion, decode_request, encode_response
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.registry import API, API_VERSIONS, METADATA

CLOSE = object()
Handler = Callable[[Any], Any]


class FakeBroker:
    """One listening socket with scripted answers."""

    def __init__(self, node_id: int, port: int = 0) -> None:
        self.node_id = node_id
        self.requests: list[tuple[RequestHeader, Any]] = []
        self.served = {key: (api.min_version, api.max_version) for key, api in API.items()}
        #: Added to the correlation ids of answers: a broker that confuses its requests.
        self.correlation_skew = 0
        self._handlers: dict[int, Handler] = {API_VERSIONS: lambda _: self._api_versions()}
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def on(self, api_key: int, handler: Handler) -> None:
        self._handlers[api_key] = handler

    def handler(self, api_key: int) -> Handler:
        """What answers an API now."""
        return self._handlers[api_key]

    def script(self, api_key: int, *answers: Any) -> None:
        """These answers in order, the last one for ever; callables are called with the request."""
        queue = list(answers)

        def handler(request: Any) -> Any:
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
            return answer(request) if callable(answer) else answer

        self.on(api_key, handler)

    def asked(self, api_key: int) -> list[Any]:
        """The requests of one API so far."""
        return [message for header, message in self.requests if header.api_key == api_key]

    def versions_asked(self, api_key: int) -> list[int]:
        return [h.api_version for h, _ in self.requests if h.api_key == api_key]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def drop_connections(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        self._thread.join(5)

    def _api_versions(self) -> ApiVersionsResponse:
        keys = [ApiVersion(key, low, high) for key, (low, high) in self.served.items()]
        return ApiVersionsResponse(api_keys=keys)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while True:
                try:
                    head = stream.read(4)
                    if len(head) < 4:
                        return
                    frame = stream.read(int.from_bytes(head, "big"))
                    if not self._answer(connection, memoryview(frame)):
                        return
                except OSError:
                    return

    def _answer(self, connection: socket.socket, frame: memoryview) -> bool:
        try:
            header, message = decode_request(frame)
        except UnsupportedVersion as error:
            header, message = error.header, None
        low, high = self.served.get(header.api_key, (0, 0))
        if header.api_key == API_VERSIONS and not low <= header.api_version <= high:
            answer = ApiVersionsResponse(35, [ApiVersion(API_VERSIONS, low, high)])
            parts = encode_response(API_VERSIONS, 0, header.correlation_id, answer)
            connection.sendall(b"".join(parts))
            return True
        self.requests.append((header, message))
        handler = self._handlers.get(header.api_key)
        assert handler is not None, f"no answer scripted for API key {header.api_key}"
        answer = handler(message)
        if answer is CLOSE:
            return False
        if answer is not None:
            correlation_id = header.correlation_id + self.correlation_skew
            parts = encode_response(header.api_key, header.api_version, correlation_id, answer)
            connection.sendall(b"".join(parts))
        return True


class FakeCluster:
    """Brokers with one shared metadata answer, changed at will by a test."""

    def __init__(self, count: int) -> None:
        self.brokers = [FakeBroker(node_id) for node_id in range(1, count + 1)]
        self.controller_id = 1
        self.topics: dict[str, list[int]] = {}
        self.topic_errors: dict[str, int] = {}
        self.leader_epochs: dict[str, int] = {}
        self.internal: set[str] = set()
        #: How often each topic was deleted and created again.
        self.incarnations: dict[str, int] = {}
        for broker in self.brokers:
            broker.on(METADATA, self._metadata)

    def __getitem__(self, node_id: int) -> FakeBroker:
        return self.brokers[node_id - 1]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def topic_id(self, name: str) -> bytes:
        last = bytes([1 + self.incarnations.get(name, 0)])
        return name.encode().ljust(16, last)[:15] + last

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            names = list(self.topics)
        else:
            names = [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(b.node_id, "127.0.0.1", b.port) for b in self.brokers],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=self.topic_errors.get(name, 3), name=name)
        everybody = [broker.node_id for broker in self.brokers]
        epoch = self.leader_epochs.get(name, 0)
        partitions = [
            MetadataResponsePartition(0, number, leader, epoch, everybody, everybody, [])
            for number, leader in enumerate(self.topics[name])
        ]
        return MetadataResponseTopic(
            error_code=0,
            name=name,
            topic_id=self.topic_id(name),
            is_internal=name in self.internal,
            partitions=partitions,
        )
