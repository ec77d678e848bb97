"""What a run's clients did, as a history: which topic a batch surely went to, and what is found."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.history import Operation, encode, parse
from tidelog.sim.checkers.group_checker import Commit
from tidelog.sim.checkers.history_checker import check_history, operations
from tidelog.sim.client_history import ClientHistory, Outcome, Produce

OLD, NEW = b"1" * 16, b"2" * 16


@pytest.fixture
def history() -> ClientHistory:
    made = ClientHistory()
    made.topic_created("t", OLD, 10)
    return made


def produce(
    history: ClientHistory, outcome: Outcome, begin_ns: int, end_ns: int, **how: Any
) -> None:
    number = len(history.produces) + 1
    operation = Produce(101, "t", 0, how.get("acks", -1), 7, (number,), begin_ns)
    history.produce_begins(operation)
    if outcome is not Outcome.OPEN:
        history.produce_ends(operation, outcome, end_ns, how.get("offset", 0))


def sends(history: ClientHistory, *topics: bytes, is_compacted: bool = False) -> list[Operation]:
    found = operations(history, [], topics, is_compacted=is_compacted)
    return [each for each in found if each.kind == "send"]


def told(history: ClientHistory, *topics: bytes) -> list[str]:
    violations: list[str] = []
    check_history(operations(history, [], topics), violations.append)
    return violations


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.DONE, "ok"),
        (Outcome.REFUSED, "fail"),
        (Outcome.UNKNOWN, "info"),
        (Outcome.OPEN, "info"),
    ],
)
def test_outcomes_are_those_of_histories(
    history: ClientHistory, outcome: Outcome, expected: str
) -> None:
    produce(history, outcome, 20, 30)
    (send,) = sends(history, OLD)
    assert send.outcome == expected
    assert send.end == (None if outcome is Outcome.OPEN else 30)
    offset = 0 if outcome is Outcome.DONE else None
    assert send.records == {f"t@{OLD.hex()}-0": [[offset, 1]]}


def test_a_batch_over_a_deletion_is_of_no_sure_topic(history: ClientHistory) -> None:
    history.deletion_begins("t", 50)
    history.topic_created("t", NEW, 60)
    produce(history, Outcome.DONE, 20, 30)
    produce(history, Outcome.DONE, 40, 55)
    produce(history, Outcome.DONE, 55, 70)
    produce(history, Outcome.DONE, 65, 70)
    produce(history, Outcome.DONE, 5, 8)
    places = {each.begin: (*each.records, each.outcome) for each in sends(history, NEW)}
    assert places == {
        20: (f"t@{OLD.hex()}-0", "ok"),
        40: ("t-0", "info"),
        55: ("t-0", "info"),
        65: (f"t@{NEW.hex()}-0", "ok"),
        5: ("t-0", "info"),
    }


def test_nothing_is_promised_of_topics_that_are_gone(history: ClientHistory) -> None:
    produce(history, Outcome.DONE, 20, 30)
    assert told(history, NEW) == []
    history.deletion_begins("t", 50)
    assert told(history, NEW) == []


def test_what_is_missing_is_told_with_its_operations(history: ClientHistory) -> None:
    produce(history, Outcome.DONE, 20, 30)
    (violation,) = told(history, OLD)
    assert violation.startswith(f"unseen: t@{OLD.hex()}-0: 1 was acknowledged at offset 0")
    assert "(producer-101 send" in violation


def test_a_refused_batch_that_is_read_is_told(history: ClientHistory) -> None:
    produce(history, Outcome.REFUSED, 20, 30)
    name = f"t@{OLD.hex()}-0"
    history.operations.append(Operation("c", "poll", 40, 50, records={name: [(0, 1)]}))
    (violation,) = told(history, OLD)
    assert violation.startswith("G1a")


def test_an_acknowledged_batch_that_is_only_in_an_earlier_topic_is_told(
    history: ClientHistory,
) -> None:
    history.deletion_begins("t", 15)
    history.topic_created("t", NEW, 16)
    produce(history, Outcome.DONE, 20, 30)
    name = f"t@{OLD.hex()}-0"
    history.operations.append(Operation("c", "poll", 40, 50, records={name: [(0, 1)]}))
    (violation,) = told(history, NEW)
    assert violation.startswith("never-sent")


def test_compacted_topics_have_keys_and_tombstones(history: ClientHistory) -> None:
    for number in range(11):
        produce(history, Outcome.UNKNOWN, 20 + number, 40)
    found = [
        first
        for each in sends(history, OLD, is_compacted=True)
        for first in each.records[f"t@{OLD.hex()}-0"]
    ]
    assert found[0] == [None, 1, "1", False]
    assert found[10] == [None, 11, "1", True]


def test_lines_stand_in_the_order_of_their_begins_and_can_be_read(history: ClientHistory) -> None:
    produce(history, Outcome.DONE, 20, 30)
    history.deletion_begins("t", 40)
    history.operations.append(
        Operation("c", "poll", 10, 15, records={f"t@{OLD.hex()}-0": [(0, 1)]})
    )
    commit = Commit("g", 0, 3, 7, 25, 26, Outcome.DONE, topic="t", process="member-1")
    found = operations(history, [commit], [], is_compacted=True)
    assert [each.kind for each in found] == ["compact", "poll", "send", "commit", "delete"]
    for line, each in enumerate(found, 1):
        assert encode(parse(encode(each), line)) == encode(each)
