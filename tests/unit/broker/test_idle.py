"""Connections that nobody uses are closed, those in use stay; whoever needs one again makes one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.test_connections import FakeBroker, FakeTransport, frame
from tests.unit.broker.test_timers import ManualClock
from tests.unit.sim.sim_programs import Recorder, Running, S

from tidelog.broker.connections import Connection
from tidelog.broker.idle import TICKS, IdleConnections
from tidelog.broker.requests import Pending
from tidelog.broker.timers import BUCKET_MS, TimerWheel
from tidelog.core import limits
from tidelog.core.ports import Transport
from tidelog.sim import run
from tidelog.sim.cluster import PORT, Cluster, Settings, host_of
from tidelog.sim.run import run_seed
from tidelog.sim.world import World
from tidelog.wire.messages.describe_cluster import DescribeClusterResponse

MAX_IDLE_MS = 16_000
TICK_MS = MAX_IDLE_MS // TICKS
#: Ticks come up to one bucket late.
LATE_MS = TICK_MS + (TICKS + 2) * BUCKET_MS


class Rig:
    """Connections of a broker whose clock stands until it is told to go on."""

    def __init__(self, max_idle_ms: int = MAX_IDLE_MS) -> None:
        self.clock = ManualClock()
        self.timers = TimerWheel(self.clock)
        self.connections: dict[Connection, None] = {}
        self.idle = IdleConnections(self.timers, max_idle_ms, self.connections)
        self.pending = Pending()
        self.broker: Any = FakeBroker(lambda broker, request: self.pending)
        self.broker.idle = self.idle
        self.broker.clock = self.clock
        self.idle.start()

    def connect(self) -> tuple[Connection, FakeTransport]:
        transport = FakeTransport()
        connection = Connection(self.broker, transport)
        self.connections[connection] = None
        return connection, transport


def test_a_silent_connection_is_closed_after_its_time_and_no_earlier() -> None:
    rig = Rig()
    rig.clock.advance(TICK_MS // 2)
    _, transport = rig.connect()
    rig.clock.advance(MAX_IDLE_MS)
    assert transport.closed is None
    rig.clock.advance(LATE_MS)
    assert transport.closed == "idle for connections.max.idle.ms=16000"


def test_requests_answers_and_a_peer_that_reads_again_keep_a_connection() -> None:
    rig = Rig()
    connection, transport = rig.connect()
    for use in (
        lambda: connection.frames_received([frame(1)]),
        lambda: rig.pending.complete(DescribeClusterResponse()),
        connection.send_queue_drained,
    ):
        rig.clock.advance(MAX_IDLE_MS - TICK_MS)
        use()
    assert len(transport.sent) == 1
    rig.clock.advance(MAX_IDLE_MS - TICK_MS)
    assert transport.closed is None
    rig.clock.advance(TICK_MS + LATE_MS)
    assert transport.closed is not None


def test_a_peer_that_is_gone_is_not_kept_by_a_request_that_waits() -> None:
    rig = Rig()
    connection, transport = rig.connect()
    connection.frames_received([frame(1)])
    rig.clock.advance(MAX_IDLE_MS + LATE_MS)
    assert transport.closed is not None


def test_time_in_which_the_broker_did_not_run_is_nobodys_silence() -> None:
    rig = Rig()
    _, transport = rig.connect()
    rig.clock.now_ms += 10 * MAX_IDLE_MS
    rig.clock.advance(TICK_MS)
    assert transport.closed is None


def test_below_zero_nothing_is_ever_closed_and_no_timer_runs() -> None:
    rig = Rig(max_idle_ms=-1)
    _, transport = rig.connect()
    assert len(rig.timers) == 0
    rig.clock.advance(1 << 40)
    assert transport.closed is None


def test_one_timer_serves_all_connections() -> None:
    rig = Rig()
    for _ in range(100):
        rig.connect()
    assert len(rig.timers) == 1


def test_a_whole_broker_closes_idle_connections_in_its_own_time() -> None:
    world = World(7)
    cluster = Cluster(world, 1, Settings(properties={"connections.max.idle.ms": "600000"}))
    cluster.start()
    assert world.run_while(lambda: bool(cluster.health()), 60 * S)
    client = Running(world.add_node(50, "client"))
    recorders: list[Recorder] = []

    def record(transport: Transport) -> Recorder:
        recorders.append(Recorder(transport))
        return recorders[-1]

    async def connect() -> None:
        await client.ports.network.connect(
            host_of(1), PORT, record, 1_000, limits.MAX_RESPONSE_BYTES
        )

    client.spawn(connect())
    world.run_until(world.now_ns + 599 * S)
    assert recorders[0].lost == []
    world.run_until(world.now_ns + 60 * S)
    assert len(recorders[0].lost) == 1
    assert not world.violations and not client.failures
    world.close()


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_brokers_and_clients_whose_connections_are_closed_all_the_time_make_new_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole run under faults, with connections that are idle after a moment."""
    settings_of = run._settings
    closed: list[str] = []
    close = Connection.close

    def impatient(*arguments: Any) -> Settings:
        settings = settings_of(*arguments)
        settings.properties["connections.max.idle.ms"] = "160"
        return settings

    def counted(connection: Connection, reason: str) -> None:
        closed.append(reason)
        close(connection, reason)

    monkeypatch.setattr(run, "_settings", impatient)
    monkeypatch.setattr(Connection, "close", counted)
    result = run_seed(seed)
    assert not result.violation, result.recent[-40:]
    assert sum(reason.startswith("idle") for reason in closed) > 20
