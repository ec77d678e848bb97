"""Limits of clients: connections, unread responses, and text that is no UTF-8 (L1 to L3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker import fakes as cluster
from tests.support.broker.connections import FakeBroker, FakeTransport
from tests.support.broker.coordinator import told
from tests.support.ports import FakeTracer, ManualClock

from tidelog.broker.apis import modules
from tidelog.broker.server.broker_claims import Members
from tidelog.broker.server.connection_limit import ConnectionLimit
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.requests import Request
from tidelog.broker.server.timers import TimerWheel
from tidelog.core.limits import MIB
from tidelog.core.response_budget import ResponseBudget, ResponseShare, WaitingRead
from tidelog.wire.codec import RequestHeader, decode_request, encode_request
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tidelog.wire.registry import FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH

LIMIT = 3
MAX_BYTES = 8 * MIB


class Crowd:
    """A broker whose connections are all taken by clients."""

    def __init__(self) -> None:
        self.broker = FakeBroker(lambda request: None)
        self.connections: dict[Connection, None] = {}
        self.limit = ConnectionLimit(
            self.connections,
            lambda: LIMIT,
            TimerWheel(self.broker.clock),
            FakeTracer(),
            broker_listener="PLAINTEXT",
            has_client_listener=False,
            members=Members(
                lambda broker_id: broker_id == 2, lambda broker_id, host: False, lambda key: False
            ),
        )
        self.clients = [self.connect()[1] for _ in range(LIMIT)]

    def connect(self) -> tuple[Any, FakeTransport]:
        """A new connection: its handler and its transport."""
        transport = FakeTransport()
        connection = Connection(self.broker, transport)  # type: ignore[arg-type]  # a fake stands in
        self.connections[connection] = None
        return self.limit.accepted(connection), transport


def fetch(replica_id: int) -> memoryview:
    parts = encode_request(FETCH, 11, 1, "c", FetchRequest(replica_id=replica_id))
    return memoryview(b"".join(map(bytes, parts)))[4:]


@pytest.mark.rule("L1")
def test_a_follower_takes_the_place_of_a_client_and_a_consumer_does_not() -> None:
    crowd = Crowd()
    handler, consumer = crowd.connect()
    handler.frames_received([fetch(-1)])
    assert "max.connections" in str(consumer.closed)
    assert [client.closed for client in crowd.clients] == [None] * LIMIT
    handler, follower = crowd.connect()
    handler.frames_received([fetch(2)])
    assert "max.connections" not in str(follower.closed)
    assert sum(client.closed is not None for client in crowd.clients) == 1


REPLICAS = [
    (FETCH, 11, FetchRequest(replica_id=2)),
    (LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=2)),
    (OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest(replica_id=2)),
]


@pytest.mark.rule("L1")
@pytest.mark.parametrize(("api_key", "version", "message"), REPLICAS)
@pytest.mark.parametrize("is_registered", [True, False])
@told
async def test_the_requests_of_a_follower_prove_a_registered_broker_and_no_other(
    api_key: int, version: int, message: Any, is_registered: bool
) -> None:
    broker: Any = cluster.FakeBroker(1, {}, cluster.FakeClock())
    if is_registered:
        broker.see(1, 2)
    proved: list[int] = []
    connection: Any = SimpleNamespace(
        peer="10.0.0.9:1", listener="PLAINTEXT", is_broker=False, unread_bytes=0,
        prove_broker=proved.append,
    )  # fmt: skip
    header = RequestHeader(api_key, version, 0, None)
    modules()[api_key].handle(broker, Request(header, message, connection, 0))
    assert proved == ([2] if is_registered else [])


class Reader:
    """A connection that reads nothing."""

    def __init__(self) -> None:
        self.peer = "10.0.0.1:1"
        self.is_gone = False

    def abort(self, reason: str) -> None:
        self.is_gone = True


class Due:
    """A fetch that waits for its turn."""

    def __init__(self) -> None:
        self.granted: list[int] = []

    def resume(self, granted_bytes: int) -> None:
        self.granted.append(granted_bytes)


@pytest.mark.rule("L2")
def test_what_is_unread_has_a_bound_and_each_fetch_gets_its_turn() -> None:
    clock = ManualClock()
    budget = ResponseBudget(MAX_BYTES, clock, lambda line: None)
    readers: list[tuple[Reader, ResponseShare]] = []
    for _ in range(80):
        reader = Reader()
        share = budget.share("reader", reader.abort)
        readers.append((reader, share))
        share.hold(budget.clients.grant_bytes or MIB, has_progress=False)
        clock.advance(0)
        assert budget.clients.used_bytes < 2 * MAX_BYTES
    assert any(reader.is_gone for reader, _ in readers)
    assert budget.brokers.grant_bytes >= MIB, "no client takes the part of brokers"
    waiting = Due()
    budget.clients.wait(WaitingRead(waiting.resume, lambda: 0))
    clock.advance(20_000)
    assert waiting.granted == [budget.clients.grant_bytes], "readers of nothing made room"


@pytest.mark.rule("L3")
def test_text_that_is_no_utf_8_is_read() -> None:
    message = MetadataRequest([MetadataRequestTopic(name="NAME")])
    frame = b"".join(map(bytes, encode_request(METADATA, 1, 1, "c", message)))[4:]
    header, read = decode_request(memoryview(frame.replace(b"NAME", b"a\xed\xa0\x80")))
    assert (header.client_id, read.topics[0].name) == ("c", "a\ufffd")
