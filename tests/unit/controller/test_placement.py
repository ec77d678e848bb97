"""Where replicas of new topics go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.controller.values import broker

from tidelog.controller.partitions.placement import place
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import BrokerInfo


def racked(*racks: str | None) -> list[BrokerInfo]:
    return [broker(index, rack=rack) for index, rack in enumerate(racks)]


PLACEMENTS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(0, 10_000),
).filter(lambda drawn: drawn[2] <= len(drawn[0]))


@given(PLACEMENTS)
def test_every_partition_has_distinct_live_replicas(
    drawn: tuple[list[str | None], int, int, int],
) -> None:
    racks, partitions, replication_factor, seed = drawn
    placed = place(racked(*racks), partitions, replication_factor, seed)
    assert list(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(replicas) == len(set(replicas)) == replication_factor
        assert all(0 <= one < len(racks) for one in replicas)


@pytest.mark.rule("V21")
@given(PLACEMENTS)
def test_the_same_seed_places_alike(drawn: tuple[list[str | None], int, int, int]) -> None:
    racks, partitions, replication_factor, seed = drawn
    brokers = racked(*racks)
    once = place(brokers, partitions, replication_factor, seed)
    assert place(brokers[::-1], partitions, replication_factor, seed) == once


@pytest.mark.rule("V21")
@given(PLACEMENTS)
def test_leaders_are_spread_evenly(drawn: tuple[list[str | None], int, int, int]) -> None:
    racks, partitions, replication_factor, seed = drawn
    placed = place(racked(*racks), partitions, replication_factor, seed)
    led = Counter(replicas[0] for replicas in placed.values())
    assert max(led.values()) - min(led[one] for one in range(len(racks))) <= 1


@pytest.mark.rule("V21")
@given(PLACEMENTS)
def test_no_rack_gets_a_second_replica_while_another_has_none(
    drawn: tuple[list[str | None], int, int, int],
) -> None:
    racks, partitions, replication_factor, seed = drawn
    brokers = racked(*racks)
    rack_of = {one.broker_id: one.rack or f"own {one.broker_id}" for one in brokers}
    for replicas in place(brokers, partitions, replication_factor, seed).values():
        used = Counter(rack_of[one] for one in replicas)
        assert len(used) == min(replication_factor, len(set(rack_of.values())))


@pytest.mark.rule("V21")
@given(st.integers(1, 9), st.integers(1, 60), st.integers(1, 5), st.integers(0, 10_000))
def test_replicas_are_spread_evenly_without_racks(
    size: int, partitions: int, replication_factor: int, seed: int
) -> None:
    assume(replication_factor <= size)
    placed = place(racked(*[None] * size), partitions, replication_factor, seed)
    held = Counter(one for replicas in placed.values() for one in replicas)
    assert max(held.values()) - min(held[one] for one in range(size)) <= 2


def test_seeds_differ_in_who_leads_first() -> None:
    firsts = {place(racked(None, None, None), 1, 1, seed)[0] for seed in range(3)}
    assert len(firsts) == 3


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "code", "words"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, ["0"]),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, ["0"]),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR, ["4", "3"]),
    ],
)
def test_impossible_numbers_are_refused_by_name(
    partitions: int, replication_factor: int, code: ErrorCode, words: list[str]
) -> None:
    with pytest.raises(KafkaError) as caught:
        place(racked(None, None, None), partitions, replication_factor, 0)
    assert caught.value.code is code
    assert all(word in caught.value.message for word in words)


def _three() -> list[BrokerInfo]:
    return [broker(1), broker(2), broker(3)]


class TestMorePartitions:
    def test_they_are_numbered_after_those_that_are_there(self) -> None:
        added = place(_three(), 2, 2, 0, {0: (1, 2), 1: (2, 3)})
        assert list(added) == [2, 3]

    def test_leaders_go_on_round_the_brokers(self) -> None:
        added = place(_three(), 4, 1, 7, {0: (3,), 1: (1,)})
        assert [replicas[0] for replicas in added.values()] == [2, 3, 1, 2]

    def test_they_begin_anywhere_when_the_last_leader_is_gone(self) -> None:
        before = {0: (1,), 1: (9,)}
        starts = {place(_three(), 1, 1, seed, before)[2] for seed in range(3)}
        assert starts == {(1,), (2,), (3,)}

    def test_what_is_there_counts(self) -> None:
        """Broker 3 holds nothing yet: it follows, whoever leads."""
        before = dict.fromkeys(range(4), (1, 2))
        added = place(_three(), 2, 2, 0, before)
        assert all(3 in replicas for replicas in added.values())
