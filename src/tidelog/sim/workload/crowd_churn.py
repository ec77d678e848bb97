"""Crowds: clients that take all connections, do not read responses, or send text that is not UTF-8.

Despite a crowd, the brokers must serve each other and their steady clients: no follower leaves an
ISR because of a crowd (L1). Brokers limit unread responses (L2), and respond even to text that is
not UTF-8.
"""

from __future__ import annotations

import random
from typing import Final

from tidelog.core import limits
from tidelog.core.errors import ConnectionLost
from tidelog.core.ports import Transport
from tidelog.sim.checkers.connection_checker import UnreadChecker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload
from tidelog.wire import registry as apis
from tidelog.wire.codec import encode_request
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

#: Number of connections that a crowd opens above `max.connections`.
_ABOVE: Final = 10
#: Maximum number of connections of a crowd, not counting the additional `_ABOVE`.
_MOST: Final = 90
#: Number of clients that do not read responses; `_FETCHES` is the number of fetches that each sends
#: at once.
_READERS: Final = 12
_FETCHES: Final = 100
#: Share of the crowds that break all connections to their broker.
_BREAKS: Final = 0.5
_CONNECT_TIMEOUT_MS: Final = 1_500
_LOOK_MS: Final = 20
#: A response must arrive within this number of checks, unless the connection is lost.
_ANSWER_LOOKS: Final = 150
#: At least one of this number of successive requests must get a response. The others may get none,
#: because connections may break.
_ODD_REQUESTS: Final = 10
_METADATA_VERSION: Final = 1
_FETCH_VERSION: Final = 11
_NAME: Final = b"NAME"
_VERSIONS: Final = ApiVersionsRequest()
#: Share of the crowds in which a client begins like a follower in Kafka. `_OF_FOLLOWERS` has its
#: possible first requests, which have a broker's replica id and request no data.
_FOLLOWS: Final = 0.3
_REPLICA: Final = 1
_OF_FOLLOWERS: Final = (
    (apis.LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=_REPLICA)),
    (apis.OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest(replica_id=_REPLICA)),
)


class CrowdConnection:
    """One connection of a crowd; the FrameHandler of its transport."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.frames = 0
        self.is_open = True

    def frames_received(self, frames: list[memoryview]) -> None:
        """Count responses."""
        self.frames += len(frames)

    def connection_lost(self, reason: str) -> None:
        """Note the end of the connection."""
        self.is_open = False

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Do nothing, because a crowd sends even if earlier bytes are still queued."""


@churn_of_profiles
class Crowds(ChurnKind):
    """Crowds of connections to random brokers, one crowd after the other."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        simulator = work.cluster.simulator
        config = work.cluster.settings.of(1)
        self._flood = min(config.max_connections, _MOST) + _ABOVE
        self._unread = UnreadChecker(
            simulator.network, config.queued_max_response_bytes, simulator.violate
        )

    async def begin(self) -> None:
        self.client.tasks.spawn("looks at what is unread", self._look())

    async def act(self) -> None:
        kind = self.draw.choice((self._take_all, self._read_nothing, self._no_utf_8))
        try:
            await kind()
        except ConnectionLost as error:
            self.failed(kind.__name__, error)
        await self.pause(20, 400)

    async def _look(self) -> None:
        while True:
            if self.work.cluster.connections is not None:
                self.work.cluster.connections.look()
            self._unread.look(
                (broker.node_id, broker.life)
                for broker in self.work.cluster.brokers.values()
                if broker.life is not None
            )
            await self.client.tasks.sleep(_LOOK_MS)

    async def _connect(self) -> CrowdConnection:
        address = self.draw.choice(self.client.bootstrap)
        (connection,) = await self._connect_to(address.host, address.port, 1)
        return connection

    async def _connect_to(self, host: str, port: int, count: int) -> list[CrowdConnection]:
        """Open connections at the same time; return the established connections, at least one."""
        opened: list[CrowdConnection] = []

        def handler(transport: Transport) -> CrowdConnection:
            opened.append(CrowdConnection(transport))
            return opened[-1]

        connect = self.client.ports.network.connect
        attempts = [
            connect(host, port, handler, _CONNECT_TIMEOUT_MS, limits.MAX_RESPONSE_BYTES)
            for _ in range(count)
        ]
        failure: ConnectionLost | None = None
        for attempt in attempts:
            try:
                await attempt
            except ConnectionLost as error:
                failure = error
        if failure is not None and not opened:
            raise failure
        return opened

    async def _take_all(self) -> None:
        """Take all connections of a broker for a while; sometimes, break all connections to the
        broker.
        """
        address = self.draw.choice(self.client.bootstrap)
        crowd: list[CrowdConnection] = []
        until_ns = self.client.now_ns + self.draw.randrange(3_000, 7_000) * NS_PER_MS
        try:
            while self.client.now_ns < until_ns and not self.stopping:
                crowd = [each for each in crowd if each.is_open]
                missing = self._flood - len(crowd)
                crowd += await self._connect_to(address.host, address.port, missing)
                await self.pause(300, 1_200)
                self._ask(crowd)
                if self.draw.random() < _FOLLOWS:
                    await self._follow(address.host, address.port)
                if self.draw.random() < _BREAKS:
                    self._break_connections(address.host)
                    # The connections of the crowd are broken, too, so it connects again.
                    crowd.clear()
            self.succeeded(f"{len(crowd)} connections to {address.host}")
        finally:
            _close(crowd)

    def _ask(self, crowd: list[CrowdConnection]) -> None:
        """Let some clients of a crowd send requests, so that the others are idle for longer."""
        for number, each in enumerate(crowd):
            if number % 3 and each.is_open:
                each.transport.send(encode_request(apis.API_VERSIONS, 0, 1, "crowd", _VERSIONS))

    async def _follow(self, host: str, port: int) -> None:
        """Connect and send requests like a follower in Kafka, which requests offsets before it
        fetches.
        """
        (follower,) = await self._connect_to(host, port, 1)
        key, version, message = self.draw.choice(_OF_FOLLOWERS)
        try:
            follower.transport.send(encode_request(key, version, 1, "follower", message))
            await self._await_answer(follower)
        finally:
            _close([follower])

    async def _await_answer(self, connection: CrowdConnection) -> None:
        """Wait until a response has come, or the connection has ended."""
        for _ in range(_ANSWER_LOOKS):
            if connection.frames or not connection.is_open or self.stopping:
                return
            await self.client.tasks.sleep(_LOOK_MS)

    def _break_connections(self, host: str) -> None:
        """Reset all connections to a broker, so that other brokers must reconnect despite the
        crowd.
        """
        cluster = self.work.cluster
        for broker in cluster.brokers.values():
            if broker.life is not None and broker.node.host == host:
                cluster.simulator.network.reset_connections(broker.life)

    async def _read_nothing(self) -> None:
        """Repeatedly fetch many bytes without reading the responses for a while."""
        partition = self.draw.choice(self.work.steady)
        wanted = FetchPartition(partition.partition, fetch_offset=0)
        wanted.partition_max_bytes = limits.MIB
        message = FetchRequest(
            max_wait_ms=100, max_bytes=limits.MIB, min_bytes=1,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )  # fmt: skip
        crowd: list[CrowdConnection] = []
        try:
            for _ in range(_READERS):
                reader = await self._connect()
                crowd.append(reader)
                reader.transport.pause_reading()
                for number in range(_FETCHES):
                    parts = encode_request(apis.FETCH, _FETCH_VERSION, number, "crowd", message)
                    reader.transport.send(parts)
            await self.pause(500, 4_000)
            self.succeeded(f"{sum(each.is_open for each in crowd)} readers of nothing stayed")
        finally:
            _close(crowd)

    async def _no_utf_8(self) -> None:
        """Send requests with a topic name that is not valid UTF-8, until a response comes (L3)."""
        for _ in range(_ODD_REQUESTS):
            if await self._is_answered():
                self.succeeded("a name that is no UTF-8 was answered")
                return
            if self.stopping:
                return
            await self.pause(20, 100)
        self.work.cluster.simulator.violate(
            f"{_ODD_REQUESTS} requests in a row with text that is no UTF-8 were not answered (L3)"
        )

    async def _is_answered(self) -> bool:
        connection = await self._connect()
        name = MetadataRequestTopic(name=_NAME.decode())
        parts = encode_request(
            apis.METADATA, _METADATA_VERSION, 1, "crowd", MetadataRequest([name])
        )
        bad = self.draw.choice((b"\xff\xfe\xfd\xfc", b"\xed\xa0\x80a", b"a\xc3(\x80"))
        try:
            connection.transport.send([b"".join(map(bytes, parts)).replace(_NAME, bad)])
            await self._await_answer(connection)
            return connection.frames > 0
        finally:
            _close([connection])


def _close(crowd: list[CrowdConnection]) -> None:
    for each in crowd:
        if each.is_open:
            each.transport.close("the crowd leaves")
