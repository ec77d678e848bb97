"""The checker of `max.connections` finds each thing that L1 forbids, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.sim import checked

from tidelog.sim.checkers.connection_checker import ConnectionChecker
from tidelog.sim.loop import NS_PER_MS
from tidelog.wire.codec import encode_request
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.registry import FETCH, LIST_OFFSETS

LIMIT = 3
ROOM = "max.connections=3 reached: broker2:7 is a broker"
REFUSED = "max.connections reached, and no request of a broker came"


def frame(key: int, version: int, message: Any) -> memoryview:
    return memoryview(b"".join(map(bytes, encode_request(key, version, 1, "c", message))))[4:]


CONSUMER = frame(FETCH, 11, FetchRequest())
FOLLOWER = frame(LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=2))


class Broker:
    """Broker 1 with its connections."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.found: list[str] = []
        self.process: Any = _Process()
        brokers: Any = {1: SimpleNamespace(life=self.process), 2: SimpleNamespace(life=None)}
        run = checked(self.found, lambda: self.now_ns, brokers=brokers)
        self.checker = ConnectionChecker(run, ["broker2"], LIMIT, 100)

    def connect(self, host: str = "client5", first: memoryview | None = None) -> Any:
        self.now_ns += NS_PER_MS
        endpoint: Any = _Endpoint(self.process, f"{host}:7")
        self.checker.opened(endpoint)
        if first is not None:
            self.checker.received(endpoint, [first])
        return endpoint

    def wait(self, ms: int) -> None:
        self.now_ns += ms * NS_PER_MS


class _Process:
    node_id = 1


class _Endpoint:
    def __init__(self, process: Any, peer_name: str) -> None:
        self.process = process
        self.peer_name = peer_name


def test_a_crowd_that_is_refused_and_the_longest_idle_that_makes_room_are_fine() -> None:
    broker = Broker()
    oldest, *_ = (broker.connect(first=CONSUMER) for _ in range(LIMIT))
    broker.checker.lost(broker.connect(first=CONSUMER), REFUSED)
    broker.wait(500)
    broker.connect("broker2", FOLLOWER)
    broker.checker.lost(oldest, ROOM)
    broker.checker.look()
    broker.wait(500)
    broker.checker.look()
    assert (broker.found, broker.checker.made_room, broker.checker.refused) == ([], 1, 1)


def test_a_broker_that_ends_for_the_limit_beside_clients_is_found() -> None:
    broker = Broker()
    broker.connect(first=CONSUMER)
    broker.checker.lost(broker.connect("broker2"), ROOM)
    assert "ends a connection of the broker at broker2:7" in broker.found[0]


def test_a_foreign_follower_is_known_by_its_requests() -> None:
    broker = Broker()
    broker.connect(first=CONSUMER)
    broker.checker.lost(broker.connect("elsewhere", FOLLOWER), REFUSED)
    assert "ends a connection of the broker at elsewhere:7" in broker.found[0]


def test_brokers_alone_may_make_room_for_each_other() -> None:
    broker = Broker()
    broker.connect("elsewhere", FOLLOWER)
    broker.checker.lost(broker.connect("broker2"), ROOM)
    broker.checker.lost(broker.connect("broker2"), "connection reset by the peer")
    assert broker.found == []


def test_a_victim_that_was_active_after_another_client_is_found() -> None:
    broker = Broker()
    broker.connect(first=CONSUMER)
    busy = broker.connect(first=CONSUMER)
    broker.wait(1_000)
    broker.checker.received(busy, [CONSUMER])
    broker.checker.lost(busy, ROOM)
    assert "another client was idle for 1001 ms longer" in broker.found[0]


def test_a_client_beyond_the_limit_is_found_once_it_has_stayed() -> None:
    broker = Broker()
    for _ in range(LIMIT + 1):
        broker.connect(first=CONSUMER)
    broker.checker.look()
    assert broker.found == [], "it may still be ending"
    broker.wait(100)
    broker.checker.look()
    assert "has 4 connections, 4 of them of clients" in broker.found[0]
