"""Reassignments in the cluster events: R16 (their begins and ends), V80 (after the write).

Real controllers on the simulated store.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.controller.harness import (
    Candidate,
    ControllerHarness,
    controller_harness,
    others,
)
from tests.support.controller.values import TP, reassign

from tidelog.controller.cluster_events import ClusterEvent
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)


@pytest.fixture
def four() -> Iterator[ControllerHarness]:
    with controller_harness(4, cluster_events_enable="true") as made:
        yield made


def recorded(around: ControllerHarness) -> list[ClusterEvent]:
    """Reassignments that brokers record from now on, in order."""
    found: list[ClusterEvent] = []

    def now(_: int, events: Iterator[ClusterEvent | None]) -> None:
        found.extend(
            event
            for event in events
            if event is not None and event.kind.startswith("reassignment_")
        )

    for each in around.brokers.values():
        each.cluster_events.record_later = now  # type: ignore[method-assign,assignment]  # recorded
    return found


def not_controller() -> AlterPartitionReassignmentsResponse:
    """What a broker that is not the controller says."""
    return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)


def move(around: ControllerHarness, controller: Candidate, target: list[int] | None) -> None:
    """The controller accepts a target for t-0, or a cancel."""
    asked = reassign(TP, target).request
    answer = around.answer(controller, lambda shell: shell.ask(asked, not_controller))
    assert [each.error_code for each in answer.responses[0].partitions] == [0]


@pytest.mark.rule("R16", "V80")
def test_the_begin_and_the_end_of_a_reassignment_are_recorded(four: ControllerHarness) -> None:
    controller = four.controller()
    first, second, third = (each.broker_id for each in others(four, controller))
    four.create(controller, "t", (first, second, third))
    four.pass_time(100)
    events = recorded(four)
    move(four, controller, [first, third])
    four.until(lambda: len(events) == 2)
    begun, ended = events
    assert (begun.kind, ended.kind) == ("reassignment_begun", "reassignment_ended")
    assert (begun.fields["topic"], begun.fields["partition"]) == (TP.topic, TP.partition)
    assert [begun.fields[name] for name in ("replicas", "adding", "removing", "original")] == [
        [first, third],
        [],
        [second],
        [first, second, third],
    ]
    assert ended.fields["replicas"] == [first, third]
    assert 0 < begun.fields["zxid"] < ended.fields["zxid"]


@pytest.mark.rule("R16", "V80", "R3")
def test_a_cancel_begins_the_way_back(four: ControllerHarness) -> None:
    controller = four.controller()
    first, second, third = (each.broker_id for each in others(four, controller))
    four.create(controller, "t", (first, second))
    four.pass_time(100)
    events = recorded(four)
    # No leader asks for an ISR with the added replica: the move goes on until it is cancelled.
    move(four, controller, [third, first])
    four.until(lambda: len(events) == 1)
    move(four, controller, None)
    four.until(lambda: len(events) == 3)
    there, back, ended = events
    assert (there.fields["adding"], there.fields["removing"]) == ([third], [second])
    assert back.kind == "reassignment_begun"
    assert back.fields["replicas"] == back.fields["original"] == [first, second]
    assert (back.fields["adding"], back.fields["removing"]) == ([], [third])
    assert ended.fields["replicas"] == [first, second]
    assert len(dict.fromkeys(event.key for event in events)) == 3
