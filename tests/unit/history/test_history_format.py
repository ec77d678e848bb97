"""The format: what is written is read back, and a line that is wrong is told with what is right."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.history import MalformedHistory, Operation, describe, encode, parse, read_history
from tidelog.history import operations as format_module

FRAME = {"process": "p", "begin": 1, "end": 2, "outcome": "ok"}


def line(kind: object = "send", **fields: Any) -> str:
    return json.dumps({**FRAME, "kind": kind, **fields})


SEND = line(records={"t-0": [[0, "a"]]})
WRONG = [
    ('{"process": "p"', "no JSON", "cut short"),
    ("[" * 100_000, "nested too deeply"),
    ("17", "17 is no operation", "a JSON object"),
    ("{}", "the kind null", "send, poll, txn"),
    (line("sent", records={}), 'the kind "sent"', "send, poll, txn"),
    (line([]), "the kind []"),
    (line(), "a send needs the field records"),
    (json.dumps({"kind": "poll"}), "a poll needs the field process and begin and end and outcome"),
    (line(records={}, idempotant=True), 'no field "idempotant"', "acks, idempotent"),
    (line("poll", records={}, acks=1), 'a poll has no field "acks"'),
    (line(records={}, process=3), "`process` is 3", "a name"),
    (line(records={}, process=""), '`process` is ""'),
    (line(records={}, outcome="unknown"), '"unknown"', "info (not known)"),
    (line(records={}, outcome=["ok"]), '`outcome` is ["ok"]'),
    (line(records={}, begin="1"), '`begin` is "1"', "nanoseconds"),
    (line(records={}, begin=-1), "`begin` is -1"),
    (line(records={}, begin=True), "`begin` is true"),
    (line(records={}, begin=1.5), "`begin` is 1.5"),
    (line(records={}, begin=1 << 63, end=1 << 63), "`begin` is 9223372036854775808"),
    (line(records={}, end=0), "it ends at 0, before it begins at 1"),
    (line(records={}, end="2"), '`end` is "2"'),
    (line(records={}, end=None), "`end` is null", "info"),
    (line(records={}, acks=2), "`acks` is 2", "-1 (all), 0 or 1"),
    (line(records={}, acks=True), "`acks` is true"),
    (line(records={}, idempotent=1), "`idempotent` is 1", "true or false"),
    (line(records=[]), "`records` is []", "by partition"),
    (line(records={"t": []}), '"t" is no partition', "topic-number"),
    (line(records={"-0": []}), '"-0" is no partition'),
    (line(records={"t-x": []}), '"t-x" is no partition'),
    (line(records={"t-0": {}}), "the records of t-0 are {}", "a list"),
    (line(records={"t-0": [7]}), "7 is no record of t-0", "[offset, value]"),
    (line(records={"t-0": [[0]]}), "[0] is no record"),
    (line(records={"t-0": [[0, "a", "k", True, 1]]}), "is no record of t-0"),
    (line(records={"t-0": [["0", "a"]]}), 'is "0"', "null if the client does not know it"),
    (line(records={"t-0": [[-1, "a"]]}), "is -1"),
    (line("poll", records={"t-0": [[None, "a"]]}), "is null: a number from 0 on expected"),
    (line(records={"t-0": [[0, None]]}), "the value of [0, null] in t-0 is null", "which no other"),
    (line(records={"t-0": [[0, True]]}), "is true"),
    (line(records={"t-0": [[0, "a", 5]]}), "the key", "5, no text"),
    (line(records={"t-0": [[0, "a", "k", 1]]}), "`tombstone` is 1"),
    (line("txn", steps={}), "`steps` is {}"),
    (line("txn", steps=[{"kind": "commit"}]), "is no step", "send or poll"),
    (line("txn", steps=[{"kind": "poll", "records": {"t-0": [[None, "a"]]}}]), "is null"),
    (line("assign", partitions={"t-0": -1}), "`partitions.t-0` is -1"),
    (line("assign", partitions=["t-0"]), "offsets by partition"),
    (line("log_start", partitions={"t-0": None}), "`partitions.t-0` is null"),
    (line("commit", offsets={"t-0": None}), "`offsets.t-0` is null"),
    (line("subscribe", topics="t"), '`topics` is "t"', "a list of names"),
    (line("subscribe", topics=["t"], group=1), "`group` is 1"),
    (line("delete", topics=[""]), "a list of names"),
    (line(records={}, note=1), "`note` is 1"),
    (line(records={"t-0": [[0, "x" * 500, 1]]}), "…"),
]


@pytest.mark.parametrize(("text", "words"), [(text, words) for text, *words in WRONG])
def test_a_wrong_line_is_told_with_what_would_be_right(text: str, words: list[str]) -> None:
    with pytest.raises(MalformedHistory) as caught:
        parse(text, 12)
    told = str(caught.value)
    assert told.startswith("line 12")
    assert len(told) < 500
    for word in words:
        assert word in told


def test_lines_are_counted_and_empty_ones_left_out() -> None:
    told = list(read_history(io.BytesIO(f"\n{SEND}\n  \n{SEND}".encode())))
    assert [number for number, _ in told] == [2, 4]
    with pytest.raises(MalformedHistory, match="line 3 is no JSON"):
        list(read_history(io.BytesIO(f"{SEND}\n\n{SEND[:-1]}".encode())))


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(MalformedHistory, match="line 1 is no JSON"):
        list(read_history(io.BytesIO(b"\xff\xfe\n")))


def test_a_line_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_module, "MAX_LINE_BYTES", 300)
    told = read_history(io.BytesIO(f"{SEND}\n".encode() + b"{" * 1000))
    assert next(told)[0] == 1
    with pytest.raises(MalformedHistory, match="line 2 has more than 300 bytes"):
        next(told)


NUMBERS = st.integers(0, (1 << 63) - 1)
PARTITIONS = st.sampled_from(["t-0", "t@AbC_-d-12", "a-b.c-3"])
VALUES = st.one_of(st.text(), st.integers())
KEYS: st.SearchStrategy[Sequence[object]] = st.one_of(
    st.just([]), st.tuples(st.text()), st.tuples(st.text(), st.booleans())
)


def records(offsets: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    record = st.builds(lambda offset, value, rest: [offset, value, *rest], offsets, VALUES, KEYS)
    return st.dictionaries(PARTITIONS, st.lists(record, max_size=3), max_size=2)


SENT, POLLED = records(st.one_of(st.none(), NUMBERS)), records(NUMBERS)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("send"), SENT), st.tuples(st.just("poll"), POLLED)), max_size=3
)
SHAPES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "send": {
        "records": SENT,
        "acks": st.sampled_from((-1, 0, 1)),
        "idempotent": st.booleans(),
    },
    "poll": {"records": POLLED},
    "txn": {"steps": STEPS},
    "assign": {"partitions": st.dictionaries(PARTITIONS, st.one_of(st.none(), NUMBERS))},
    "seek": {"partitions": st.dictionaries(PARTITIONS, st.one_of(st.none(), NUMBERS))},
    "subscribe": {"topics": st.lists(st.text(min_size=1)), "group": st.text()},
    "commit": {"partitions": st.dictionaries(PARTITIONS, NUMBERS), "group": st.text()},
    "log_start": {"partitions": st.dictionaries(PARTITIONS, NUMBERS)},
    "compact": {"topics": st.lists(st.text(min_size=1))},
    "delete": {"topics": st.lists(st.text(min_size=1))},
}


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    kind = draw(st.sampled_from(sorted(SHAPES)))
    outcome = draw(st.sampled_from(("ok", "fail", "info")))
    begin, end = sorted((draw(NUMBERS), draw(NUMBERS)))
    fields = {name: draw(strategy) for name, strategy in SHAPES[kind].items()}
    if outcome == "info" and draw(st.booleans()):
        return Operation(draw(st.text(min_size=1)), kind, begin, None, outcome, **fields)
    return Operation(draw(st.text(min_size=1)), kind, begin, end, outcome, **fields)


@examples(200)
@given(operations())
def test_what_is_written_is_read_back(operation: Operation) -> None:
    text = encode(operation)
    assert "\n" not in text
    assert parse(text, 1) == operation


def test_every_kind_is_drawn() -> None:
    assert sorted(SHAPES) == sorted(format_module.KINDS)


def test_an_operation_is_told_in_one_line() -> None:
    values = [[number, f"value {number}"] for number in range(10)]
    send = Operation(
        "p", "send", 1_500_000_000, 1_750_000_000, records={"t-0": values}, idempotent=True
    )
    assert describe(send, since=1_000_000_000) == (
        'p send t-0[0="value 0" 1="value 1" 2="value 2" … 6 more … 9="value 9"]: ok, acks=-1,'
        " idempotent, 0.500000 s to 0.750000 s"
    )
    lost = Operation("p", "send", 0, None, "info", records={"t-0": [[None, 7]]}, note="died")
    assert describe(lost) == (
        "p send t-0[?=7]: info, acks=-1, not idempotent, 0.000000 s to never (died)"
    )
    steps = [("send", {"t-0": [[0, 1]]}), ("poll", {"u-0": [[4, 2]]})]
    assert "txn send t-0[0=1] poll u-0[4=2]: ok" in describe(
        Operation("p", "txn", 0, 1, steps=steps)
    )
    assert "assign t-0: 5: ok" in describe(Operation("p", "assign", 0, 1, partitions={"t-0": 5}))
    assert "subscribe t: ok" in describe(Operation("p", "subscribe", 0, 1, topics=["t"]))
    assert "poll (nothing): ok" in describe(Operation("p", "poll", 0, 1))
