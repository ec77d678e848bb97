"""At max.connections clients are refused, and brokers are let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.broker.connections import FakeBroker, FakeTransport
from tests.support.ports import FakeTracer

from tidelog.broker.server.connection_limit import MAX_TRIALS, TRIAL_MS, ConnectionLimit
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.timers import TimerWheel
from tidelog.wire.codec import encode_request
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchRequest, ReplicaState
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest
from tidelog.wire.registry import API_VERSIONS, FETCH, METADATA, UPDATE_METADATA

LIMIT = 10
CLIENTS, BROKERS = "CLIENTS", "BROKERS"


def frame(api_key: int, version: int, message: Any) -> memoryview:
    return memoryview(b"".join(map(bytes, encode_request(api_key, version, 1, "c", message))))[4:]


VERSIONS = frame(API_VERSIONS, 0, ApiVersionsRequest())
OF_CLIENTS = {
    "metadata": frame(METADATA, 1, MetadataRequest(None)),
    "a consumer's fetch": frame(FETCH, 11, FetchRequest()),
    "no request": memoryview(b"\0\1\0\x0b\0"),
}
OF_BROKERS = {
    "a command": frame(UPDATE_METADATA, 8, UpdateMetadataRequest()),
    "a follower's fetch": frame(FETCH, 11, FetchRequest(replica_id=2)),
    "a newer fetch": frame(FETCH, 17, FetchRequest(replica_state=ReplicaState(2, 7))),
}


class Harness:
    """Connections of one broker, of whom clients and brokers share a listener or do not."""

    def __init__(self, *, shared: bool = True) -> None:
        self.broker = FakeBroker(lambda request: None)
        self.tracer = FakeTracer()
        self.connections: dict[Connection, None] = {}
        self.begun: list[str] = []
        self.listener = BROKERS if shared else CLIENTS
        self.limit = ConnectionLimit(
            self.connections,
            lambda: LIMIT,
            TimerWheel(self.broker.clock),
            self.tracer,
            broker_listener=BROKERS,
            has_client_listener=not shared,
            is_inter_broker=lambda key: key == UPDATE_METADATA,
        )

    def connect(self, peer: str, listener: str = "") -> tuple[Any, FakeTransport]:
        """A new connection: its handler and its transport."""
        transport = FakeTransport()
        transport.peer = peer
        connection = Connection(
            self.broker,  # type: ignore[arg-type]  # a fake stands in
            transport,
            listener=listener or self.listener,
        )
        self.connections[connection] = None
        handler = self.limit.accepted(connection)
        return handler, transport

    def fill(self) -> list[FakeTransport]:
        """As many clients as there may be; the third is idle for longest."""
        transports = []
        for number in range(LIMIT):
            self.broker.idle.tick = 0 if number == 2 else 5
            transports.append(self.connect(f"10.0.0.7:{number}")[1])
        self.broker.idle.tick = 6
        return transports


def closed(transports: Sequence[FakeTransport]) -> list[int]:
    return [number for number, each in enumerate(transports) if each.closed is not None]


@pytest.mark.parametrize("first", OF_BROKERS.values(), ids=OF_BROKERS)
def test_a_connection_that_proves_to_be_a_brokers_takes_the_place_of_the_longest_idle_client(
    first: memoryview,
) -> None:
    harness = Harness()
    clients = harness.fill()
    handler, transport = harness.connect("10.0.0.2:1")
    assert closed(clients) == [], "it is on trial"
    handler.frames_received([VERSIONS])
    assert (transport.closed, closed(clients)) == (None, [])
    handler.frames_received([first])
    assert closed(clients) == [2]
    assert "10.0.0.2:1 is a broker" in str(clients[2].closed)
    harness.broker.clock.advance(2 * TRIAL_MS)
    assert transport.closed is None or "unsupported" in transport.closed


@pytest.mark.parametrize("first", OF_CLIENTS.values(), ids=OF_CLIENTS)
def test_a_client_above_the_limit_is_closed_at_its_first_request(first: memoryview) -> None:
    harness = Harness()
    clients = harness.fill()
    handler, transport = harness.connect("10.0.0.9:1")
    handler.frames_received([first])
    assert "max.connections" in str(transport.closed)
    assert closed(clients) == []


def test_a_connection_on_trial_that_sends_nothing_is_closed() -> None:
    harness = Harness()
    harness.fill()
    _, transport = harness.connect("10.0.0.9:1")
    harness.broker.clock.advance(TRIAL_MS + 20)
    assert transport.closed is not None


def test_trials_are_few_and_the_oldest_one_ends_first() -> None:
    harness = Harness()
    harness.fill()
    trials = [harness.connect(f"10.0.0.9:{number}")[1] for number in range(MAX_TRIALS + 2)]
    assert closed(trials) == [0, 1]


def test_a_client_on_trial_is_let_in_when_others_have_left() -> None:
    harness = Harness()
    harness.fill()
    handler, transport = harness.connect("10.0.0.9:1")
    del harness.connections[next(iter(harness.connections))]
    handler.frames_received([OF_CLIENTS["metadata"]])
    assert "max.connections" not in str(transport.closed)


def test_the_listener_of_brokers_alone_always_accepts_and_that_of_clients_does_not() -> None:
    harness = Harness(shared=False)
    clients = harness.fill()
    _, refused = harness.connect("10.0.0.9:1", CLIENTS)
    assert refused.closed == f"max.connections={LIMIT} reached"
    harness.connections.popitem()
    _, broker = harness.connect("10.0.0.2:1", BROKERS)
    assert (broker.closed, closed(clients)) == (None, [2])


def test_where_all_are_brokers_the_longest_idle_of_them_makes_room() -> None:
    harness = Harness()
    clients = harness.fill()
    for connection in harness.connections:
        connection.prove_broker()
    handler, transport = harness.connect("10.0.0.2:1")
    handler.frames_received([OF_BROKERS["a command"]])
    assert closed(clients) == [2], "claims of peers are bounded, too"
    assert "max.connections" not in str(transport.closed)


def test_the_log_says_once_that_the_limit_is_reached_and_who_holds_most() -> None:
    harness = Harness()
    harness.fill()
    for number in range(5):
        harness.connect(f"10.0.0.9:{number}")
    assert len(harness.tracer.lines) == 1
    assert f"max.connections={LIMIT} is reached" in harness.tracer.lines[0]
    assert "10.0.0.7 10" in harness.tracer.lines[0]
    for connection in list(harness.connections)[:5]:
        del harness.connections[connection]
    harness.connect("10.0.0.8:1")
    for number in range(9):
        harness.connect(f"10.0.0.8:{number}")
    assert len(harness.tracer.lines) == 2, "it was not reached in between"
