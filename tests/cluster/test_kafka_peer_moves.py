"""A reassignment under way while Kafka's controller takes over from ours, and ours from Kafka's.

Brokers 1 and 2 are Kafka's of 3.9, broker 3 is ours. The broker to which a partition moves is
paused, so that the move is pending until the other controller is in office (R14).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.cluster.test_kafka_peers import (
    OURS,
    Peers,
    await_that,
    controller_of,
    produce,
    running_peers,
    values_of,
)
from tests.support.cluster.values import read_values

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

VALUES = values_of("before the move")


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    with running_peers(tmp_path_factory.mktemp("moves")) as made:
        yield made


def made(peers: Peers, name: str, *replicas: int) -> TopicPartition:
    """A partition with records in it."""
    tp = TopicPartition(name, 0)
    peers.make_topic(name, replicas)
    produce(peers.bootstrap, tp, VALUES)
    return tp


def asked(peers: Peers, broker: int, tp: TopicPartition, to: tuple[int, ...] | None) -> ErrorCode:
    """The outcome of a request through one broker, which knows the controller."""
    with BlockingClient(peers.brokers[broker].address, timeout_ms=30_000) as client:
        return client.reassign({tp: to})[tp].error


def moving(peers: Peers, broker: int) -> list[TopicPartition]:
    with BlockingClient(peers.brokers[broker].address, timeout_ms=30_000) as client:
        return sorted(client.list_reassignments())


def check_over(peers: Peers, broker: int, tp: TopicPartition, *replicas: int) -> None:
    """The partition has these replicas, all in sync, and every record."""
    await_that(partial(moving, peers, broker), lambda seen: tp not in seen, f"{tp} is over")
    await_that(
        lambda: peers.state(tp, broker),
        lambda seen: (
            seen is not None
            and tuple(seen.replicas) == replicas
            and sorted(seen.isr) == sorted(replicas)
        ),
        f"{tp} on {replicas}",
    )
    assert read_values(peers.brokers[broker].address, tp) == VALUES


@pytest.mark.rule("R14")
def test_we_finish_what_kafka_began_and_kafka_what_we_began(peers: Peers) -> None:
    assert controller_of(peers.brokers[OURS]) == 1
    tp = made(peers, "begun-by-kafka", 1, OURS)
    peers.brokers[2].pause()
    assert asked(peers, 1, tp, (OURS, 2)) is ErrorCode.NONE
    await_that(partial(moving, peers, 1), lambda seen: seen == [tp], "pending")
    peers.brokers[1].kill()
    peers.end_session(1, is_controller=True)
    await_that(lambda: controller_of(peers.brokers[OURS]), lambda seen: seen == OURS, "controller")
    await_that(partial(moving, peers, OURS), lambda seen: seen == [tp], "still pending")
    # Kafka's controller does not record the former replicas (R6).
    assert asked(peers, OURS, tp, None) is ErrorCode.INVALID_REQUEST
    peers.brokers[2].resume()
    check_over(peers, OURS, tp, OURS, 2)
    peers.brokers[1].start()
    # And back: one move is finished by Kafka, and one is cancelled there.
    finished, cancelled = made(peers, "begun-by-us", 1, OURS), made(peers, "taken-back", 1, OURS)
    await_that(lambda: controller_of(peers.brokers[1]), lambda seen: seen == OURS, "ours")
    peers.brokers[2].pause()
    for each in (finished, cancelled):
        assert asked(peers, OURS, each, (1, 2)) is ErrorCode.NONE
    await_that(
        partial(moving, peers, OURS), lambda seen: seen == [finished, cancelled], "both pending"
    )
    peers.brokers[OURS].stop()
    await_that(lambda: controller_of(peers.brokers[1]), lambda seen: seen == 1, "Kafka's again")
    await_that(
        partial(moving, peers, 1), lambda seen: seen == [finished, cancelled], "both pending there"
    )
    assert asked(peers, 1, cancelled, None) is ErrorCode.NONE
    peers.brokers[2].resume()
    peers.brokers[OURS].start()
    check_over(peers, 1, finished, 1, 2)
    check_over(peers, 1, cancelled, 1, OURS)
