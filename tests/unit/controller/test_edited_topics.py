"""Topics that a new controller finds as nobody but an editor leaves them (V25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.controller.values import (
    TP,
    brokers,
    delete,
    loaded,
    published,
    reports,
    state,
    step,
    topic,
    topic_id,
    vanished,
)

from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.readings import TopicsRead
from tidelog.core.types import TopicPartition


@pytest.mark.rule("V25")
@pytest.mark.parametrize(
    ("assignments", "isr", "told"),
    [
        ({0: (1, 2, 3), 2: (1, 2, 3)}, (1, 2, 3), "its partitions are [0, 2]: numbers 0 to n-1"),
        ({1: (1, 2)}, (1,), "its partitions are [1]: numbers 0 to n-1 expected, at least one"),
        ({0: (1, 2)}, (1, 2, 3), "partition 0 are [1, 2], and [3] of the ISR [1, 2, 3]"),
    ],
)
def test_such_a_topic_is_named_once_and_left_alone(
    assignments: dict[int, tuple[int, ...]], isr: Sequence[int], told: str
) -> None:
    controller = loaded()
    found = TopicFound(topic("edited", assignments), {0: state(tuple(isr))})
    read = TopicsRead(("t", "edited"), (found,))
    writes, effects = step(controller, read)
    assert writes == []
    [report] = reports(effects)
    assert "topic 'edited' is left alone until its node is repaired" in report and told in report
    writes, effects = step(controller, read, BrokersRead(brokers(1, 2)))
    assert reports(effects) == [], "it was told"
    assert all(name.topic != "edited" for name, _ in published(effects))


@pytest.mark.rule("V25")
def test_a_topic_in_another_ones_place_makes_all_of_that_ones_replicas_strays() -> None:
    controller = loaded(TopicFound(topic(assignments={0: (1, 2, 3), 1: (1, 2, 3)}), {0: state()}))
    another = TopicFound(replace(topic(), topic_id=topic_id("another")), {})
    _, effects = step(controller, TopicsRead(("t",), (another,)))
    assert sorted(effects.commands) == [1, 2, 3]
    for told in effects.commands.values():
        assert told.full and list(told.roles) == [TP]


@pytest.mark.rule("V25")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_topic_whose_node_is_gone_is_stray_unless_it_is_being_deleted(is_deleted: bool) -> None:
    controller = loaded()
    if is_deleted:
        for _ in step(controller, delete("t")), step(controller):
            assert "t" in controller.image.deletions
    _, effects = step(controller, TopicsRead((), ()))
    assert vanished(effects) == ([] if is_deleted else ["t"])
    assert all(told.full is not is_deleted for told in effects.commands.values())
    assert "t" not in controller.image.topics


@pytest.mark.rule("V25", "E1")
def test_a_state_of_a_partition_that_the_node_does_not_name_is_no_fact() -> None:
    controller = loaded()
    stray = state((1,), elr={9: 900})
    newer = state((1, 2), partition_epoch=11, elr={9: 900})
    writes, effects = step(
        controller, TopicsRead(["t"], [TopicFound(topic(), {0: newer, 7: stray})])
    )
    assert writes == []
    [report] = reports(effects)
    assert "partition t-0" in report, "nothing is said of partition 7"
    assert controller.image.states.keys() == {TP}
    assert TopicPartition("t", 7) not in {name for name, _ in published(effects)}
    assert (controller.image.states[TP].isr, controller.image.states[TP].elr) == ((1, 2), ())
