"""Chains of causes: the event behind the word that an event gives as its cause."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.console_readings import event

from tidelog.console.views.causes import EventLog, chain
from tidelog.core.types import TopicPartition

TP = TopicPartition("t", 0)


def change(kind: str, at_s: float, **fields: Any) -> dict[str, Any]:
    return event(
        kind,
        at_s,
        topic="t",
        partition=0,
        leader_epoch=5,
        isr=[2, 3],
        previous_isr=[1, 2, 3],
        **fields,
    )


def explained(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The chain of the latest event of the partition."""
    log = EventLog(events)
    return chain(log, log.of_partition(TP)[0])


def kinds(entry: dict[str, Any]) -> list[Any]:
    return [entry["kind"], *(kinds(each) for each in entry["because"])]


def test_a_leader_is_gone_as_its_session_is_lost_as_its_disk_failed() -> None:
    found = explained(
        [
            event("registration", -60, broker=1, broker_epoch=7),
            event("log_dir_failed", -1, broker=1, broker_epoch=7, log_dir="/d", operation="fsync",
                  error="EIO", replicas=3, led=1),
            event("session_loss", 0, broker=1, broker_epoch=7),
            change("leader_change", 0.1, leader=2, previous_leader=1, cause="leader_gone",
                   left=[{"broker": 1, "cause": "session"}]),
        ]
    )  # fmt: skip
    assert kinds(found) == ["leader_change", ["session_loss", ["log_dir_failed"]]]
    disk = found["because"][0]["because"][0]
    assert disk["end"] == "The disk returned an error."
    assert "t-0 leader 1 -> 2 epoch 5" in found["text"] and found["end"] is None


def test_a_cause_that_arrives_after_its_effect_is_found() -> None:
    """The leader's own event may come before that of another broker."""
    found = explained(
        [
            change("isr_change", 0, leader=2, cause="member_leaving",
                   left=[{"broker": 1, "cause": "shutdown"}]),
            event("shutdown", 2, broker=1, broker_epoch=7),
        ]
    )  # fmt: skip
    assert kinds(found) == ["isr_change", ["shutdown"]]


@pytest.mark.parametrize(
    ("cause", "kind", "broker"),
    [
        ("session", "session_loss", 1),
        ("shutdown", "shutdown", 1),
        ("bounce", "registration", 1),
        ("offline", "log_dir_failed", 1),
        ("disk", "log_dir_failed", 1),
        ("slow", "log_dir_slow", 1),
        ("leader_read", "log_dir_slow", 2),
        ("no_fetch", "session_loss", 1),
    ],
)
def test_each_cause_of_a_shrink_leads_to_the_event_of_its_broker(
    cause: str, kind: str, broker: int
) -> None:
    left = [{"broker": 1, "cause": cause}]
    shrink = change("isr_change", 0, leader=2, cause="fell_behind", left=left)
    others = [event(kind, -2, broker=other, broker_epoch=3) for other in (broker, 3)]
    found = explained([*others, shrink])
    assert kinds(found)[:2] == ["isr_change", [kind, *kinds(found)[1][1:]]]
    assert len(found["because"]) == 1
    alone = explained([shrink])
    assert alone["because"] == [] and (alone["end"] is not None or cause in ("offline", "disk",
        "shutdown", "bounce"))  # fmt: skip


def test_a_session_that_ended_before_the_broker_came_back_explains_no_missing_fetch() -> None:
    left = [{"broker": 1, "cause": "no_fetch"}]
    shrink = change("isr_change", 0, leader=2, cause="fell_behind", left=left)
    lost = event("session_loss", -3, broker=1, broker_epoch=3)
    back = event("registration", -2, broker=1, broker_epoch=4)
    found = explained([lost, back, shrink])
    assert found["because"] == [] and found["end"].startswith("No fetch reached the leader")


def test_a_move_takes_a_replica_away_and_brings_another_one() -> None:
    begun = change("reassignment_begun", -5, replicas=[2, 3, 4], adding=[4], removing=[1])
    removed = change("isr_change", 0, leader=2, cause="member_unfit",
                     left=[{"broker": 1, "cause": "moved"}])  # fmt: skip
    assert kinds(explained([begun, removed])) == ["isr_change", ["reassignment_begun"]]
    joined = change("isr_change", 1, leader=2, cause="caught_up") | {"isr": [2, 3, 4]}
    joined |= {"previous_isr": [2, 3]}
    assert kinds(explained([begun, joined])) == ["isr_change", ["reassignment_begun"]]


def test_a_wait_for_a_leader_goes_back_to_the_session_that_was_lost() -> None:
    events = [
        event("session_loss", -1, broker=1, broker_epoch=7),
        change("leader_change", 0, leader=-1, previous_leader=1, cause="nobody_in_sync_alive"),
        change("leader_awaited", 0.1, last_leader=1, members=[], quorum=1, is_waiting=False),
    ]
    assert kinds(explained(events)) == ["leader_awaited", ["leader_change", ["session_loss"]]]


def test_causes_of_long_ago_and_of_other_partitions_do_not_count() -> None:
    shrink = change("isr_change", 0, leader=2, cause="member_gone",
                    left=[{"broker": 1, "cause": "session"}])  # fmt: skip
    long_ago = event("session_loss", -3600, broker=1, broker_epoch=7)
    other = shrink | {"partition": 1}
    log = EventLog([long_ago, other, shrink])
    assert log.of_partition(TP) == [2]
    assert chain(log, 2)["because"] == []


def test_a_loop_of_restarts_ends() -> None:
    events = []
    for number in range(40):
        events.append(event("session_loss", number, broker=1, broker_epoch=number))
        events.append(event("registration", number + 0.5, broker=1, broker_epoch=number + 1))
    events.append(
        change("leader_change", 40, leader=1, previous_leader=-1, cause="replica_returned")
    )
    depth, entry = 0, explained(events)
    while entry["because"]:
        depth, entry = depth + 1, entry["because"][0]
    assert depth <= 5


def test_events_of_another_program_are_shown_as_they_are() -> None:
    odd = event("isr_change", 0, topic="t", partition=0, left="<b>", cause={"x": 1}, isr=7)
    entry = explained([odd])
    assert entry["because"] == [] and "left=<b>" in entry["text"]
    without_time = {"kind": "leader_change", "topic": "t", "partition": 0, "time_ms": "soon"}
    assert explained([without_time])["time_ms"] == 0


def test_a_controller_that_dies_is_found_by_the_failover_of_the_next_one() -> None:
    gone = change("leader_change", 0, leader=2, previous_leader=1, cause="leader_gone",
                  left=[{"broker": 1, "cause": "session"}])  # fmt: skip
    failover = event("failover", 0.2, brokers=[1], cause="death", phases_ms={}, partitions=3,
                     unanswered=0, detection_ms=-1)  # fmt: skip
    found = explained([gone, failover])
    assert kinds(found) == ["leader_change", ["failover"]]
    assert "its log says which" in found["because"][0]["end"]
    assert "its log says which" in explained([gone])["end"]


def test_causes_of_thousands_of_events_are_found_without_a_scan_for_each() -> None:
    reads = 0

    class CountedEvent(dict[str, Any]):
        def get(self, *args: Any) -> Any:
            nonlocal reads
            reads += 1
            return super().get(*args)

    left = [{"broker": 1, "cause": "slow"}, {"broker": 3, "cause": "no_fetch"}]
    events: list[dict[str, Any]] = [
        CountedEvent(
            event("isr_change", number / 50, topic="t", partition=number % 100, leader=2, left=left)
        )
        for number in range(5_000)
    ]
    log = EventLog(events)
    chains = [chain(log, position) for position in log.of_partition(TP)[:25]]
    assert len(chains) == 25 and not any(each["because"] for each in chains)
    assert reads < 10 * len(events)
