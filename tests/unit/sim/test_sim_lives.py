"""Checkers know lives of partitions: removed when asked for, begun anew above all before."""

from __future__ import annotations

import json

import pytest
from tests.unit.sim.test_sim_checkers import TOPIC_ID, Setup

from tidelog.core.types import topic_id_to_text
from tidelog.metadata.store import ANY_VERSION, Create, SetData


@pytest.fixture
def setup() -> Setup:
    return Setup()


class Removal:
    """Partition t-1, which is removed and added again."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.version = -1
        self.count(2)
        self.state(1, 0, [1, 2, 3])

    def count(self, partitions: int) -> None:
        topic = {"version": 3, "topic_id": topic_id_to_text(TOPIC_ID)}
        topic["partitions"] = {str(number): [1, 2, 3] for number in range(partitions)}
        self.setup.commit(SetData("/brokers/topics/t", json.dumps(topic).encode(), ANY_VERSION))

    def ask(self) -> None:
        self.setup.commit(Create("/admin/partitions_remove/t/1", b""))

    def state(self, leader: int, epoch: int, isr: list[int], first: int = 0) -> None:
        self.version += 1
        value = {"leader": leader, "leader_epoch": epoch, "isr": isr, "controller_epoch": 1}
        if first:
            value["first_epochs"] = [first, self.version]
        path = "/brokers/topics/t/partitions/1/state"
        data = json.dumps(value).encode()
        op = SetData(path, data, ANY_VERSION) if self.version else Create(path, data)
        self.setup.commit(op, self.version)


@pytest.mark.rule("V71")
def test_a_partition_that_was_asked_to_be_removed_may_go_and_begin_anew(setup: Setup) -> None:
    removal = Removal(setup)
    removal.ask()
    removal.state(-1, 1, [])
    removal.count(1)
    removal.count(2)
    removal.state(2, 2, [2, 3], first=2)
    removal.state(3, 3, [3], first=2)
    assert setup.violations == []
    published = setup.published
    latest = published.key(TOPIC_ID, 1)
    assert (latest.life, published.key(TOPIC_ID, 1, 1).life) == (2, 0)
    assert published.is_over(published.key(TOPIC_ID, 1, 1))
    assert not published.is_over(latest)
    assert published.partitions[latest].leader == 3


@pytest.mark.rule("V71")
@pytest.mark.parametrize(
    ("is_asked", "epoch", "told"),
    [
        (True, 1, "leader epoch 1 of its former life is not below 1 of the next"),
        (False, 2, "t-1: empty ISR"),
    ],
)
def test_a_life_that_begins_as_it_must_not_is_told(
    setup: Setup, is_asked: bool, epoch: int, told: str
) -> None:
    removal = Removal(setup)
    if is_asked:
        removal.ask()
    removal.state(-1, 1, [])
    removal.state(2, epoch, [2, 3], first=epoch)
    assert told in setup.violations[0]


@pytest.mark.rule("V71")
def test_a_life_that_begins_while_the_last_one_lasts_is_told(setup: Setup) -> None:
    removal = Removal(setup)
    removal.state(2, 2, [2, 3], first=2)
    assert setup.violations == ["t-1 begins again without a removal (V71)"]
