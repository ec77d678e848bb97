"""Pages of moves, disks, events and failovers, and the forms of records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.console_readings import event, metadata, partition, reading

from tidelog.client.move_progress import MoveProgress, MoveState
from tidelog.client.moving import MoveQueued, Moves, MoveUnderWay
from tidelog.client.upkeep import LogDirDescription, ReplicaSize
from tidelog.console.readings import Samples
from tidelog.console.record_forms import SHOWN_BYTES, matches, shown_bytes, shown_record
from tidelog.console.views.catalogue import page_document
from tidelog.console.views.tables import BadQuery
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.records.reader import Record

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def page(which: str, known: Any, /, **params: str) -> Any:
    return json.loads(json.dumps(page_document(which, known, Samples.empty(), params)))


def test_moves_under_way_and_in_the_queue() -> None:
    move = MoveUnderWay((2, 3, 1), (3,), (1,), (1, 2), throttle=1_000)
    progress = MoveProgress(T0, MoveState.ADDING, move, 50, 150, 10.0, 15_000, False)
    moves = Moves({T0: move}, {T1: MoveQueued((2, 3), "broker 3 has a move")}, True, True)
    document = page("moves", reading(moves=moves, progress=(progress,)))
    first, queued = document["table"]["rows"]
    assert (first["step"], first["target"], first["done"], first["bytes"]) == (
        "adding", [2, 3], 50, 200,
    )  # fmt: skip
    assert (queued["state"], queued["reason"]) == ("queued, 1", "broker 3 has a move")
    assert (document["is_frozen"], document["left"], document["rate"]) == (True, 150, 10.0)


def test_a_move_to_a_broker_that_is_gone_is_stuck_and_the_page_says_what_to_do() -> None:
    gone = MoveUnderWay((1, 9), (9,), (2,), (1, 2))
    moves = Moves({T0: gone}, {T1: MoveQueued((9, 3), "broker 9 has a move")}, False, True)
    document = page(
        "moves", reading(metadata=metadata({"t": [partition(0, 1, (1, 2))]}), moves=moves)
    )
    first, queued = document["findings"]
    assert first["message"] == (
        "the move of t-0 cannot end: broker 9 is to be added, and not registered"
    )
    assert first["next"].startswith("start broker 9; or give the move up: ")
    assert (first["partitions"], first["brokers"]) == (["t-0"], [9])
    assert "the queued move of t-1 cannot begin" in queued["message"]


def test_a_full_directory_has_a_finding_with_the_next_step() -> None:
    full = LogDirDescription(1, "/d", ErrorCode.NONE, (), 5, 100, is_read_only=True)
    healthy = LogDirDescription(2, "/e", ErrorCode.NONE, (), 50, 100)
    (finding,) = page("disks", reading(log_dirs=(full, healthy)))["findings"]
    assert "/d of broker 1 is full and serves reads only: 5 usable bytes" in finding["message"]
    assert finding["next"].startswith("make room on the disk")


@pytest.mark.parametrize(
    ("fields", "level", "health"),
    [
        ({}, "good", "healthy"),
        ({"is_cordoned": True}, "note", "cordoned"),
        ({"is_cordoned": True, "is_draining": True}, "note", "draining"),
        ({"is_slow": True}, "warn", "slow"),
        ({"is_slow": True, "is_read_only": True}, "bad", "full, reads only"),
    ],
)
def test_the_worst_trouble_of_a_disk_is_its_health(
    fields: dict[str, Any], level: str, health: str
) -> None:
    replicas = (ReplicaSize("t", 0, 10, 0, False), ReplicaSize("t", 1, 5, 3, True))
    directory = LogDirDescription(1, "/d", ErrorCode.NONE, replicas, 25, 100, **fields)
    (row,) = page("disks", reading(log_dirs=(directory,)))["table"]["rows"]
    assert (row["level"], row["health"]) == (level, health)
    assert (row["replicas"], row["arriving"], row["size"], row["fill"]) == (1, 1, 15, 0.75)


def test_a_failed_disk_and_one_of_a_broker_without_sizes() -> None:
    failed = LogDirDescription(1, "/d", ErrorCode.KAFKA_STORAGE_ERROR, (), -1, -1)
    document = page("disks", reading(log_dirs=(failed,), silent_disks={2: "timed out"}))
    (row,) = document["table"]["rows"]
    assert (row["health"], row["fill"]) == ("failed: KAFKA_STORAGE_ERROR", None)
    assert document["silent"] == [{"broker": 2, "text": "timed out"}]


def test_the_timeline_goes_by_times_where_brokers_appended_in_another_order() -> None:
    events = [
        event("session_loss", 2, broker=3, broker_epoch=9),
        {"kind": "unreadable", "value": ""},
        event("registration", 0, broker=1, broker_epoch=5),
        event("leader_change", 2, topic="t", partition=0),
    ]
    rows = page("events", reading(events=tuple(events)))["table"]["rows"]
    kinds = ["leader_change", "unreadable", "session_loss", "registration"]
    assert [row["kind"] for row in rows] == kinds


def test_the_timeline_has_the_latest_event_first_and_filters() -> None:
    events = [
        event("registration", 0, broker=1, broker_epoch=5, told_by=2),
        event("session_loss", 1, broker=3, broker_epoch=9, told_by=2),
        {"kind": "unreadable", "value": "<b>"},
    ]
    known = reading(metadata=metadata({"t": [partition(0, 1, [1])]}), events=tuple(events))
    document = page("events", known)
    rows = document["table"]["rows"]
    assert [row["kind"] for row in rows] == ["unreadable", "session_loss", "registration"]
    assert rows[1]["text"] == "broker 3 epoch 9" and rows[1]["level"] == "bad"
    assert document["kinds"][0] == {"kind": "session_loss", "count": 1}
    chosen = page("events", known, kind="registration")["table"]
    assert (chosen["total"], chosen["rows"][0]["reporter"]) == (1, 2)
    first = page("events", known, limit="1")["table"]
    assert (len(first["rows"]), first["matching"], first["total"]) == (1, 3, 3)
    found = page("events", known, q="epoch 9")["table"]
    assert (found["matching"], found["total"]) == (1, 3)
    with pytest.raises(BadQuery, match="leader_change"):
        page("events", known, kind="no-such")


def test_a_failover_has_the_phases_of_controller_and_new_leaders() -> None:
    sample = [{"topic": "t", "partition": 0, "leader": 2, "leader_epoch": 5, "led_ms": 9}]
    phases = {"read": 1, "decide": 2, "write": 3, "command": 1, "lead": 9}
    events = [
        event("session_loss", 0, broker=1, broker_epoch=9),
        event("failover", 0.1, brokers=[1], partitions=1, unanswered=0, detection_ms=40,
              phases_ms=phases, sample=sample, controller_epoch=3, superseded=0),
        event("takeover", 1, topic="t", partition=0, leader_epoch=5, leader=2, followers=[],
              phases_ms={"connect": 5, "truncate": -1, "first_fetch": 6, "acknowledge": 8}),
        event("failover", 2, brokers=[2], phases_ms={"read": "odd"}, sample="odd"),
        event("failover", 3, brokers=[2], phases_ms=None),
    ]  # fmt: skip
    document = page("failovers", reading(events=tuple(events)))
    assert document["total"] == 2
    odd, found = document["failovers"]
    assert odd["phases"] == [] and odd["sample"] == []
    assert found["phases"][0] == {"name": "detect", "ms": 40} and found["whole_ms"] == 56
    assert [each["name"] for each in found["leaders"]] == ["connect", "first_fetch", "acknowledge"]
    assert found["why"][0]["kind"] == "session_loss"


# records


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b"plain \xc3\xa4\n", "text", "plain ä\n"),
        (b'{"a": [1]}', "json", '{\n  "a": [\n    1\n  ]\n}'),
        (b"{not json", "text", "{not json"),
        (b"[" * 3_000, "text", "[" * 3_000),
        (b"<script>", "text", "<script>"),
        (b"\xff\x00", "hex", "ff 00"),
        (b"nul\x00", "hex", "6e 75 6c 00"),
        ("right\u202eleft".encode(), "hex", "right\u202eleft".encode().hex(" ")),
    ],
)
def test_the_form_of_bytes(data: bytes | None, form: str, text: str) -> None:
    shown = shown_bytes(data)
    assert (shown["form"], shown["text"]) == (form, text)
    assert shown["bytes"] == len(data or b"")


def test_long_values_are_cut_between_characters() -> None:
    shown = shown_bytes(("x" + "ä" * SHOWN_BYTES).encode())
    assert shown["form"] == "text" and shown["is_cut"]
    assert shown["text"] == "x" + "ä" * ((SHOWN_BYTES - 1) // 2)
    long_json = json.dumps({"a": "b" * SHOWN_BYTES}).encode()
    assert (shown_bytes(long_json)["form"], shown_bytes(long_json)["is_cut"]) == ("text", True)


def test_deep_json_is_shown_without_megabytes_of_indentation() -> None:
    deep = b"[" * 900 + b",".join([b"1"] * 1_100) + b"]" * 900
    shown = shown_bytes(deep)
    assert (shown["form"], shown["text"]) == ("text", deep.decode())
    assert shown_bytes(b"[" * 4_000)["form"] == "text"
    assert shown_bytes(b"[[1]]")["text"] == "[\n  [\n    1\n  ]\n]"


def test_a_record_with_an_odd_header_and_without_time() -> None:
    record = Record(7, -1, b"k", b"value", [("\udcff", None), ("h", b"1")])
    shown = shown_record(record)
    assert (shown["offset"], shown["time_ms"]) == (7, None)
    assert [each["key"] for each in shown["headers"]] == ["\\xff", "h"]
    json.dumps(shown).encode()
    assert matches(record, b"k", [b"val", b"k"]) and not matches(record, b"K", [])
    assert not matches(record, None, [b"other"])
