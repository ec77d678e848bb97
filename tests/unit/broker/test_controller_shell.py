"""The controller's shell: race, load, write, command, answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.controller_office import Office, office

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout

TP = TopicPartition("t", 0)


@pytest.fixture
def three() -> Iterator[Office]:
    with office(3) as made:
        yield made


def test_one_broker_becomes_the_controller_and_tells_everybody_everything(three: Office) -> None:
    controller = three.controller()
    three.pass_time(500)
    assert three.controllers == [controller.broker_id]
    for one in three.brokers.values():
        assert "F" in one.script.kinds()
    node = three.read(layout.CONTROLLER)
    assert node is not None
    claim = layout.decode_controller(layout.CONTROLLER, node.data)
    assert claim.broker_id == controller.broker_id


def test_when_it_dies_another_takes_over_under_a_higher_epoch(three: Office) -> None:
    first = three.controller()
    first.crash()
    three.until(lambda: len(three.controllers) == 1)
    second = three.controller()
    assert second is not first
    assert second.controller.controller_epoch == 2


def test_a_topic_is_created_and_its_replicas_are_told(three: Office) -> None:
    controller = three.controller()
    result = three.create(controller, "t", (2, 3, 1))
    assert result.error_code == ErrorCode.NONE
    three.until(lambda: all(TP in one.script.roles() for one in three.brokers.values()))
    assert three.state(TP).leader == 2
    assert all(one.script.roles()[TP].is_new for one in three.brokers.values())


def test_the_leaders_death_moves_leadership(three: Office) -> None:
    controller = three.controller()
    others = [one for one in (1, 2, 3) if one != controller.broker_id]
    three.create(controller, "t", (others[0], others[1], controller.broker_id))
    three.brokers[others[0]].crash()
    three.until(lambda: three.state(TP).leader == others[1])
    three.until(lambda: controller.script.roles()[TP].leader == others[1])


def test_the_death_of_a_leader_that_is_also_the_controller(three: Office) -> None:
    controller = three.controller()
    others = [one for one in (1, 2, 3) if one != controller.broker_id]
    three.create(controller, "t", (controller.broker_id, *others))
    began_ns = three.world.now_ns
    controller.crash()
    three.until(
        lambda: all(
            TP in three.brokers[one].script.roles()
            and three.brokers[one].script.roles()[TP].leader == others[0]
            for one in others
        )
    )
    assert (three.world.now_ns - began_ns) / 1e6 < 50
