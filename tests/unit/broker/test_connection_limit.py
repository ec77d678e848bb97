"""At max.connections clients are refused, and brokers are let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.broker.connections import FakeBroker, FakeTransport
from tests.support.ports import FakeTracer

from tidelog.broker.server.broker_claims import Members
from tidelog.broker.server.connection_limit import (
    MAX_CLAIMED,
    MAX_TRIALS,
    TRIAL_MS,
    ConnectionLimit,
)
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.timers import TimerWheel
from tidelog.wire.codec import encode_request
from tidelog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_topics import CreateTopicsRequest
from tidelog.wire.messages.fetch import FetchRequest, ReplicaState
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest
from tidelog.wire.registry import (
    ALTER_REPLICA_LOG_DIRS,
    API,
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    UPDATE_METADATA,
)

LIMIT = 10
CLIENTS, BROKERS = "CLIENTS", "BROKERS"
#: The registered brokers.
HOSTS = {2: "10.0.0.2", 3: "10.0.0.3"}


def frame(api_key: int, version: int, message: Any, client_id: str = "c") -> memoryview:
    parts = encode_request(api_key, version, 1, client_id, message)
    return memoryview(b"".join(map(bytes, parts)))[4:]


VERSIONS = frame(API_VERSIONS, 0, ApiVersionsRequest())
OF_CLIENTS = {
    "metadata": frame(METADATA, 1, MetadataRequest(None)),
    "a consumer's fetch": frame(FETCH, 11, FetchRequest()),
    "no request": memoryview(b"\0\1\0\x0b\0"),
    "a replica that is not registered": frame(FETCH, 11, FetchRequest(replica_id=77)),
    "offsets for no replica": frame(LIST_OFFSETS, 5, ListOffsetsRequest()),
    "a tool": frame(OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest()),
    "a client id of no broker": frame(METADATA, 1, MetadataRequest(None), "broker-77-admin"),
    "a client named broker": frame(METADATA, 1, MetadataRequest(None), "broker-two"),
}
OF_BROKERS = {
    "a command": frame(UPDATE_METADATA, 8, UpdateMetadataRequest()),
    "a follower's fetch": frame(FETCH, 11, FetchRequest(replica_id=2)),
    "a newer fetch": frame(FETCH, 17, FetchRequest(replica_state=ReplicaState(2, 7))),
    "a follower's ListOffsets": frame(LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=2)),
    "a follower's epochs": frame(OFFSET_FOR_LEADER_EPOCH, 3, OffsetForLeaderEpochRequest(2)),
    "a broker's events": frame(PRODUCE, 8, ProduceRequest(), "broker-2-cluster-events"),
    "a topic that a broker creates": frame(
        CREATE_TOPICS, 5, CreateTopicsRequest(), "broker-2-admin"
    ),
    "a move that a broker plans": frame(
        ALTER_REPLICA_LOG_DIRS, 1, AlterReplicaLogDirsRequest(), "broker-2-drains"
    ),
}


class Harness:
    """Connections of one broker, of whom clients and brokers share a listener or do not."""

    def __init__(self, *, shared: bool = True, limit: int = LIMIT) -> None:
        self.broker = FakeBroker(lambda request: None)
        self.broker.served = tuple(API)
        self.tracer = FakeTracer()
        self.connections: dict[Connection, None] = {}
        self.limit_of = limit
        self.listener = BROKERS if shared else CLIENTS
        self.limit = ConnectionLimit(
            self.connections,
            lambda: limit,
            TimerWheel(self.broker.clock),
            self.tracer,
            broker_listener=BROKERS,
            has_client_listener=not shared,
            members=Members(
                lambda broker_id: broker_id in HOSTS,
                lambda broker_id, host: (
                    host == HOSTS.get(broker_id) or (broker_id < 0 and host in HOSTS.values())
                ),
                lambda key: key == UPDATE_METADATA,
            ),
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
        for number in range(self.limit_of):
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
    assert "max.connections" not in str(transport.closed)


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
        connection.prove_broker(2)
    handler, transport = harness.connect("10.0.0.2:1")
    handler.frames_received([OF_BROKERS["a command"]])
    assert closed(clients) == [2], "claims of peers are bounded, too"
    assert "max.connections" not in str(transport.closed)


def test_a_broker_is_let_in_through_a_burst_of_clients() -> None:
    harness = Harness()
    harness.fill()
    handler, broker = harness.connect("10.0.0.2:1")
    for number in range(2 * MAX_TRIALS):
        harness.connect(f"10.0.0.9:{number}")
    handler.frames_received([OF_BROKERS["a follower's fetch"]])
    assert "max.connections" not in str(broker.closed)


def test_the_host_with_most_trials_loses_its_oldest_one() -> None:
    harness = Harness()
    harness.fill()
    alone = harness.connect("10.0.0.8:1")[1]
    crowd = [harness.connect(f"10.0.0.9:{number}")[1] for number in range(MAX_TRIALS)]
    assert (alone.closed, closed(crowd)) == (None, [0])


def claimed(harness: Harness, peer: str, replica_id: int = 2) -> FakeTransport:
    """A connection whose first request is a fetch of this replica."""
    handler, transport = harness.connect(peer)
    handler.frames_received([frame(FETCH, 11, FetchRequest(replica_id=replica_id))])
    return transport


def test_a_claim_from_elsewhere_takes_the_place_of_a_client_and_never_that_of_a_broker() -> None:
    harness = Harness()
    clients = harness.fill()
    brokers = [claimed(harness, f"10.0.0.2:{number}") for number in range(5)]
    assert len(closed(clients)) == 5
    posers = [claimed(harness, f"10.0.0.9:{number}") for number in range(50)]
    assert len(closed(clients)) == LIMIT
    assert [each for each in brokers if "max.connections" in str(each.closed)] == []
    assert sum("max.connections" not in str(each.closed) for each in posers) == LIMIT - 5
    more = claimed(harness, "10.0.0.3:1", replica_id=3)
    assert "max.connections" not in str(more.closed)
    assert [each for each in brokers if "max.connections" in str(each.closed)] == []


def test_claims_from_elsewhere_do_not_take_the_places_of_all_clients() -> None:
    harness = Harness(limit=2 * MAX_CLAIMED)
    clients = harness.fill()
    for number in range(3 * MAX_CLAIMED):
        claimed(harness, f"10.0.0.9:{number}")
    assert len(closed(clients)) == MAX_CLAIMED


def test_brokers_that_come_in_one_turn_of_the_loop_each_take_a_place_of_their_own() -> None:
    harness = Harness()
    clients = harness.fill()
    for number in range(3):
        claimed(harness, f"10.0.0.2:{number}")
    assert len(closed(clients)) == 3, "a closed connection is open for the transport until later"


def test_a_broker_that_has_only_produced_is_no_client_that_makes_room() -> None:
    harness = Harness()
    clients = []
    for number in range(LIMIT):
        harness.broker.idle.tick = number
        handler, transport = harness.connect(f"10.0.0.{2 if number == 0 else 7}:{number}")
        if number == 0:
            handler.frames_received([OF_BROKERS["a broker's events"]])
        clients.append(transport)
    claimed(harness, "10.0.0.3:1", replica_id=3)
    assert closed(clients) == [1]


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
