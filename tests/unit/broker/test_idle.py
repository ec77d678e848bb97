"""Connections that nobody uses are closed, those in use stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from tests.support.broker.connections import FakeBroker, FakeTransport, frame
from tests.support.ports import ManualClock

from tidelog.broker.server.connections import Connection
from tidelog.broker.server.idle_connections import TICKS, IdleConnections
from tidelog.broker.server.requests import Pending
from tidelog.broker.server.server import close_older
from tidelog.broker.server.timers import BUCKET_MS, TimerWheel
from tidelog.wire.messages.describe_cluster import DescribeClusterResponse

MAX_IDLE_MS = 16_000
TICK_MS = MAX_IDLE_MS // TICKS
#: Ticks come up to one bucket late.
LATE_MS = TICK_MS + (TICKS + 2) * BUCKET_MS


class IdleHarness:
    """Connections of a broker whose clock stands until it is told to go on."""

    def __init__(self, max_idle_ms: int = MAX_IDLE_MS) -> None:
        self.clock = ManualClock()
        self.timers = TimerWheel(self.clock)
        self.connections: dict[Connection, None] = {}
        self.idle = IdleConnections(
            self.timers, max_idle_ms, partial(close_older, self.connections)
        )
        self.pending = Pending()
        self.broker = cast(Any, FakeBroker(lambda request: self.pending))
        self.broker.idle = self.idle
        self.broker.clock = self.clock
        self.idle.start()

    def connect(self) -> tuple[Connection, FakeTransport]:
        transport = FakeTransport()
        connection = Connection(self.broker, transport)
        self.connections[connection] = None
        return connection, transport


def test_a_silent_connection_is_closed_after_its_time_and_no_earlier() -> None:
    harness = IdleHarness()
    harness.clock.advance(TICK_MS // 2)
    _, transport = harness.connect()
    harness.clock.advance(MAX_IDLE_MS)
    assert transport.closed is None
    harness.clock.advance(LATE_MS)
    assert transport.closed == "idle for connections.max.idle.ms=16000"


def test_requests_answers_and_a_peer_that_reads_again_keep_a_connection() -> None:
    harness = IdleHarness()
    connection, transport = harness.connect()
    uses: tuple[Callable[[], object], ...] = (
        lambda: connection.frames_received([frame(1)]),
        lambda: harness.pending.complete(DescribeClusterResponse()),
        lambda: connection.send_queue_changed(1),
    )
    for use in uses:
        harness.clock.advance(MAX_IDLE_MS - TICK_MS)
        use()
    assert len(transport.sent) == 1
    harness.clock.advance(MAX_IDLE_MS - TICK_MS)
    assert transport.closed is None
    harness.clock.advance(TICK_MS + LATE_MS)
    assert transport.closed is not None


def test_a_peer_that_is_gone_is_not_kept_by_a_request_that_waits() -> None:
    harness = IdleHarness()
    connection, transport = harness.connect()
    connection.frames_received([frame(1)])
    harness.clock.advance(MAX_IDLE_MS + LATE_MS)
    assert transport.closed is not None


def test_time_in_which_the_broker_did_not_run_is_nobodys_silence() -> None:
    harness = IdleHarness()
    _, transport = harness.connect()
    harness.clock.now_ms += 10 * MAX_IDLE_MS
    harness.clock.advance(TICK_MS)
    assert transport.closed is None


def test_below_zero_nothing_is_ever_closed_and_the_longest_idle_one_is_known() -> None:
    harness = IdleHarness(max_idle_ms=-1)
    used, unused = harness.connect()[0], harness.connect()[0]
    _, transport = harness.connect()
    harness.clock.advance(3_600_000)
    used.frames_received([frame(1)])
    assert min((used, unused), key=lambda each: each.active_tick) is unused
    harness.clock.advance(3_600_000)
    assert transport.closed is None


def test_one_timer_serves_all_connections() -> None:
    harness = IdleHarness()
    for _ in range(100):
        harness.connect()
    assert len(harness.timers) == 1
