"""What is told of a change of state, and why it is said to have come."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    state,
    topic_id,
)

from tidelog.controller import cluster_events, store_went_back
from tidelog.controller.cluster_events import ClusterEvent, StateChange, of_state
from tidelog.core.types import (
    NO_LEADER,
    NO_STAMP,
    RECOVERING,
    BrokerInfo,
    PartitionState,
    StoreWentBack,
)

BEFORE = state((1, 2, 3))


ALONE = replace(BEFORE, isr=(1,), isr_epochs=(101,), leader_recovery_state=RECOVERING)


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
        (ALONE, next_state(3, (3,), recovery=RECOVERING), (3,), "unclean"),
        (ALONE, next_state(-1, (1,), recovery=RECOVERING), (3,), "nobody_in_sync_alive"),
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


@pytest.mark.parametrize("recovery", [0, RECOVERING])
def test_a_leader_that_restarted_begins_another_term(recovery: int) -> None:
    before = replace(BEFORE, leader_recovery_state=recovery)
    change = StateChange(TP, topic_id("t"), before, next_state(recovery=recovery))
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


def test_a_registration_ends_by_a_shutdown_where_the_broker_was_leaving() -> None:
    lost = cluster_events.ended(broker(2), 7)
    assert (lost.kind, lost.identity) == ("session_loss", f"2/{broker(2).broker_epoch}")
    assert cluster_events.ended(replace(broker(2), is_leaving=True), 7).kind == "shutdown"
    back = cluster_events.registered(broker(2, life=2, previous_broker_epoch=17), 7)
    assert (back.kind, back.fields["previous_broker_epoch"]) == ("registration", 17)


def test_what_a_broker_hands_over_as_it_leaves_says_so() -> None:
    live = brokers(replace(broker(1), is_leaving=True), 2, 3)
    moved = of_state(StateChange(TP, topic_id("t"), BEFORE, next_state(2)), live, 1, 7)
    assert moved is not None and moved.fields["cause"] == "leader_leaving"
    before = replace(BEFORE, leader=2)
    left = of_state(StateChange(TP, topic_id("t"), before, next_state(2, (2, 3))), live, 1, 7)
    assert left is not None and left.fields["cause"] == "member_leaving"


def test_a_reassignment_is_named_by_the_transaction_of_its_node() -> None:
    ids = {"zxid": 91, "controller_epoch": 7}
    begun = cluster_events.reassignment_begun(TP, topic_id("t"), (4, 1), (4,), (2,), (1, 2), **ids)
    ended = cluster_events.reassignment_ended(TP, topic_id("t"), (4, 1), **ids)
    assert (begun.kind, ended.kind) == ("reassignment_begun", "reassignment_ended")
    assert begun.identity == ended.identity == f"{begun.fields['topic_id']}/0/91"
    assert begun.fields["replicas"] == ended.fields["replicas"] == [4, 1]
    assert [begun.fields[name] for name in ("adding", "removing", "original")] == [[4], [2], [1, 2]]


def test_every_kind_is_listed() -> None:
    assert len(dict.fromkeys(cluster_events.KINDS)) == len(cluster_events.KINDS) == 20


@pytest.mark.parametrize(
    ("member", "cause"),
    [
        (replace(broker(3), is_leaving=True), "member_leaving"),
        (broker(3, life=2), "member_restarted"),
    ],
)
def test_what_a_broker_does_is_the_cause_that_it_leaves_the_isr(
    member: BrokerInfo, cause: str
) -> None:
    change = StateChange(TP, topic_id("t"), BEFORE, next_state(1, (1, 2)))
    event = of_state(change, brokers(1, 2, member), 1, 7)
    assert event is not None
    assert (event.kind, event.fields["cause"]) == ("isr_change", cause)


def test_each_event_has_an_identity_of_its_own_and_says_what_it_is_about() -> None:
    lives = [broker(4), replace(broker(4, life=2), is_leaving=True)]
    events = [
        cluster_events.controller_elected(1, 7),
        cluster_events.controller_resigned(1, 7, "its session has expired"),
        *(cluster_events.ended(life, 7) for life in lives),
        *(cluster_events.registered(life, 7) for life in lives),
        cluster_events.first_fetch(TP, topic_id("t"), 3, {"first_fetch_ms": 5}),
        cluster_events.takeover(TP, topic_id("t"), 3, {"ended_by": "all_seen"}),
        cluster_events.unclean_election(TP, topic_id("t"), 3, {"log_end_offset": 6}),
        cluster_events.commands_behind(4, 9, 30_000, is_over=False, controller_epoch=7, number=0),
        cluster_events.commands_behind(4, 9, 31_000, is_over=True, controller_epoch=7, number=0),
        cluster_events.commands_behind(4, 9, 30_000, is_over=False, controller_epoch=7, number=1),
        cluster_events.commands_behind(4, 9, 30_000, is_over=False, controller_epoch=8, number=0),
        cluster_events.dropped(4, 9, 0, 17),
    ]
    identities = [(event.kind, event.identity) for event in events]
    assert len(dict.fromkeys(identities)) == len(events)
    assert [event.kind for event in events[2:4]] == ["session_loss", "shutdown"]
    assert events[1].fields["cause"] == "its session has expired"
    assert events[6].fields["first_fetch_ms"] == 5 and events[6].fields["leader_epoch"] == 3
    assert events[8].fields["log_end_offset"] == 6 and events[8].fields["leader_epoch"] == 3
    assert [event.fields["is_over"] for event in events[9:13]] == [False, True, False, False]
    assert events[13].fields["count"] == 17


def test_a_term_begins_and_ends() -> None:
    begun = cluster_events.controller_elected(1, 7)
    assert (begun.kind, begun.identity) == ("controller_election", "7")
    ended = cluster_events.controller_resigned(1, 7, "the session has expired")
    assert (ended.kind, ended.identity) == ("controller_resignation", "7")
    assert ended.fields["cause"] == "the session has expired"


def test_a_store_that_went_back_is_an_event_and_a_sentence() -> None:
    mark = StoreWentBack(broker_id=2, seen=1_900, found=900, timestamp_ms=0, zxid=2_000)
    event = cluster_events.store_went_back(mark, 3, controller_epoch=7)
    assert (event.kind, event.identity) == (cluster_events.STORE_WENT_BACK, "2000/7")
    assert event.fields == {
        "broker": 2, "seen": 1_900, "found": 900, "partitions": 3, "controller_epoch": 7,
    }  # fmt: skip
    assert "there is of transaction 900, its log directories have seen transaction 1900" in (
        store_went_back.text(mark)
    )
    without = replace(mark, found=NO_STAMP)
    assert "there is missing" in store_went_back.text(without)
