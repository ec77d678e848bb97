"""AlterPartition with anything in it; state nodes with wrong eligible replicas (A3, E1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    brokers,
    epoch,
    isr_answer,
    loaded,
    reports,
    state,
    state_writes,
    step,
    topic,
    topic_id,
)

from tidelog.controller.controller import Controller
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.readings import StatesRead, TopicsRead
from tidelog.controller.writes import Conflict
from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_partition import RequestTopicData

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
#: Each is one partition of a request, with the documented error.
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], ErrorCode]] = [
    ("a broker that does not exist", (1, 77), {}, ErrorCode.INVALID_REQUEST),
    ("a negative broker", (1, -1), {}, ErrorCode.INVALID_REQUEST),
    ("a broker outside the assignment", (1, 4), {}, ErrorCode.INVALID_REQUEST),
    ("a member twice", (1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
    ("the leader twice", (1, 1), {}, ErrorCode.INVALID_REQUEST),
    ("an empty ISR", (), {}, ErrorCode.INVALID_REQUEST),
    ("the leader missing", (2, 3), {}, ErrorCode.INVALID_REQUEST),
    ("a recovery state that does not exist", (1, 2), {"recovery": 7}, ErrorCode.INVALID_REQUEST),
    ("an earlier leader epoch", (1, 2), {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    ("a future leader epoch", (1, 2), {"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
    ("the last leader epoch", (1, 2), {"leader_epoch": INT32_MAX}, ErrorCode.NOT_CONTROLLER),
    ("a negative leader epoch", (1, 2), {"leader_epoch": -1}, ErrorCode.INVALID_REQUEST),
    ("an old partition epoch", (1, 2), {"partition_epoch": 9}, ErrorCode.INVALID_UPDATE_VERSION),
    ("a future partition epoch", (1, 2), {"partition_epoch": 11}, ErrorCode.NOT_CONTROLLER),
    ("a negative partition epoch", (1, 2), {"partition_epoch": -2}, ErrorCode.INVALID_REQUEST),
    ("a dead member's epoch", (1, (2, epoch(2, life=2))), {}, ErrorCode.INELIGIBLE_REPLICA),
    ("a future broker epoch", (1, (2, INT64_MAX)), {}, ErrorCode.INELIGIBLE_REPLICA),
    ("a negative broker epoch", (1, (2, -7)), {}, ErrorCode.INELIGIBLE_REPLICA),
    (
        "a topic id that does not exist",
        (1, 2),
        {"of_topic": topic_id("t", 9)},
        ErrorCode.UNKNOWN_TOPIC_ID,
    ),
    ("no topic id", (1, 2), {"of_topic": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
    (
        "a partition that does not exist",
        (1, 2),
        {"partition": 9},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    ("a negative partition", (1, 2), {"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
]
NAMES = [name for name, *_ in WRONG]


def two_partitions() -> Controller:
    of_topic = topic(assignments={0: (1, 2, 3), 1: (1, 2, 3)})
    return loaded(TopicFound(of_topic, {0: state(), 1: state()}), live=brokers(1, 2, 3, 4))


@pytest.mark.rule("A3")
@pytest.mark.parametrize(("name", "members", "how", "code"), WRONG, ids=NAMES)
def test_half_of_a_request_may_be_wrong_and_the_other_half_is_done(
    name: str, members: tuple[Any, ...], how: dict[str, Any], code: ErrorCode
) -> None:
    controller = two_partitions()
    asked = alter(*members, **how)
    asked.request.topics.append(alter(1, 2, partition=1).request.topics[0])
    writes, effects = step(controller, asked)
    answer = answer_of(effects)
    assert answer.error_code == ErrorCode.NONE
    outcomes = [one.error_code for of_topic in answer.topics for one in of_topic.partitions]
    assert outcomes == [code, ErrorCode.NONE]
    # What the leader takes for final is made so; all else leaves the node alone.
    written = {tp: held.isr for tp, held in state_writes(writes).items()}
    final = {TP: (1, 2, 3)} if code is ErrorCode.INELIGIBLE_REPLICA else {}
    assert written == {**final, TopicPartition("t", 1): (1, 2)}


SECOND: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("the same again", (1, 2), {}),
    ("another ISR", (1, 3), {}),
    ("a change of the state that the first one makes", (1,), {"partition_epoch": 11}),
]


@pytest.mark.rule("A3", "A4")
@pytest.mark.parametrize(("name", "members", "how"), SECOND, ids=[name for name, *_ in SECOND])
@pytest.mark.parametrize("in_one_topic", [True, False])
def test_a_partition_that_is_named_twice_is_changed_once(
    name: str, members: tuple[Any, ...], how: dict[str, Any], in_one_topic: bool
) -> None:
    asked = alter(1, 2)
    (second,) = alter(*members, **how).request.topics
    if in_one_topic:
        asked.request.topics[0].partitions += second.partitions
    else:
        asked.request.topics.append(second)
    writes, effects = step(two_partitions(), asked)
    outcomes = [one.error_code for each in answer_of(effects).topics for one in each.partitions]
    assert outcomes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    (written,) = writes
    assert state_writes([written])[TP].isr == (1, 2)


@pytest.mark.rule("A3", "A4")
def test_a_change_of_a_state_that_is_not_written_yet_is_not_made() -> None:
    """No leader can know the epoch of a state that this same decision is about to write."""
    controller = two_partitions()
    controller.offer(alter(1, 2))
    writes, effects = step(controller, alter(1, partition_epoch=11, ticket=2))
    (written,) = writes
    assert state_writes([written])[TP].isr == (1, 2)
    assert isr_answer(effects, 2).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.rule("A3")
def test_a_request_may_name_nothing() -> None:
    asked = alter(1, 2)
    asked.request.topics[:] = [RequestTopicData(topic_id("t"))]
    writes, effects = step(two_partitions(), asked)
    assert (writes, answer_of(effects).error_code) == ([], ErrorCode.NONE)


@pytest.mark.rule("A2")
@pytest.mark.parametrize(
    ("count", "error"),
    [
        (MAX_PARTITIONS_PER_REQUEST, ErrorCode.NONE),
        (MAX_PARTITIONS_PER_REQUEST + 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_for_more_partitions_than_its_sender_hosts_is_refused_whole(
    count: int, error: ErrorCode
) -> None:
    asked = alter(1, 2)
    (data,) = asked.request.topics[0].partitions
    unknown = [replace(data, partition_index=number) for number in range(1, count)]
    asked.request.topics[0].partitions += unknown
    writes, effects = step(loaded(), asked)
    answer = answer_of(effects)
    assert answer.error_code == error
    named = sum(len(each.partitions) for each in answer.topics)
    assert (named, len(writes)) == ((count, 1) if error is ErrorCode.NONE else (0, 0))


# State nodes


@pytest.mark.rule("E1")
def test_eligible_replicas_outside_the_assignment_are_named_and_ignored() -> None:
    wrong = state((1,), elr={9: 900, 2: epoch(2)})
    controller = loaded()
    found = TopicFound(topic("u"), {0: wrong})
    _, effects = step(controller, TopicsRead(["t", "u"], [found]))
    [line] = reports(effects)
    assert "partition u-0" in line and "[9]" in line and "[1, 2, 3]" in line
    held = controller.image.states[TopicPartition("u", 0)]
    assert 9 not in eligible_replicas.members(held)


@pytest.mark.rule("E1")
def test_they_are_ignored_in_a_node_that_was_repaired_or_written_by_another() -> None:
    controller = loaded(TopicFound(topic(), {}, {0: "not JSON"}))
    wrong = state((1, 2, 3), elr={9: 900})
    _, effects = step(controller, StatesRead({TP: wrong}))
    assert ["[9]" in line for line in reports(effects)] == [True]
    assert controller.image.states[TP].elr == ()
    other = state((1, 3), partition_epoch=12, elr={8: 800})
    _, effects = step(controller, alter(1, 2), outcomes={0: Conflict(state=other)})
    assert ["[8]" in line for line in reports(effects)] == [True]
    assert controller.image.states[TP].elr == ()
