"""Charts of the last day: sums over brokers, gaps, bounds; a topic's day from its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.console_readings import NOW_MS, event, metadata, partition, reading

from tidelog.client.fetching import ListedOffset
from tidelog.console import histories
from tidelog.console.histories import TOPIC_STEP_MS, HistoryReader, TopicDayReader
from tidelog.console.readings import BrokerHistory, ClusterReading, Samples
from tidelog.console.views.history import (
    broker_view,
    cluster_history,
    history_note,
    out_of_isrs,
    runs_of,
    topic_day,
)
from tidelog.core.types import TopicPartition
from tidelog.local.admin_ports import AdminPlaces, AdminPortError, HistoryWindow

DAY_S, NOW_S = 86_400, NOW_MS // 1_000
PLACED = metadata({"flights": [partition(0, 1, [1, 2, 3]), partition(1, 2, [1, 2, 3])]})


def window(
    step_s: int, values: dict[int, float | None], series: str = "cpu_cores"
) -> HistoryWindow:
    return HistoryWindow(step_s, tuple(values), {series: tuple(values.values())})


def history(
    day: dict[int, float | None], recent: dict[int, float | None] | None = None
) -> BrokerHistory:
    return BrokerHistory(window(60, day), window(10, recent or {}))


def test_a_full_day_has_a_bounded_number_of_points() -> None:
    day = dict.fromkeys(range(NOW_S - DAY_S, NOW_S, 60), 1.0)
    recent = dict.fromkeys(range(NOW_S - 900, NOW_S, 10), 2.0)
    runs = runs_of([history({**day}, {**recent})], "cpu_cores")
    assert sum(len(run["values"]) for run in runs) <= 24 * 12 + 90
    assert [run["step_s"] for run in runs] == [300, 10]
    first, last = runs
    end_s = first["start_s"] + first["step_s"] * len(first["values"])
    assert 0 <= last["start_s"] - end_s < 300, "the day ends where the last minutes begin"


def test_values_are_means_of_five_minutes_and_sums_over_brokers() -> None:
    one = history({0: 1.0, 60: 3.0, 300: 5.0})
    other = history({0: 10.0, 300: 20.0})
    assert runs_of([one], "cpu_cores") == [{"start_s": 0, "step_s": 300, "values": [2.0, 5.0]}]
    assert runs_of([one, other], "cpu_cores")[0]["values"] == [12.0, 25.0]


def test_the_time_in_which_a_broker_was_down_is_a_gap() -> None:
    runs = runs_of([history({0: 1.0, 300: None, 600: 2.0, 1500: 3.0})], "cpu_cores")
    assert [(run["start_s"], run["values"]) for run in runs] == [
        (0, [1.0]), (600, [2.0]), (1500, [3.0])
    ]  # fmt: skip


def test_a_sum_does_not_dip_while_one_broker_is_read_later() -> None:
    early, late = history({}, {100: 1.0, 110: 1.0}), history({}, {100: 1.0, 110: 1.0, 120: 1.0})
    assert runs_of([early, late], "cpu_cores")[0]["values"] == [2.0, 2.0]
    gone = history({}, {10: 1.0})
    assert [run["values"] for run in runs_of([gone, late], "cpu_cores")] == [
        [1.0], [1.0, 1.0, 1.0]
    ], "a broker that is gone for longer does not end the chart"  # fmt: skip


def test_a_missing_history_is_a_sentence() -> None:
    silent = {1: "broker 1 has no admin port", 2: "broker 2 has no admin port"}
    known = reading(metadata=PLACED, silent_histories=silent)
    found = cluster_history(known)
    assert found["note"] == (
        "The charts lack a broker: broker 1 has no admin port. The same holds for 1 more."
    )
    assert [each["series"] for each in found["charts"]] == [[]] * 4
    samples = Samples.empty()
    assert broker_view(known, samples, {"id": "2"})["history"]["note"].count("broker 2") == 1
    assert broker_view(known, samples, {"id": "3"})["history"]["note"] is None
    assert "no broker 7" in broker_view(known, samples, {"id": "7"})["missing"]


class Offsets:
    """A client of logs with a record at each of some times."""

    def __init__(self, times_ms: list[int]) -> None:
        self._times_ms = times_ms
        self.asked: list[int] = []

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        self.asked += set(wanted.values())
        return {
            tp: ListedOffset(
                next((n for n, each in enumerate(self._times_ms) if each >= at_ms), -1), at_ms, 0
            )
            for tp, at_ms in wanted.items()
        }


def test_only_a_broker_without_the_key_is_advised_to_set_it() -> None:
    advice = "Set admin.listener in the broker's configuration"
    for reason, is_advised in (
        ("broker 1 has no admin port: admin.listener is not set", True),
        ("broker 1 has no admin.listener: only tidelog's brokers have an admin port", False),
    ):
        note = history_note(reading(silent_histories={1: reason}), [1])
        assert note is not None and (advice in note) is is_advised


def test_a_topics_day_is_read_once_and_in_several_rounds() -> None:
    client: Any = Offsets([NOW_MS - 5 * TOPIC_STEP_MS] * 6)
    ends = {TopicPartition("flights", each): 6 for each in (0, 1)}
    known = reading(metadata=PLACED, ends=ends)
    read = TopicDayReader()
    for _ in range(10):
        found = read(client, known, ["flights", "gone"], NOW_MS)["topic_days"]
    assert len(client.asked) == len(set(client.asked)) == len(found["flights"]) == 49
    rates = topic_day(reading(topic_days=found), Samples.empty(), "flights")
    (burst,) = [(at_ms, rate) for at_ms, rate in rates if rate]
    assert burst[1] == 12 * 1000 / TOPIC_STEP_MS
    assert 0 <= burst[0] - (NOW_MS - 5 * TOPIC_STEP_MS) <= TOPIC_STEP_MS
    read(client, known, ["flights"], NOW_MS + TOPIC_STEP_MS)
    assert len(client.asked) == 50, "one more half hour"


def test_a_topics_day_ends_where_the_samples_begin() -> None:
    samples = Samples.empty()
    samples.topics.add(5_000, {"flights": 50})
    samples.topics.add(9_000, {"flights": 90})
    days = {"flights": ((1_000, 10), (3_000, 30), (7_000, 70))}
    found = topic_day(reading(topic_days=days), samples, "flights")
    assert found == [(3_000, 10.0), (5_000, 10.0)]


def test_a_topics_day_begins_with_its_first_record() -> None:
    days = {"new": ((0, 0), (1_000, 0), (2_000, 0), (3_000, 5)), "empty": ((1_000, 0), (2_000, 0))}
    known = reading(topic_days=days)
    assert topic_day(known, Samples.empty(), "new") == [(2_000, 0.0), (3_000, 5.0)]
    assert topic_day(known, Samples.empty(), "empty") == []


def test_a_topic_without_a_leader_is_not_looked_up() -> None:
    placed = metadata({"flights": [partition(0, -1, [1])]})
    client: Any = Offsets([])
    assert TopicDayReader()(client, reading(metadata=placed), ["flights"], NOW_MS) == {
        "topic_days": {}
    }
    assert client.asked == []


def test_a_port_that_fails_keeps_its_last_history(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = False

    def read(address: str, *_: object) -> HistoryWindow:
        if fails:
            raise AdminPortError(f"{address} does not respond")
        return window(10, {NOW_S: 1.0})

    now_s = [1_000.0]
    missing = {2: "broker 2 has none", 3: "broker 3 has none", 9: "broker 9 is gone"}
    places = [AdminPlaces({1: "127.0.0.1:1"}, missing)]
    monkeypatch.setattr(histories, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(histories, "find_admin_ports", lambda *_: places[0])
    monkeypatch.setattr(histories, "read_history", read)
    client: Any = type("Client", (), {"timeout_ms": 10_000})()
    known = reading(metadata=PLACED)
    reader = HistoryReader()
    first = reader(client, known, NOW_S)
    assert list(first["histories"]) == [1]
    assert first["silent_histories"] == {2: "broker 2 has none", 3: "broker 3 has none"}
    assert client.timeout_ms == 10_000
    fails = True
    second = reader(client, ClusterReading(metadata=PLACED, **first), NOW_S)
    assert second["histories"] == first["histories"]
    assert second["silent_histories"][1] == "127.0.0.1:1 does not respond"
    fails = False
    places = [AdminPlaces({1: "127.0.0.1:7"}, {})]
    third = reader(client, ClusterReading(metadata=PLACED, **second), NOW_S)
    assert third["silent_histories"][1] == "127.0.0.1:1 does not respond", "it is left in peace"
    now_s[0] += 31
    fourth = reader(client, ClusterReading(metadata=PLACED, **third), NOW_S)
    assert fourth["silent_histories"] == {}, "it is found again, at another address"


def test_a_broker_has_the_partitions_whose_isr_it_left_with_the_last_cause() -> None:
    left = {"left": [{"broker": 2, "cause": "no_fetch"}]}
    older = event("isr_change", -60, topic="t", partition=0, left=[{"broker": 2, "cause": "slow"}])
    newest = event("isr_change", -5, topic="t", partition=0, **left)
    known = reading(
        metadata=metadata({"t": [partition(0, 1, (1, 3)), partition(1, 3, (3, 2))]}),
        events=(older, newest),
    )
    page = broker_view(known, Samples.empty(), {"id": "2"})
    assert page["out_of_sync"] == 1
    assert page["behind"] == [
        {"topic": "t", "partition": 0, "leader": 1, "cause": "no_fetch",
         "since_ms": newest["time_ms"]},
    ]  # fmt: skip
    assert out_of_isrs(known, 1) == [
        {"topic": "t", "partition": 1, "leader": 3, "cause": None, "since_ms": None}
    ]
