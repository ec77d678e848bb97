"""A client node: its connections to brokers, their API versions, and a driver for `tidelog.client`.

A connection negotiates versions first and pipelines requests after that. As in Kafka's clients, a
connection closes if a request gets no response in time. `run` executes the operations of
`tidelog.client` (metadata, topics, producer ids) on simulated connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tidelog.client.cluster import BrokerNode, TopicMetadata
from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter
from tidelog.client.steps import NO_ANSWER, Address, Call, NotSent, Operation, Response
from tidelog.core import limits
from tidelog.core.errors import (
    ConnectionLost,
    ErrorCode,
    ProtocolError,
    RequestTimeout,
    TidelogError,
)
from tidelog.core.ports import Ports, TimerHandle, Transport
from tidelog.core.tasks import Tasks, shield
from tidelog.core.types import TopicId, TopicPartition
from tidelog.history import operations
from tidelog.sim.client_history import ClientHistory
from tidelog.sim.node import SimNode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.peer import LATE, Peer
from tidelog.wire.registry import API_VERSIONS

T = TypeVar("T")

CONNECT_TIMEOUT_MS = 1_500
_HANDSHAKE_TIMEOUT_MS = 1_500
#: Version of the ApiVersions request that clients send; every broker serves it.
_API_VERSIONS_VERSION = 3


class ClientConnection:
    """One connection to a broker; the `core.ports.FrameHandler` of its transport."""

    def __init__(self, ports: Ports, client_id: str, transport: Transport) -> None:
        self._ports = ports
        self._transport = transport
        self._peer = Peer(client_id)
        self._timer: TimerHandle | None = None
        self.is_open = True

    def version(self, api_key: int, highest: int | None = None) -> int:
        """Return the highest version of an API that client and broker support, at most `highest`;
        raise KafkaError if there is none.
        """
        return self._peer.version(api_key, highest)

    async def handshake(self) -> None:
        """Learn the broker's API versions."""
        request = ApiVersionsRequest(
            client_software_name="tidelog-sim", client_software_version="1"
        )
        answer = await self.call(
            API_VERSIONS, _API_VERSIONS_VERSION, request, _HANDSHAKE_TIMEOUT_MS
        )
        if not isinstance(answer, ApiVersionsResponse) or answer.error_code != ErrorCode.NONE:
            raise ProtocolError(f"no API versions from {self._transport.peer}: {answer}")
        self._peer.learn_versions(answer)

    def call(
        self, api_key: int, version: int, message: Any, timeout_ms: int
    ) -> asyncio.Future[Any]:
        """Send a request; return a future of its response.

        The future's error may be ConnectionLost, RequestTimeout, ProtocolError or NotSent.
        """
        future: asyncio.Future[Any] = self._ports.loop.create_future()
        if not self.is_open:
            future.set_exception(NotSent(f"{self._transport.peer}: the connection is closed"))
            return future
        now_ms = self._ports.clock.monotonic_ms()
        self._transport.send(self._peer.send(api_key, version, message, now_ms, timeout_ms, future))
        self._arm()
        return future

    def post(self, api_key: int, version: int, message: Any) -> None:
        """Send a request without a response (Produce with acks 0)."""
        if self.is_open:
            now_ms = self._ports.clock.monotonic_ms()
            self._transport.send(self._peer.send(api_key, version, message, now_ms, 0, None))

    def close(self, reason: str) -> None:
        """Close the connection; waiting requests fail with ConnectionLost."""
        self._transport.close(reason)

    def frames_received(self, frames: list[memoryview]) -> None:
        """Complete the requests to which responses have arrived."""
        for frame in frames:
            try:
                token, message = self._peer.received(frame)
            except ProtocolError as error:
                self._transport.close(str(error))
                return
            if token is not LATE and not token.done():
                token.set_result(message)

    def connection_lost(self, reason: str) -> None:
        """Fail all waiting requests with ConnectionLost."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        for future in self._peer.close():
            _fail(future, ConnectionLost(f"{self._transport.peer}: {reason}"))

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Do nothing, because clients send even if earlier bytes are still queued."""

    def _arm(self) -> None:
        if self._timer is None:
            deadline_ms = self._peer.next_deadline_ms()
            if deadline_ms is not None:
                delay_ms = max(0, deadline_ms - self._ports.clock.monotonic_ms())
                self._timer = self._ports.clock.call_later(delay_ms, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        expired = self._peer.expired(self._ports.clock.monotonic_ms())
        for future in expired:
            _fail(future, RequestTimeout(f"{self._transport.peer}: no answer in time"))
        if expired:
            self._transport.close("a request timed out")
        else:
            self._arm()


class ClientNode:
    """One client process."""

    def __init__(
        self, node: SimNode, history: ClientHistory, bootstrap: Sequence[Address], timeout_ms: int
    ) -> None:
        self.node_id = node.node_id
        self.bootstrap = tuple(bootstrap)
        self.ports = node.start()
        self.history = history
        #: (task name, error) of tasks that ended with an error; each is a defect of the workload
        #: itself.
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(self.ports.loop, self.ports.clock, self._failed)
        self.router = ClusterRouter(bootstrap, timeout_ms, self.ports.clock.monotonic_ms)
        self._connections: dict[Address, ClientConnection] = {}
        self._connecting: dict[Address, asyncio.Task[ClientConnection]] = {}

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.ports.clock.monotonic_ns()

    def records_may_go(
        self, partition: TopicPartition, topic_id: TopicId, before: int, process: str = "retention"
    ) -> None:
        """Record that `process` (by default retention) may remove the records below offset
        `before`.
        """
        name, number = partition
        self.history.record_deletion_begins(topic_id, number, before)
        where = {f"{name}@{topic_id.hex()}-{number}": before}
        self.history.operations.append(
            operations.Operation(process, "log_start", self.now_ns, self.now_ns, partitions=where)
        )

    async def leader_of(self, partition: TopicPartition) -> tuple[BrokerNode, TopicMetadata]:
        """Return the leader of a partition, and the metadata of its topic."""
        router = self.router

        def attempt(patience: Patience) -> Operation[tuple[BrokerNode, TopicMetadata]]:
            leader = yield from router.leader(partition, patience)
            return leader, (yield from router.topic(partition.topic, patience))

        return await self.run(router.repeat(f"finding the leader of {partition}", attempt))

    async def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic's metadata from a broker; None if there is no response or no such
        topic.
        """
        try:
            return (await self.run(self.router.metadata([name]))).topics.get(name)
        except TidelogError:
            return None

    def _failed(self, name: str, error: BaseException) -> None:
        self.failures.append((name, error))
        raise error

    async def connection(self, address: Address) -> ClientConnection:
        """Return an open connection to a broker; raise NotSent if it cannot be established."""
        found = self._connections.get(address)
        if found is not None and found.is_open:
            return found
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.Task(
                self._connect(address), loop=self.ports.loop, name=f"connect {address}"
            )
            self._connecting[address] = task
            task.add_done_callback(lambda _: self._connecting.pop(address, None))
        return await shield(task)

    async def _connect(self, address: Address) -> ClientConnection:
        opened: list[ClientConnection] = []

        def open_handler(transport: Transport) -> ClientConnection:
            opened.append(ClientConnection(self.ports, f"client-{self.node_id}", transport))
            return opened[0]

        try:
            await self.ports.network.connect(
                address.host,
                address.port,
                open_handler,
                CONNECT_TIMEOUT_MS,
                limits.MAX_RESPONSE_BYTES,
            )
            await opened[0].handshake()
        except (ConnectionLost, RequestTimeout) as error:
            raise NotSent(str(error)) from error
        self._connections[address] = opened[0]
        return opened[0]

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation of `tidelog.client`; return its result or raise its error."""
        advance: Callable[[], Any] = partial(next, operation)
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                if isinstance(step, Call):
                    advance = partial(operation.send, await self._answer(step))
                else:
                    await self.tasks.sleep(step.delay_ms)
                    advance = partial(operation.send, NO_ANSWER)
            except TidelogError as failed:
                advance = partial(operation.throw, failed)

    async def _answer(self, call: Call) -> Response:
        connection = await self.connection(call.address)
        version = connection.version(call.api_key, call.max_version)
        message = call.build(version)
        if not call.answered:
            connection.post(call.api_key, version, message)
            return NO_ANSWER
        return Response(
            version, await connection.call(call.api_key, version, message, call.timeout_ms)
        )


def _fail(future: asyncio.Future[Any], error: TidelogError) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
