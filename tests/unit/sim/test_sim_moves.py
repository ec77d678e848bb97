"""What the checker of published state says of reassignments."""

from __future__ import annotations

import json

import pytest
from tests.unit.sim.test_sim_checkers import TOPIC_ID, Setup

from tidelog.core.types import topic_id_to_text
from tidelog.metadata.store import ANY_VERSION, SetData


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
    assert topic.moving == {0: ((), (2, 3))}
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
