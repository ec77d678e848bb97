"""Topics that a new controller finds as nobody but an editor leaves them (V25)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.controller_builders import brokers, loaded, state, step, topic

from tidelog.controller.events import BrokersRead, TopicFound, TopicsRead


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
    [report] = effects.reports
    assert "topic 'edited' is left alone until its node is mended" in report and told in report
    writes, effects = step(controller, read, BrokersRead(brokers(1, 2)))
    assert effects.reports == [], "it was told"
    assert all(name.topic != "edited" for name, _ in effects.published)
