"""Signs that another broker is gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.peers import PeerConnection, Peers
from tidelog.core.errors import ConnectionLost
from tidelog.core.types import BrokerInfo, Endpoint
from tidelog.wire.codec import encode_response
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.registry import API_VERSIONS


class Wire:
    """A transport that goes nowhere."""

    is_over = False
    peer = "10.0.0.2:9092"

    def has_ended(self) -> bool:
        """As the test says."""
        return self.is_over

    def send(self, parts: Any) -> None:
        """Lost."""

    def close(self, reason: str) -> None:
        """Nothing is open."""


@pytest.fixture
def broker() -> Any:
    clock = SimpleNamespace(now_ms=1_000)
    clock.monotonic_ms = lambda: clock.now_ms
    infos = {2: BrokerInfo(2, -1, (Endpoint("PLAINTEXT", "h", 2),))}
    view = SimpleNamespace(
        brokers=infos,
        is_alive=lambda one: one in infos,
        endpoint=lambda one, _: infos[one].endpoints[0],
    )
    ports: Any = SimpleNamespace(clock=clock)
    timers: Any = SimpleNamespace(after=lambda delay_ms, callback: callback)
    tasks: Any = None
    fake: Any = view
    peers = Peers(1, ports, tasks, timers, fake, "PLAINTEXT")
    return SimpleNamespace(clock=clock, view=view, peers=peers)


def connected(broker: Any) -> PeerConnection:
    connection: PeerConnection = broker.peers.connection(2, "fetch")
    connection._transport = Wire()  # type: ignore[assignment]  # a fake stands in
    return connection


def ask(connection: PeerConnection) -> None:
    connection.send(API_VERSIONS, 0, ApiVersionsRequest(), 500, lambda answer, error: None)


def noted(broker: Any) -> list[tuple[str, int]]:
    """What is reported of other brokers."""
    found: list[tuple[str, int]] = []
    broker.peers.lost = lambda broker_id: found.append(("lost", broker_id))
    broker.peers.reached = lambda broker_id: found.append(("reached", broker_id))
    return found


def response() -> list[memoryview]:
    parts = encode_response(API_VERSIONS, 0, 0, ApiVersionsResponse())
    return [memoryview(b"".join(map(bytes, parts))[4:])]


def test_a_broker_that_owes_an_answer_is_lost_with_its_connection(broker: Any) -> None:
    found = noted(broker)
    connection = connected(broker)
    connection.connection_lost("idle")
    assert found == []
    connection = connected(broker)
    ask(connection)
    connection.close("the broker has another address now")
    connection.connection_lost("closed")
    assert found == []
    connection = connected(broker)
    ask(connection)
    connection.connection_lost("reset")
    assert found == [("lost", 2)]


def test_the_kernel_knows_of_an_end_before_the_loop(broker: Any) -> None:
    found = noted(broker)
    connection = connected(broker)
    broker.peers.look()
    assert found == []
    ask(connection)
    wire: Any = connection._transport
    broker.peers.look()
    assert found == []
    wire.is_over = True
    broker.peers.look()
    assert found == [("lost", 2)]


def test_only_a_response_on_a_new_connection_proves_life(broker: Any) -> None:
    async def story() -> None:
        found = noted(broker)

        async def connect(*_: Any) -> Wire:
            return Wire()

        broker.peers.ports.network = SimpleNamespace(connect=connect)
        connection = broker.peers.connection(2, "fetch")
        await connection._connect()
        ask(connection)
        assert found == []
        connection.frames_received(response())
        assert found == [("reached", 2)]
        ask(connection)
        connection.frames_received(response())
        assert found == [("reached", 2)]

    asyncio.run(story())


def test_the_address_of_a_broker_is_known_once_this_one_has_connected_to_it(broker: Any) -> None:
    async def story() -> None:
        async def connect(*_: Any) -> Wire:
            return Wire()

        broker.peers.ports.network = SimpleNamespace(connect=connect)
        is_host_of = broker.peers.is_host_of
        assert is_host_of(2, "h")
        assert not is_host_of(2, "10.0.0.2")
        await broker.peers.connection(2, "fetch")._connect()
        assert is_host_of(2, "10.0.0.2") and is_host_of(-1, "10.0.0.2")
        assert not is_host_of(3, "10.0.0.2") and not is_host_of(-1, "10.0.0.9")

    asyncio.run(story())


def test_a_refused_connection_is_a_sign(broker: Any) -> None:
    async def story() -> None:
        found = noted(broker)

        async def connect(*_: Any) -> Wire:
            raise ConnectionLost("refused")

        broker.peers.ports.network = SimpleNamespace(connect=connect)
        await broker.peers.connection(2, "fetch")._connect()
        assert found == [("lost", 2)]

    asyncio.run(story())


def test_a_broker_that_owes_an_answer_is_silent_from_the_end_of_its_connection(broker: Any) -> None:
    connection = connected(broker)
    ask(connection)
    assert broker.peers.silent_since_ms(2) is None
    broker.clock.now_ms = 1_200
    connection.connection_lost("reset")
    broker.clock.now_ms = 1_300
    again = connected(broker)
    ask(again)
    again.connection_lost("reset")
    assert broker.peers.silent_since_ms(2) == 1_200


def test_one_that_owes_nothing_may_close(broker: Any) -> None:
    connected(broker).connection_lost("idle")
    assert broker.peers.silent_since_ms(2) is None


def test_a_request_that_is_not_answered_in_time_is_a_sign(broker: Any) -> None:
    connection = connected(broker)
    ask(connection)
    broker.clock.now_ms = 1_500
    connection._deadline()
    assert broker.peers.silent_since_ms(2) == 1_500


def test_an_answer_is_a_sign_of_life(broker: Any) -> None:
    broker.peers.fell_silent(2)
    connection = connected(broker)
    ask(connection)
    parts = encode_response(API_VERSIONS, 0, 0, ApiVersionsResponse())
    frame = b"".join(map(bytes, parts))[4:]
    connection.frames_received([memoryview(frame)])
    assert broker.peers.silent_since_ms(2) is None


def test_who_is_known_to_be_gone_is_not_silent(broker: Any) -> None:
    broker.peers.fell_silent(2)
    broker.peers.view_changed()
    assert broker.peers.silent_since_ms(2) == 1_000
    broker.view.brokers.clear()
    broker.peers.view_changed()
    assert broker.peers.silent_since_ms(2) is None
    broker.peers.fell_silent(2)
    assert broker.peers.silent_since_ms(2) is None
