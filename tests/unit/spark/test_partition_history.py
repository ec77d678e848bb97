"""States of a partition from its events: what they prove, and what they do not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.spark.pipelines.analyze.partition_history import (
    Handover,
    ObservedChange,
    PartitionHistory,
    Scope,
    Snapshot,
    State,
    partition_history,
    windowed,
)

#: From 0 to 1000, with complete events, and no cluster to ask.
SCOPE = Scope(0, 1_000, 0, False)
ASKED = Scope(0, 1_000, 0, True)


def leads(
    time_ms: int,
    leader: int,
    isr: Sequence[int],
    epoch: int,
    *,
    before: tuple[int, Sequence[int]] = (-1, ()),
    cause: str = "leader_gone",
    topic_id: str = "id",
    left: Sequence[tuple[int, str]] = (),
    partition_epoch: int | None = None,
) -> ObservedChange:
    """A leader change; `before` is the former leader with its ISR."""
    return ObservedChange(
        topic_id,
        time_ms,
        leader,
        tuple(isr),
        epoch,
        epoch if partition_epoch is None else partition_epoch,
        before[0],
        tuple(before[1]),
        cause,
        tuple(left),
    )


def created(time_ms: int, isr: Sequence[int], topic_id: str = "id") -> ObservedChange:
    return leads(time_ms, isr[0], isr, 0, cause="created", topic_id=topic_id)


def isr_is(
    time_ms: int,
    isr: Sequence[int],
    before: Sequence[int],
    epochs: tuple[int, int],
    left: Sequence[tuple[int, str]] = (),
) -> ObservedChange:
    """A change of the ISR; `epochs` are those of leader and partition."""
    leader = isr[0]
    return ObservedChange(
        "id",
        time_ms,
        leader,
        tuple(isr),
        *epochs,
        None,
        tuple(before),
        "fell_behind",
        tuple(left),
    )


def judged(
    *changes: ObservedChange,
    snapshot: Snapshot | None = None,
    handovers: Sequence[Handover] = (),
    scope: Scope = SCOPE,
    min_isr: int = 2,
) -> PartitionHistory:
    return partition_history(changes, snapshot, handovers, scope, min_isr)


def spans(history: PartitionHistory) -> list[tuple[int, int, State]]:
    return [(each.start_ms, each.end_ms, each.state) for each in history.intervals]


def test_a_whole_life() -> None:
    found = judged(
        created(100, [1, 2, 3]),
        isr_is(200, [1, 2], [1, 2, 3], (0, 1), [(3, "slow")]),
        isr_is(300, [1], [1, 2], (0, 2), [(2, "no_fetch")]),
        leads(400, -1, [1], 3, before=(1, [1])),
        leads(500, 1, [1], 4, before=(-1, [1]), cause="replica_returned"),
        isr_is(600, [1, 2], [1], (4, 5)),
    )
    assert spans(found) == [
        (0, 100, State.ABSENT),
        (100, 200, State.ACKNOWLEDGING),
        (200, 300, State.ACKNOWLEDGING),
        (300, 400, State.UNDER_MIN_ISR),
        (400, 500, State.NO_LEADER),
        (500, 600, State.UNDER_MIN_ISR),
        (600, 1_000, State.ACKNOWLEDGING),
    ]
    assert (found.missed, found.clock_step_ms) == (0, 0)
    assert [(e.broker, e.cause, e.start_ms, e.end_ms, e.leader) for e in found.departures] == [
        (3, "slow", 200, 1_000, 1),
        (2, "no_fetch", 300, 600, 1),
    ]


def test_the_first_event_says_what_was_before_it() -> None:
    found = judged(isr_is(400, [1, 2], [1], (7, 9)), scope=Scope(0, 1_000, 150, False))
    assert spans(found) == [
        (0, 150, State.UNKNOWN),
        (150, 400, State.UNDER_MIN_ISR),
        (400, 1_000, State.ACKNOWLEDGING),
    ]


def test_a_partition_without_events_did_not_change() -> None:
    snapshot = Snapshot("id", 1_000, -1, (2,), 5)
    scope = Scope(0, 1_000, 300, True)
    assert spans(judged(snapshot=snapshot, scope=scope)) == [
        (0, 300, State.UNKNOWN),
        (300, 1_000, State.NO_LEADER),
    ]


def test_a_missed_change_leaves_the_time_between_unknown() -> None:
    found = judged(
        created(0, [1, 2, 3]), leads(500, 3, [3], 4, before=(2, [2, 3]), cause="leader_gone")
    )
    assert spans(found) == [(0, 500, State.UNKNOWN), (500, 1_000, State.UNDER_MIN_ISR)]
    assert found.missed == 1


def test_a_snapshot_that_disagrees_is_a_missed_change() -> None:
    snapshot = Snapshot("id", 800, 2, (2,), 3)
    found = judged(created(0, [1, 2, 3]), snapshot=snapshot, scope=ASKED)
    assert spans(found) == [(0, 800, State.UNKNOWN), (800, 1_000, State.UNDER_MIN_ISR)]
    assert found.missed == 1


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot("id", 900, 1, (3, 2, 1), 0),
        # Taken before the last event, or by a broker that did not know it yet.
        Snapshot("id", 50, 2, (2,), 9),
        Snapshot("id", 900, 2, (2,), -1),
    ],
)
def test_a_snapshot_that_agrees_or_is_older_changes_nothing(snapshot: Snapshot) -> None:
    found = judged(created(100, [1, 2, 3]), snapshot=snapshot, scope=ASKED)
    assert spans(found) == [(0, 100, State.ABSENT), (100, 1_000, State.ACKNOWLEDGING)]
    assert found.missed == 0


def test_a_deleted_topic_is_unknown_after_its_last_event() -> None:
    found = judged(created(100, [1, 2]), isr_is(300, [1], [1, 2], (0, 1)), scope=ASKED)
    assert spans(found) == [
        (0, 100, State.ABSENT),
        (100, 300, State.ACKNOWLEDGING),
        (300, 1_000, State.UNKNOWN),
    ]


def test_a_recreated_topic_is_one_row_of_time() -> None:
    old = [created(100, [1, 2], "old"), leads(200, 2, [2], 1, before=(1, [1, 2]), topic_id="old")]
    new = [created(500, [3, 1], "new"), leads(700, 1, [1], 1, before=(3, [3, 1]), topic_id="new")]
    snapshot = Snapshot("new", 1_000, 1, (1,), 1)
    found = judged(*new, *old, snapshot=snapshot, scope=ASKED)
    assert [(e.topic_id, e.start_ms, e.end_ms, e.state) for e in found.intervals] == [
        ("old", 0, 100, State.ABSENT),
        ("old", 100, 200, State.ACKNOWLEDGING),
        # It was deleted at some time in here: no event says when.
        ("old", 200, 500, State.UNKNOWN),
        ("new", 500, 700, State.ACKNOWLEDGING),
        ("new", 700, 1_000, State.UNDER_MIN_ISR),
    ]
    assert found.missed == 0


def test_a_recreation_without_its_events_is_known_from_the_snapshot_on() -> None:
    snapshot = Snapshot("new", 900, 1, (1, 2), 0)
    found = judged(created(100, [1, 2], "old"), snapshot=snapshot, scope=ASKED)
    assert spans(found) == [
        (0, 100, State.ABSENT),
        (100, 900, State.UNKNOWN),
        (900, 1_000, State.ACKNOWLEDGING),
    ]
    assert found.missed == 1


def test_order_is_that_of_epochs_whatever_the_clocks_say() -> None:
    changes = [
        created(100, [1, 2]),
        leads(400, 2, [2], 1, before=(1, [1, 2])),
        # The next controller's clock is 150 ms behind.
        isr_is(250, [2, 1], [2], (1, 2)),
        leads(600, 1, [1, 2], 2, before=(2, [2, 1]), partition_epoch=3, cause="preferred"),
    ]
    expected = judged(*changes)
    assert spans(expected) == [
        (0, 100, State.ABSENT),
        (100, 400, State.ACKNOWLEDGING),
        (400, 600, State.ACKNOWLEDGING),
        (600, 1_000, State.ACKNOWLEDGING),
    ]
    assert expected.clock_step_ms == 150
    for seed in range(20):
        mixed = random.Random(seed).sample(changes * 2, len(changes) * 2)
        assert judged(*mixed) == expected  # any order, and each event twice


def test_a_failover_lasts_from_the_first_sign_until_the_new_leader_leads() -> None:
    changes = [created(0, [1, 2, 3]), leads(500, 2, [2, 3], 1, before=(1, [1, 2, 3]))]
    found = judged(*changes, handovers=[Handover(1, 470, 530)])
    assert [each for each in spans(found) if each[2] is State.FAILING_OVER] == [
        (470, 500, State.FAILING_OVER),
        (500, 530, State.FAILING_OVER),
    ]
    # The same epoch of another topic of that name, at another time; an epoch that nobody led.
    for handover in (Handover(1, 90_000, 90_100), Handover(7, 470, 530)):
        assert judged(*changes, handovers=[handover]) == judged(*changes)


def test_no_failover_in_a_time_without_a_leader() -> None:
    changes = [
        created(0, [1]),
        leads(300, -1, [1], 1, before=(1, [1])),
        leads(500, 1, [1], 2, before=(-1, [1]), cause="replica_returned"),
    ]
    found = judged(*changes, handovers=[Handover(2, 450, 520)], min_isr=1)
    assert spans(found)[1:] == [
        (300, 500, State.NO_LEADER),
        (500, 520, State.FAILING_OVER),
        (520, 1_000, State.ACKNOWLEDGING),
    ]


def test_intervals_cover_the_scope_without_holes() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        changes, leader, isr, at = [], 1, [1, 2, 3], rng.randrange(-300, 300)
        changes.append(created(at, isr))
        for epoch in range(1, rng.randrange(2, 9)):
            at += rng.randrange(-50, 300)
            before = (leader, list(isr))
            isr = rng.sample([1, 2, 3], rng.randrange(1, 4))
            leader = rng.choice([-1, isr[0]])
            changes.append(leads(at, leader, isr, epoch, before=before))
        kept = rng.sample(changes, rng.randrange(1, len(changes) + 1))
        scope = Scope(0, 1_000, rng.randrange(0, 200), rng.random() < 0.5)
        handover = Handover(rng.randrange(9), 300, rng.randrange(301, 900))
        found = judged(*kept, scope=scope, handovers=[handover])
        edges = [each.start_ms for each in found.intervals] + [1_000]
        assert edges[0] == 0
        assert [each.end_ms for each in found.intervals] == edges[1:]
        assert all(each.length_ms > 0 for each in found.intervals)
        parts = windowed(found.intervals, 0, 70)
        assert sum(each.length_ms for each in parts) == 1_000
        assert all(each.start_ms // 70 == (each.end_ms - 1) // 70 for each in parts)


def test_an_event_becomes_a_change() -> None:
    event: dict[str, Any] = {
        "kind": "isr_change",
        "topic_id": "id",
        "time_ms": 5,
        "leader": 1,
        "isr": [1],
        "leader_epoch": 2,
        "partition_epoch": 3,
        "previous_isr": [1, 2, 3],
        "cause": "fell_behind",
        "left": [{"broker": 3, "cause": "disk"}],
        "a_later_field": True,
    }
    change = ObservedChange.from_event(event)
    # Broker 2 left as well; an older controller gave no cause.
    assert change.left == ((2, "unknown"), (3, "disk"))
    assert (change.previous_leader, change.leader_before) == (None, 1)
    led = ObservedChange.from_event({**event, "kind": "leader_change", "previous_leader": -1})
    assert led.leader_before == -1
    with pytest.raises(KeyError):
        ObservedChange.from_event({"kind": "isr_change"})
