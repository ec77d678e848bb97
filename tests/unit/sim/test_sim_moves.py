"""What the checker of published state says of reassignments."""

from __future__ import annotations

import json

import pytest
from tests.unit.sim.test_sim_checkers import KEY, TOPIC_ID, Setup

from tidelog.core.types import topic_id_to_text
from tidelog.metadata.store import ANY_VERSION, SetData
from tidelog.sim.observed.moves import PublishedMove
from tidelog.sim.observed.published_state import PublishedPartition, copies_lost


@pytest.fixture
def setup() -> Setup:
    return Setup()


@pytest.mark.rule("V52")
def test_who_is_assigned_no_more_was_to_go_and_is_out_of_the_isr(setup: Setup) -> None:
    left: list[tuple[int, int]] = []
    setup.published.on_left.append(lambda _, replica, since: left.append((replica, since)))

    def write(replicas: list[int], removing: list[int]) -> None:
        topic = {"version": 3, "topic_id": topic_id_to_text(TOPIC_ID)}
        moved = {"partitions": {"0": replicas}, "removing_replicas": {"0": removing}}
        data = json.dumps({**topic, **moved}).encode()
        setup.commit(SetData("/brokers/topics/t", data, ANY_VERSION))

    write([1, 2, 3], [2, 3])
    topic = setup.published.topics["t"]
    assert topic.moving == {0: PublishedMove((), (2, 3), ())}
    setup.state(1, 1, [1, 2], [11, 12])
    write([1, 2], [2])
    assert setup.violations == []
    assert [replica for replica, _ in left] == [3]
    write([1], [])
    assert setup.violations == ["t-0: [2] of the ISR are assigned no more (V52)"]
    write([1, 2], [])
    setup.violations.clear()
    setup.state(1, 2, [1], [11])
    write([1], [])
    assert setup.violations == ["t-0: 2 is assigned no more without a reassignment (V52)"]
    assert topic.fewest == {0: 1}


def write_move(
    setup: Setup, replicas: list[int], adding: list[int], removing: list[int], original: list[int]
) -> None:
    """The node of the topic with one partition, which is moved where a list is not empty."""
    lists = {"adding": adding, "removing": removing, "original": original}
    value = {
        "version": 3,
        "topic_id": topic_id_to_text(TOPIC_ID),
        "partitions": {"0": replicas},
        **{f"{name}_replicas": {"0": each} if each else {} for name, each in lists.items()},
    }
    setup.commit(SetData("/brokers/topics/t", json.dumps(value).encode(), ANY_VERSION))


@pytest.mark.rule("R3")
def test_a_cancelled_move_ends_with_the_original_list(setup: Setup) -> None:
    write_move(setup, [4, 1, 2, 3], [4], [1, 2, 3], [1, 2, 3])
    write_move(setup, [2, 1, 3, 4], [], [4], [1, 2, 3])
    write_move(setup, [2, 1, 3], [], [], [])
    assert setup.violations == ["t-0: it was moved back to (2, 1, 3), it began as (1, 2, 3) (R3)"]


@pytest.mark.rule("R10")
def test_the_original_replicas_stay_recorded(setup: Setup) -> None:
    write_move(setup, [4, 1, 2, 3], [4], [1], [1, 2, 3])
    write_move(setup, [5, 4, 1, 2, 3], [5, 4], [1, 4], [4, 1, 2, 3])
    assert setup.violations == [
        "t-0: its original replicas (1, 2, 3) became (4, 1, 2, 3) (R10)",
    ]


@pytest.mark.rule("V52")
def test_a_move_ends_with_its_target(setup: Setup) -> None:
    write_move(setup, [1, 2, 3], [], [3], [1, 2, 3])
    setup.state(1, 1, [1, 2], [11, 12])
    write_move(setup, [2, 1], [], [], [])
    assert setup.violations == ["t-0: its reassignment to (1, 2) ended with (2, 1) (V52)"]


@pytest.mark.rule("R3")
def test_the_state_that_ends_a_move_keeps_the_copies() -> None:
    def state(members: tuple[int, ...], target: tuple[int, ...] = ()) -> PublishedPartition:
        return PublishedPartition(KEY, 1, 0, 0, members, None, reassigned_to=target)

    two = state((1, 4))
    assert copies_lost(two, state((1, 2), (1, 2)), 2) == ""
    assert copies_lost(state((1,)), state((1,), (1, 2)), 2) == "", "there were no more"
    assert copies_lost(two, state((1,)), 2) == "", "no move ends here"
    assert copies_lost(two, state((1,), (1, 2)), 2) == (
        "the reassignment to (1, 2) ends with copies of committed records on (1,), of (1, 4), where"
        " 2 are the minimum (R3)"
    )
