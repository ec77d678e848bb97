"""What the chaos judges: a run that keeps every promise is not blamed, one that breaks one is."""

from __future__ import annotations

import copy

from tests.support.chaos.events import Event, value_of
from tests.support.chaos.judging import SETTLED_NS, Told, Verdict, judge

S = 1_000_000_000
RECORDS = 6


def content(*values: str) -> dict[int, list[tuple[int, str]]]:
    """The log of the one partition."""
    return {0: list(enumerate(values))}


def sound() -> tuple[list[Told], dict[int, list[tuple[int, str]]]]:
    """A producer that sent six records, and a group whose members shared them."""
    sends: list[Event] = []
    for number in range(RECORDS):
        sends += [[number * S, "send", 0, number], [number * S + 1, "ack", number, number]]
    values = [value_of("p", number) for number in range(RECORDS)]
    polled = [[0, number, value] for number, value in enumerate(values)]
    first: list[Event] = [
        [0, "assigned", [0]],
        [4 * S, "poll", polled[:3]],
        [4 * S + 1, "commit", {"0": 3}],
        [5 * S, "revoked", [0]],
    ]
    second: list[Event] = [
        [5 * S + SETTLED_NS, "assigned", [0]],
        [6 * S + SETTLED_NS, "poll", polled[3:]],
        [7 * S + SETTLED_NS, "commit", {"0": 6}],
    ]
    clients = [
        Told("p", sends, is_idempotent=True),
        Told("c-1", first, "g"),
        Told("c-2", second, "g"),
    ]
    return copy.deepcopy(clients), content(*values)


def verdict_of(clients: list[Told], log: dict[int, list[tuple[int, str]]]) -> Verdict:
    return judge("t", clients, log)


def told(clients: list[Told], log: dict[int, list[tuple[int, str]]]) -> str:
    return "\n".join(verdict_of(clients, log).troubles)


def test_a_run_that_keeps_every_promise_is_not_blamed() -> None:
    clients, log = sound()
    verdict = verdict_of(clients, log)
    assert verdict.troubles == []
    figures = (verdict.sent, verdict.acknowledged, verdict.polled, verdict.in_log, verdict.commits)
    assert figures == (6, 6, 6, 6, 2)


def test_an_acknowledged_record_that_is_gone_is_a_loss() -> None:
    clients, log = sound()
    log[0].pop(2)
    clients[1].events[1][2].pop(2)
    assert "lost-write: 1" in told(clients, log)


def test_a_record_of_an_unknown_outcome_may_be_missing() -> None:
    clients, log = sound()
    clients[0].events[-1] = [6 * S, "unsure", 5, "timed out"]  # type: ignore[index]  # events are a list here
    log[0].pop()
    clients[2].events[1][2].pop()
    clients[2].events[2][2] = {"0": 5}
    assert told(clients, log) == ""


def test_a_duplicate_of_an_idempotent_producer_is_told_and_of_a_plain_one_allowed() -> None:
    clients, log = sound()
    log[0].append((RECORDS, value_of("p", 5)))
    clients[2].events[1][2].append([0, RECORDS, value_of("p", 5)])
    assert "duplicate: 1" in told(clients, log)
    clients[0].is_idempotent = False
    verdict = verdict_of(clients, log)
    assert verdict.troubles == []
    assert verdict.allowed == {"duplicate": 1}


def test_records_of_an_idempotent_producer_in_another_order_are_told() -> None:
    clients, _ = sound()
    order = [0, 2, 1, 3, 4, 5]
    log = content(*(value_of("p", number) for number in order))
    for event in clients[0].events:
        if event[1] == "ack":
            event[3] = order.index(event[2])
    clients[1].events[1][2][:] = [[0, at, value] for at, value in log[0][:3]]
    assert "nonmonotonic-send: 1" in told(clients, log)


def test_a_record_that_was_polled_and_is_another_in_the_log_is_told() -> None:
    """A stale read: another leader has put another record at that offset."""
    clients, log = sound()
    clients[1].events[1][2][2][2] = value_of("p", 4)
    assert "inconsistent-offsets" in told(clients, log)


def test_an_offset_that_no_member_of_a_group_polled_is_told() -> None:
    clients, log = sound()
    clients[2].events[1][2].pop()
    clients[2].events.pop()  # type: ignore[attr-defined]  # events are a list here
    assert "group g: unseen: partition 0 ends at 6" in told(clients, log)


def test_a_commit_beyond_what_the_group_polled_is_told() -> None:
    clients, log = sound()
    clients[1].events[2][2] = {"0": 4}
    assert "group g: a commit beyond what was polled: c-1 committed 4" in told(clients, log)


def test_a_member_that_begins_before_what_was_committed_long_ago_is_told() -> None:
    clients, log = sound()
    third = clients[1].events[1][2][2]
    clients[2].events[1][2].insert(0, third)
    lost = "group g: a commit was lost: c-2 began partition 0 at 2; 3 had been"
    assert lost in told(clients, log)
    # Where the commit was on its way while the partition moved, either is right.
    clients[2].events[0][0] = clients[1].events[2][0] + SETTLED_NS
    assert told(clients, log) == ""
