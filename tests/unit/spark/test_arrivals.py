"""The wait of an idle stream, over scripted brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.core.types import READ_UNCOMMITTED, TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.streaming.arrivals import Arrivals
from tidelog.wire.registry import FETCH

T0 = TopicPartition("t", 0)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    fake = FakeLogs()
    fake.create("t", 1)
    yield fake
    fake.close()


@pytest.fixture
def arrivals(logs: FakeLogs) -> Iterator[Arrivals]:
    waiting = Arrivals(lambda: BlockingClient(logs.bootstrap, timeout_ms=200), READ_UNCOMMITTED)
    yield waiting
    waiting.close()


def test_a_record_ends_the_wait(logs: FakeLogs, arrivals: Arrivals) -> None:
    asked = threading.Event()
    arrived = threading.Event()
    answer = logs[1].handler(FETCH)

    def hold(request: Any) -> Any:
        asked.set()
        assert arrived.wait(30)
        return answer(request)

    def come() -> None:
        assert asked.wait(30)
        logs.append(T0, batch(0, b"a"))
        arrived.set()

    logs[1].on(FETCH, hold)
    coming = threading.Thread(target=come)
    coming.start()
    assert arrivals.wait({1: {T0: 0}}, 30_000)
    coming.join()
    (request,) = logs[1].asked(FETCH)
    assert (request.max_wait_ms, request.min_bytes) == (30_000, 1)


def test_a_wait_without_records_ends_in_time(arrivals: Arrivals) -> None:
    assert not arrivals.wait({1: {T0: 0}}, 5)
    assert not arrivals.wait({}, 5)


def test_a_leader_that_does_not_respond_holds_nothing_up(
    logs: FakeLogs, arrivals: Arrivals
) -> None:
    logs[1].on(FETCH, lambda _: None)
    assert not arrivals.wait({1: {T0: 0}}, 5)
    assert not arrivals.wait({1: {T0: 0}}, 5)
    assert len(logs[1].asked(FETCH)) <= 1
