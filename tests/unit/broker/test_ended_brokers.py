"""Which brokers have just ended, as far as a broker can know."""

from __future__ import annotations

from tidelog.broker.ended_brokers import KEPT_MS, EndedBrokers
from tidelog.core.types import BrokerInfo, Endpoint

MAX_MS = 250


def live(*broker_ids: int) -> dict[int, BrokerInfo]:
    return {
        number: BrokerInfo(number, -1, (Endpoint("PLAINTEXT", "h", number),))
        for number in broker_ids
    }


def test_nothing_is_expected_while_nothing_ends() -> None:
    ended = EndedBrokers()
    ended.published({}, live(1, 2), 0)
    ended.published(live(1, 2), live(1, 2), 5)
    assert ended.expected(10, MAX_MS) == {}
    assert ended.kept(10) == {}


def test_a_lost_connection_opens_one_window() -> None:
    ended = EndedBrokers()
    assert ended.lost(2, 1_000)
    assert ended.expected(1_000, MAX_MS) == {2: 1_250}
    assert not ended.lost(2, 1_200)
    assert ended.expected(1_249, MAX_MS) == {2: 1_250}
    assert not ended.lost(2, 1_249)
    assert ended.expected(1_250, MAX_MS) == {}


def test_without_time_to_wait_nothing_is_expected() -> None:
    ended = EndedBrokers()
    ended.lost(2, 1_000)
    assert ended.expected(1_000, 0) == {}


def test_a_broker_that_refuses_for_long_opens_another_window_only_then() -> None:
    ended = EndedBrokers()
    ended.lost(2, 0)
    assert not ended.lost(2, KEPT_MS - 1)
    assert ended.lost(2, KEPT_MS)
    assert ended.expected(KEPT_MS, MAX_MS) == {2: KEPT_MS + MAX_MS}


def test_a_response_on_a_new_connection_closes_the_window() -> None:
    ended = EndedBrokers()
    ended.lost(2, 1_000)
    assert ended.reached(2)
    assert not ended.reached(2)
    assert ended.expected(1_001, MAX_MS) == {}
    assert ended.lost(2, 1_002)


def test_a_broker_that_the_controller_takes_off_has_ended_just_then() -> None:
    ended = EndedBrokers()
    ended.lost(2, 0)
    ended.published(live(1, 2, 3), live(1, 3), 18_000)
    assert ended.expected(18_000, MAX_MS) == {2: 18_250}


def test_it_is_kept_for_seconds_as_it_was_known() -> None:
    ended = EndedBrokers()
    ended.published(live(1, 2, 3), live(1, 3), 1_000)
    assert ended.kept(1_000 + KEPT_MS - 1) == live(2)
    assert ended.kept(1_000 + KEPT_MS) == {}


def test_it_is_forgotten_when_it_is_back() -> None:
    ended = EndedBrokers()
    ended.published(live(1, 2), live(1), 1_000)
    ended.published(live(1), live(1, 2), 1_100)
    assert ended.kept(1_100) == {}
    assert ended.expected(1_100, MAX_MS) == {}
