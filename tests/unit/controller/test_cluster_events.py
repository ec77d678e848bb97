"""What is told of a change of state, and why it is said to have come."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.controller_builders import TP, broker, brokers, state, topic_id

from tidelog.controller import cluster_events
from tidelog.controller.cluster_events import ClusterEvent, StateChange, of_state
from tidelog.core.types import NO_LEADER, RECOVERING, PartitionState

BEFORE = state((1, 2, 3))


def told(
    before: PartitionState | None,
    after: PartitionState,
    live: tuple[int, ...] = (1, 2, 3),
    *,
    asked_by_leader: bool = False,
    preferred: int = 1,
) -> ClusterEvent | None:
    change = StateChange(TP, topic_id("t"), before, after, asked_by_leader)
    return of_state(change, brokers(*live), preferred, 7)


def next_state(
    leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), *, epoch: int = 1, recovery: int = 0
) -> PartitionState:
    return replace(
        BEFORE,
        leader=leader,
        isr=isr,
        leader_epoch=BEFORE.leader_epoch + epoch,
        partition_epoch=BEFORE.partition_epoch + 1,
        leader_recovery_state=recovery,
    )


@pytest.mark.parametrize(
    ("before", "after", "live", "cause"),
    [
        (None, next_state(), (1, 2, 3), "created"),
        (BEFORE, next_state(2, (2, 3)), (2, 3), "leader_gone"),
        (BEFORE, next_state(NO_LEADER), (), "nobody_in_sync_alive"),
        (replace(BEFORE, leader=NO_LEADER), next_state(2, (2,)), (2,), "replica_returned"),
        (BEFORE, next_state(3, (3,), recovery=RECOVERING), (3,), "unclean"),
        (replace(BEFORE, leader=2), next_state(1), (1, 2, 3), "preferred"),
        (BEFORE, next_state(2), (1, 2, 3), "leader_unfit"),
    ],
)
def test_the_cause_of_a_leader_change(
    before: PartitionState | None, after: PartitionState, live: tuple[int, ...], cause: str
) -> None:
    event = told(before, after, live)
    assert event is not None
    assert (event.kind, event.fields["cause"]) == ("leader_change", cause)


def test_a_leader_that_restarted_begins_another_term() -> None:
    change = StateChange(TP, topic_id("t"), BEFORE, next_state())
    event = of_state(change, brokers(broker(1, life=2), 2, 3), 1, 7)
    assert event is not None
    assert (event.kind, event.fields["cause"]) == ("leader_change", "leader_restarted")


@pytest.mark.parametrize(
    ("before", "after", "live", "asked", "cause"),
    [
        ((1, 2, 3), (1, 2), (1, 2, 3), True, "fell_behind"),
        ((1, 2), (1, 2, 3), (1, 2, 3), True, "caught_up"),
        ((1, 2, 3), (1, 2), (1, 2), False, "member_gone"),
        ((1, 2, 3), (1, 2), (1, 2, 3), False, "member_unfit"),
    ],
)
def test_the_cause_of_an_isr_change(
    before: tuple[int, ...], after: tuple[int, ...], live: tuple[int, ...], asked: bool, cause: str
) -> None:
    event = told(state(before), next_state(isr=after, epoch=0), live, asked_by_leader=asked)
    assert event is not None
    assert (event.kind, event.fields["cause"]) == ("isr_change", cause)
    assert event.fields["previous_isr"] == list(before)


def test_a_refusal_that_passes_the_partition_epoch_changes_nothing_for_readers() -> None:
    assert told(BEFORE, next_state(epoch=0), asked_by_leader=True) is None


def test_a_key_names_the_event_and_the_value_is_one_document() -> None:
    event = told(BEFORE, next_state(2, (2, 3)), (2, 3))
    assert event is not None
    assert event.key.decode().split("/")[0::3] == ["leader_change", str(BEFORE.leader_epoch + 1)]
    document = json.loads(event.value(9, 1_234))
    assert document["version"] == 1 and document["told_by"] == 9 and document["time_ms"] == 1_234
    assert document["kind"] == "leader_change" and document["isr"] == [2, 3]


def test_who_proves_a_shutdown_is_told_to_have_shut_down() -> None:
    kinds = [one.kind for one in cluster_events.registered(broker(2), 7)]
    assert kinds == ["registration"]
    back = cluster_events.registered(broker(2, life=2, previous_broker_epoch=17), 7)
    assert [(one.kind, one.fields["broker_epoch"]) for one in back] == [
        ("shutdown", 17),
        ("registration", broker(2, life=2).broker_epoch),
    ]


def test_every_kind_is_listed() -> None:
    assert len(dict.fromkeys(cluster_events.KINDS)) == len(cluster_events.KINDS) == 11
