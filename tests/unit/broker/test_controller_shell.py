"""The controller's shell: race, load, write, command, answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

TP = TopicPartition("t", 0)


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def test_one_broker_becomes_the_controller_and_tells_everybody_everything(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.pass_time(500)
    assert three.controllers == [controller.broker_id]
    for one in three.brokers.values():
        assert "F" in one.script.kinds()
    node = three.read(layout.CONTROLLER)
    assert node is not None
    assert json.loads(node.data)["brokerid"] == controller.broker_id


def test_when_it_dies_another_takes_over_under_a_higher_epoch(three: ControllerHarness) -> None:
    first = three.controller()
    first.crash()
    three.until(lambda: len(three.controllers) == 1)
    second = three.controller()
    assert second is not first
    assert second.controller.controller_epoch == 2


def test_a_topic_is_created_and_its_replicas_are_told(three: ControllerHarness) -> None:
    controller = three.controller()
    result = three.create(controller, "t", (2, 3, 1))
    assert result.error_code == ErrorCode.NONE
    three.until(lambda: all(TP in one.script.roles() for one in three.brokers.values()))
    assert three.state(TP).leader == 2
    assert all(one.script.roles()[TP].is_new for one in three.brokers.values())


def test_the_leaders_death_moves_leadership(three: ControllerHarness) -> None:
    controller = three.controller()
    others = [one for one in (1, 2, 3) if one != controller.broker_id]
    three.create(controller, "t", (others[0], others[1], controller.broker_id))
    three.brokers[others[0]].crash()
    three.until(lambda: three.state(TP).leader == others[1])
    three.until(lambda: controller.script.roles()[TP].leader == others[1])


def test_the_death_of_a_leader_that_is_also_the_controller(three: ControllerHarness) -> None:
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


def test_a_topic_is_answered_when_every_broker_has_heard_of_it(three: ControllerHarness) -> None:
    controller = three.controller()
    three.pass_time(100)
    slow = next(one for one in three.brokers.values() if one is not controller)
    slow.script.silent = True
    answers = three.begin_create(controller, "t", (1, 2, 3))
    three.pass_time(300)
    assert answers == []
    assert three.children(layout.TOPICS) == ["t"]
    slow.script.silent = False
    three.until(lambda: bool(answers))
    assert any(one.topic_states for one in slow.script.of(UpdateMetadataRequest))


def test_a_client_does_not_wait_for_a_silent_broker_for_ever(three: ControllerHarness) -> None:
    controller = three.controller()
    three.pass_time(100)
    next(one for one in three.brokers.values() if one is not controller).script.silent = True
    answers = three.begin_create(controller, "t", (1, 2, 3))
    three.pass_time(1200)
    assert answers[0].topics[0].error_code == ErrorCode.NONE


def test_what_is_durable_is_answered_as_such_when_the_term_ends_first(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.pass_time(100)
    next(one for one in three.brokers.values() if one is not controller).script.silent = True
    answers = three.begin_create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    controller.controller.resign("test")
    assert answers[0].topics[0].error_code == ErrorCode.NONE


def test_a_controller_that_leaves_makes_room_at_once(three: ControllerHarness) -> None:
    controller = three.controller()
    controller.tasks.spawn("close", controller.controller.close())
    three.until(lambda: three.controllers not in ([], [controller.broker_id]), limit_ms=50)
    three.pass_time(300)
    assert controller.broker_id not in three.controllers


def test_a_topic_for_which_nobody_was_alive_begins_when_somebody_comes(
    three: ControllerHarness,
) -> None:
    three.controller()
    three.place_topic("t", {0: (2,)})
    three.until(lambda: three.children(layout.topic_partitions_path("t")) == ["0"])
    assert three.state(TP).leader == 2


def test_producer_ids_go_on_where_the_block_ended(three: ControllerHarness) -> None:
    controller = three.controller()
    controller.view.controller_id = controller.broker_id
    ids = controller.producer_ids
    assert ids.take() is None
    waited: list[int | None] = []

    async def wait() -> None:
        waited.append(await ids.wait())

    for _ in range(3):
        controller.tasks.spawn("wait", wait())
    three.until(lambda: len(waited) == 3)
    taken = [*waited, *(ids.take() for _ in range(1500))]
    three.pass_time(50)
    taken += [ids.take() for _ in range(10)]
    given = [one for one in taken if one is not None]
    assert given == list(range(len(given)))
    assert len(given) > 1000


def test_without_a_controller_a_client_is_told_to_try_again(three: ControllerHarness) -> None:
    waited: list[int | None] = []
    one = three.brokers[1]

    async def wait() -> None:
        waited.append(await one.producer_ids.wait())

    three.controller()
    one.tasks.spawn("wait", wait())
    three.until(lambda: bool(waited))
    assert waited == [None]
