"""A `/controller` node whose owner does not act is noticed, and goes: V42.

Real shells on the simulated store, whose client can be made to lose a response; brokers are
scripted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, Delete, Node, Op, SetData

TP = TopicPartition("t", 0)
#: Of no session of the harness's brokers.
SOMEBODY = b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}'


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3, controller_activity_timeout_ms="2000") as made:
        yield made


def owner(around: ControllerHarness) -> int | None:
    node = around.server.tree.get(layout.CONTROLLER)
    return None if node is None else node.stat.ephemeral_owner


def is_led(around: ControllerHarness) -> bool:
    """Whether the owner of the node acts as the controller."""
    return [one.store.session_id for one in around.brokers.values() if one.is_controller] == [
        owner(around)
    ]


@pytest.mark.rule("V42")
@pytest.mark.parametrize("path", [layout.CONTROLLER_EPOCH, layout.TOPICS])
def test_a_controller_that_the_store_never_answers_gives_up_and_another_term_begins(
    three: ControllerHarness, path: str
) -> None:
    controller = three.controller()
    epoch = controller.controller.controller_epoch
    session_id = controller.store.session_id
    controller.store.forgotten_path = path
    if path == layout.TOPICS:
        three.write(Create(f"{layout.TOPICS}/elsewhere", b"{"))
        three.until(lambda: not controller.store.forgotten_path)
    answers = three.begin_create(controller, "t", (1, 2, 3))
    three.until(lambda: not controller.is_controller)
    three.until(lambda: is_led(three))
    assert controller.store.session_id == session_id, "no session had to end for that"
    flows = [name for name in controller.tasks._running.values() if name == "controller"]
    assert len(flows) == 1, "what was given up does not go on if the answer comes after all"
    [result] = answers[0].topics
    assert result.error_code == ErrorCode.NOT_CONTROLLER, "who waited is told to look elsewhere"
    [found] = three.controllers
    assert three.brokers[found].controller.controller_epoch > epoch
    three.create(three.brokers[found], "u", (1, 2, 3))
    three.until(
        lambda: all(TopicPartition("u", 0) in one.script.roles() for one in three.brokers.values())
    )


@pytest.mark.rule("V42")
def test_who_never_hears_of_its_election_does_not_keep_the_node(three: ControllerHarness) -> None:
    controller = three.controller()
    others = [one for one in three.brokers.values() if one is not controller]
    for one in others:
        one.store.forgotten_path = layout.CONTROLLER_EPOCH
    controller.crash()
    three.until(lambda: owner(three) in [one.store.session_id for one in others])
    assert three.controllers == [], "elected, and nobody knows"
    three.until(lambda: is_led(three))


@pytest.mark.rule("V42")
def test_a_node_of_the_own_session_that_no_controller_acts_for_is_found_without_a_watch(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    one = next(each for each in three.brokers.values() if each is not controller)
    # Its watch of the node is gone, as if it had been lost; it will hear of nothing.
    one.store._session.watches.clear()  # type: ignore[union-attr]  # the session is open
    session_id = one.store.session_id
    assert session_id is not None
    ops: list[Op] = [
        Delete(layout.CONTROLLER, ANY_VERSION),
        Create(layout.CONTROLLER, SOMEBODY, ephemeral=True),
    ]
    three.server.tree.transact(ops, session_id)
    assert owner(three) == session_id and not one.is_controller
    three.until(lambda: is_led(three))


@pytest.mark.rule("V42")
def test_a_store_that_cannot_be_reached_ends_no_term_of_a_controller(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    term = controller.controller.controller_epoch
    names = [f"b{broker_id}" for broker_id in three.brokers]
    three.server.may_expire = lambda _: False
    three.cut_off.extend(names)
    three.begin_create(controller, "t", (1, 2, 3))
    three.pass_time(10_000)
    assert controller.is_controller
    three.cut_off.clear()
    three.until(lambda: TP in controller.script.roles())
    assert controller.controller.controller_epoch == term


@pytest.mark.rule("V42")
def test_an_idle_controller_stays_and_looks_at_its_claim(three: ControllerHarness) -> None:
    controller = three.controller()
    three.pass_time(10_000)
    assert three.controllers == [controller.broker_id]
    assert controller.controller.controller_epoch == 1


@pytest.mark.rule("V42")
def test_giving_up_the_office_never_takes_it_from_who_came_next(three: ControllerHarness) -> None:
    controller = three.controller()
    other = next(one for one in three.brokers.values() if one is not controller)
    session_id = other.store.session_id
    assert session_id is not None
    get_many = controller.store.get_many

    async def overtaken(paths: Sequence[str]) -> list[Node | None]:
        """Between looking and removing another one is elected."""
        nodes = await get_many(paths)
        ops: list[Op] = [
            Delete(layout.CONTROLLER, ANY_VERSION),
            Create(layout.CONTROLLER, SOMEBODY, ephemeral=True),
            SetData(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(2), ANY_VERSION),
        ]
        three.server.tree.transact(ops, session_id)
        return nodes

    controller.store.get_many = overtaken  # type: ignore[method-assign]  # replaced by the test
    closing = controller.tasks.spawn("close", controller.controller.close())
    three.until(closing.done)
    assert owner(three) == session_id
