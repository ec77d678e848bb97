"""Pages as documents: what a reading of the cluster becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.console_readings import NOW_MS, event, group, metadata, partition, reading

from tidelog.client.moving import Moves, MoveUnderWay
from tidelog.client.replica_requests import PartitionReplicas, ReplicaProgress
from tidelog.client.upkeep import LogDirDescription, ReplicaSize
from tidelog.console.readings import ClusterReading, ReadingPart, Samples
from tidelog.console.samples import SampleTable
from tidelog.console.views.catalogue import PAGES, page_document, viewed_partitions
from tidelog.console.views.tables import BadQuery, TableQuery, window
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition

T0, T1, T2 = (TopicPartition("flights", number) for number in range(3))


def page(which: str, known: ClusterReading, /, **params: str) -> Any:
    """A page's document, as a browser gets it."""
    document = page_document(which, known, Samples.empty(), params)
    return json.loads(json.dumps(document))


@pytest.fixture
def known() -> ClusterReading:
    """A cluster of which broker 3 is gone: one partition in sync, one not, one without leader."""
    return reading(
        metadata=metadata(
            {
                "flights": [
                    partition(0, 1, [1, 2], [1, 2]),
                    partition(1, 2, [2], [1, 2, 3]),
                    partition(2, -1, [3], [3]),
                ],
                "__cluster_events": [partition(0, 1, [1, 2])],
            },
            brokers=(1, 2),
        ),
        ends={T0: 100, T1: 1_000, T2: 7},
        starts={T0: 0, T1: 900},
        minimums={"flights": 2},
        groups={
            "billing": group("billing", {T0: 100, T1: 500}, {"m-1": [T0], "m-2": [T1, T2]}),
            "new": group("new", {}, {"m-3": [T0]}),
        },
        log_dirs=(
            LogDirDescription(
                1, "/d1", ErrorCode.NONE, (ReplicaSize("flights", 0, 4_000, 0, False),), 10, 100
            ),
        ),
        events=(
            event("registration", -50, broker=3, broker_epoch=9, previous_broker_epoch=-1),
            event("session_loss", -10, broker=3, broker_epoch=9),
        ),
    )


def test_every_page_is_built_before_the_first_reading_and_after_it(known: ClusterReading) -> None:
    params = {"name": "flights", "topic": "flights", "partition": "1"}
    for name in PAGES:
        assert page(name, ClusterReading(), **params)["page"] == name
        assert page(name, known, **params)["reading"] == 1


def test_the_cluster_page_judges_and_names_the_lost_session(known: ClusterReading) -> None:
    document = page("cluster", known)
    assert document["level"] == "unavailable"
    assert document["counts"]["leaderless"] == 1 and document["counts"]["brokers_down"] == 1
    lost = document["table"]["rows"][2]
    assert (lost["broker"], lost["is_registered"]) == (3, False)
    assert (lost["session_ended_by"], lost["session_ended_ms"]) == ("session_loss", NOW_MS - 10_000)
    assert lost["broker_epoch"] == 9
    assert any("no leader" in each["message"] or "without a leader" in each["message"]
               for each in document["findings"])  # fmt: skip


def test_lag_stands_beside_the_topic_and_is_clamped_to_the_log(known: ClusterReading) -> None:
    (row,) = page("topics", known)["table"]["rows"]
    assert row["topic"] == "flights"
    assert row["groups"] == [{"group": "billing", "lag": 100}, {"group": "new", "lag": None}]
    assert (row["state"], row["under_replicated"], row["size"]) == ("no leader", 2, 4_000)
    both = page("topics", known, internal="1")["table"]["rows"]
    assert [each["topic"] for each in both] == ["__cluster_events", "flights"]


def test_a_partition_without_a_commit_is_not_a_lag_of_nought(known: ClusterReading) -> None:
    document = page("group", known, name="billing")
    rows = {row["partition"]: row for row in document["table"]["rows"]}
    assert [rows[number]["lag"] for number in range(3)] == [0, 100, None]
    assert rows[2]["committed"] is None and rows[2]["member"] == "m-2"
    assert document["held_back"] == "flights-1 has 100 of 100 unread records: member m-2 reads it"
    assert [each["lag"] for each in document["members"]] == [0, 100]


def test_states_of_partitions_are_told_from_each_other(known: ClusterReading) -> None:
    rows = page("topic", known, name="flights")["table"]["rows"]
    assert [row["state"] for row in rows] == ["in sync", "below min ISR", "no leader"]
    assert viewed_partitions("topic", known, {"name": "flights"}) == [T0, T1, T2]


def replica(broker: int, end: int | None, **changed: Any) -> ReplicaProgress:
    fields: dict[str, Any] = {
        "broker": broker, "leader": broker == 2, "in_isr": broker == 2, "registered": broker != 3,
        "log_start_offset": 0, "log_end_offset": end, "lag_records": None, "lag_ms": None,
        "last_caught_up_ms": None, "last_fetch_ms": None, "pending_reads": None,
        "out_cause": None, "out_since_ms": None,
    }  # fmt: skip
    return ReplicaProgress(**{**fields, **changed})


def test_a_partition_says_why_writes_are_refused_and_copies_are_slow(known: ClusterReading) -> None:
    move = MoveUnderWay((2, 1, 3), (1,), (3,), (2, 3), throttle=5_000, paused="too few in sync")
    described = PartitionReplicas(
        T1, 2, 4, 11, 1_000, 1_010, (1,), 2, None,
        (
            replica(1, 40, out_cause="slow", out_since_ms=NOW_MS - 5),
            replica(2, 1_010),
            replica(3, None),
        ),
        30_000,
    )  # fmt: skip
    moves = Moves({T1: move}, {}, False, True)
    changed = page(
        "partition",
        reading(
            metadata=known.metadata,
            minimums=known.minimums,
            described={T1: described},
            moves=moves,
        ),
        topic="flights",
        partition="1",
    )
    texts = " ".join(each["text"] for each in changed["conditions"])
    assert "NOT_ENOUGH_REPLICAS" in texts and "min.insync.replicas=2" in texts
    assert "paused: too few in sync" in texts and "5,000 bytes a second" in texts
    assert (changed["elr"], changed["partition_epoch"]) == ([1], 11)
    slow, leader, gone = changed["replicas"]
    assert (slow["out_cause"], slow["log_end"], slow["is_eligible"]) == ("slow", 40, True)
    assert leader["is_leader"] and not gone["is_registered"]


def test_what_cannot_be_read_is_a_sentence_on_the_pages_that_show_it() -> None:
    sentence = "These brokers do not serve DescribeReplicas."
    known = reading(
        metadata=metadata({"flights": [partition(0, 1, [1])]}),
        problems={ReadingPart.REPLICAS: sentence, ReadingPart.GROUPS: "Reading groups failed."},
    )
    params = {"topic": "flights", "partition": "0"}
    assert [each["text"] for each in page("partition", known, **params)["notes"]] == [sentence]
    assert [each["part"] for each in page("topics", known)["notes"]] == ["groups"]
    assert page("cluster", known)["notes"] == []


# tables


def rows(count: int) -> list[dict[str, Any]]:
    return [{"name": f"t{number}", "size": number % 7 or None} for number in range(count)]


def test_a_window_filters_sorts_and_limits() -> None:
    query = TableQuery.from_params({"q": "T1 1", "sort": "-size", "limit": "3"}, "name")
    found = window(rows(100), query)
    assert (found["matching"], found["total"]) == (11, 100)
    assert [row["size"] for row in found["rows"]] == [6, 5, 5]


def test_rows_without_a_value_come_last_in_either_order() -> None:
    for sort in ("size", "-size"):
        found = window(rows(8), TableQuery.from_params({"sort": sort}, "name"))["rows"]
        assert [row["size"] for row in found[-2:]] == [None, None]


def test_texts_lists_and_unknown_columns_can_be_sorted() -> None:
    mixed: list[dict[str, Any]] = [
        {"x": [2, 10]},
        {"x": "b"},
        {"x": 3},
        {"x": True},
        {"x": None},
        {"x": "A"},
    ]
    found = window(mixed, TableQuery.from_params({"sort": "x"}, "x"))["rows"]
    assert [row["x"] for row in found][:2] == [True, 3] and found[-1]["x"] is None
    assert window(mixed, TableQuery.from_params({"sort": "__class__"}, "x"))["rows"] == mixed


@pytest.mark.parametrize("limit", ["0", "-1", "5001", "1e3", "x" * 1000])
def test_a_limit_outside_its_range_is_refused(limit: str) -> None:
    with pytest.raises(BadQuery, match=r"limit="):
        TableQuery.from_params({"limit": limit}, "name")


# samples


def test_rates_and_points_of_samples() -> None:
    table = SampleTable(1_000, 4)
    for second in range(12):
        assert table.add(second * 1_000, {"a": 10 * second, f"b{second}": 1})
        assert not table.add(second * 1_000 + 999, {"a": 0})
    assert table.rates(3_000)["a"] == 10.0
    assert table.points("a") == [(8_000, 80), (9_000, 90), (10_000, 100), (11_000, 110)]
    assert table.points("b0") == [] and table.points("never") == []
    table.add(12_000, {"a": 5})
    assert table.rates(2_000)["a"] == 0.0
    table.add(13_000, {"c": 5})
    assert "a" not in table.rates(9_000) and "c" not in table.rates(9_000)


def test_ten_thousand_partitions_are_one_small_page() -> None:
    topics = {
        f"topic-{name:04}": [partition(number, 1, [1, 2, 3]) for number in range(4)]
        for name in range(3_000)
    }
    known = reading(metadata=metadata(topics), ends={})
    document = page_document("topics", known, Samples.empty(), {"q": "topic-1"})
    assert (document["table"]["matching"], document["table"]["total"]) == (1_000, 3_000)
    assert len(json.dumps(document)) < 100_000
