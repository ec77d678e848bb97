"""`tidelog top`: frames from readings, rates from two looks, and tables of every width."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer
from tests.support import console_readings
from tests.support.console_readings import group, metadata, reading

from tidelog.cli.live.frame import TopFrame, TopGroup, TopOutReplica, TopUnderReplicated
from tidelog.cli.live.frame_parts import (
    CPU_KEY,
    AdminReading,
    RateMeter,
    Rates,
    brokers_in,
    groups_in,
    partitions_in,
    under_replicated_in,
)
from tidelog.cli.live.views import BROKERS, GROUPS, VIEWS, plain_lines, sorted_rows
from tidelog.cli.top import _admin_port
from tidelog.client.cluster import PartitionMetadata
from tidelog.core.types import TopicPartition
from tidelog.local.admin_ports import AdminPlaces, HistoryWindow, MetricSamples

T0, T1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
NO_RATES = Rates({}, {}, {})


def partition(number: int, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionMetadata:
    return console_readings.partition(number, 1, isr)


def port(**values: float) -> AdminReading:
    """The response of an admin port with metrics without labels, and a history of CPU."""
    history = HistoryWindow(10, (1, 2), {"cpu_cores": (0.5, None), "loop_turn_p99_ms": (2.0, 3.0)})
    samples = MetricSamples({name: [({}, value)] for name, value in values.items()})
    return AdminReading("127.0.0.1:1", 1_000, samples, history, "", "")


def test_growth_is_a_rate_between_two_readings() -> None:
    growth: RateMeter[str] = RateMeter()
    assert growth.rates(1_000, {"a": 10, "b": 5}) == {}
    assert growth.rates(3_000, {"a": 30, "b": 4, "c": 7}) == {"a": 10.0}
    assert growth.rates(3_000, {"a": 99}) == {"a": 10.0}, "the same reading has the same rates"
    assert growth.rates(4_000, {"a": 30, "b": 4, "c": 8}) == {"a": 0.0, "b": 0.0, "c": 1.0}


def test_a_counter_that_has_just_come_began_at_0() -> None:
    growth: RateMeter[str] = RateMeter()
    assert growth.rates(1_000, {}, begins_at_0=True) == {}
    assert growth.rates(2_000, {"a": 500}, begins_at_0=True) == {"a": 500.0}


def test_a_broker_without_admin_port_says_why_its_numbers_are_missing() -> None:
    known = reading(metadata=metadata({"flights": [partition(0, isr=(1, 2))]}))
    missing = AdminPlaces({}, {1: "broker 1 has no admin port"})
    found = {each.broker: each for each in brokers_in(known, {}, missing, NO_RATES)}
    assert (found[1].state, found[1].reason) == ("up", "broker 1 has no admin port")
    assert found[1].cpu_cores is found[1].connections is found[1].bytes_in_per_s is None


def test_a_broker_has_the_rate_between_looks_and_before_it_that_of_its_history() -> None:
    known = reading(metadata=metadata({"flights": [partition(0)]}))
    places = AdminPlaces({1: "127.0.0.1:1"}, {})
    ports = {1: port(kafka_network_socketserver_networkprocessoravgidle_percent=0.75)}
    first = brokers_in(known, ports, places, NO_RATES)[0]
    assert (first.state, first.cpu_cores, first.loop_turn_p99_ms) == ("ready", 0.5, 3.0)
    assert (first.loop_busy, first.admin) == (0.25, "127.0.0.1:1")
    counted = {
        CPU_KEY: 0.1,
        ("tidelog_partition_bytes_in_total", "flights", "0"): 60.0,
        ("tidelog_partition_bytes_in_total", "flights", "1"): 40.0,
    }
    second = brokers_in(known, ports, places, Rates({1: counted}, {}, {}))[0]
    assert (second.cpu_cores, second.bytes_in_per_s, second.bytes_out_per_s) == (0.1, 100.0, 0)


def counting(**more: object) -> MetricSamples:
    """The samples of a broker that counts 7 bytes of one partition."""
    by_name = {
        "tidelog_broker_info": [({"cluster_id": "c", "node_id": "1"}, 1.0)],
        "tidelog_partition_bytes_in_total": [({"topic": "flights", "partition": "0"}, 7.0)],
        "process_cpu_seconds_total": [({}, 1.0)],
    }
    return MetricSamples({**by_name, **more})  # type: ignore[dict-item]  # samples, too


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (counting(), ""),
        (counting(tidelog_partition_bytes_in_total=[]), ""),
        (MetricSamples({}, frozenset({"tidelog_partition_bytes_in_total"})), "its version"),
        (MetricSamples({"process_cpu_seconds_total": [({}, 1.0)]}), "its version"),
        (counting(tidelog_metrics_partitions_left_out=[({}, 12.0)]), "leave out 12 replicas"),
        (None, ""),
    ],
    ids=["all", "no-traffic", "older", "oldest", "limited", "no-response"],
)
def test_a_broker_that_lacks_counters_says_why(samples: MetricSamples | None, reason: str) -> None:
    found = AdminReading("127.0.0.1:1", 1, samples, None, "", "").uncounted()
    assert reason in found and bool(found) is bool(reason)


def test_traffic_that_is_not_counted_is_unknown_and_not_0() -> None:
    known = reading(metadata=metadata({"flights": [partition(0), partition(1)]}))
    counted = {1: {CPU_KEY: 0.1, ("tidelog_partition_bytes_in_total", "flights", "0"): 9.0}}
    found = partitions_in(known, Rates(counted, {}, {}, {1}))
    assert [(each.bytes_in_per_s, each.bytes_out_per_s) for each in found] == [
        (9.0, None),
        (None, None),
    ]
    history = HistoryWindow(10, (1,), {"bytes_in_per_s": (70.0,), "bytes_out_per_s": (None,)})
    ports = {1: AdminReading("127.0.0.1:1", 1, counting(), history, "", "")}
    broker = brokers_in(known, ports, AdminPlaces({}, {}), Rates(counted, {}, {}, {1}))[0]
    assert (broker.cpu_cores, broker.bytes_in_per_s, broker.bytes_out_per_s) == (0.1, 70.0, None)
    frame = replace(EMPTY, brokers=[broker], partitions=found)
    rows = [line.split() for line in plain_lines(frame, None) if "flights-" in line]
    assert rows[0][:4] == ["flights-0", "9", "B/s", "unknown"]
    assert rows[1][:3] == ["flights-1", "unknown", "unknown"]


def test_a_port_that_fails_is_the_reason_of_its_broker() -> None:
    known = reading(metadata=metadata({"flights": [partition(0)]}))
    failed = AdminReading("127.0.0.1:1", 0, None, None, "", "the port does not respond")
    found = brokers_in(known, {1: failed}, AdminPlaces({1: "127.0.0.1:1"}, {}), NO_RATES)[0]
    assert (found.state, found.reason) == ("up", "the port does not respond")


def test_the_hottest_partitions_are_first_and_need_no_admin_port() -> None:
    known = reading(
        metadata=metadata({"flights": [partition(0), partition(1), partition(2)]}), ends={T0: 7}
    )
    counted = {1: {CPU_KEY: 0.1, ("tidelog_partition_bytes_out_total", "flights", "1"): 9.0}}
    found = partitions_in(known, Rates(counted, {T0: 2.0}, {}))
    assert [each.partition for each in found] == [1, 0, 2]
    assert (found[0].bytes_in_per_s, found[0].bytes_out_per_s) == (0.0, 9.0)
    assert (found[1].records_in_per_s, found[1].high_watermark) == (2.0, 7)
    (grown, *_) = partitions_in(known, Rates({}, {}, {T1: 5.0}))
    assert (grown.partition, grown.bytes_in_per_s, grown.bytes_out_per_s) == (1, 5.0, None)


def test_a_groups_lag_in_seconds_is_that_of_its_oldest_partition() -> None:
    known = reading(
        metadata=metadata({"flights": [partition(0)]}),
        ends={T0: 10},
        groups={"a": group("a", {T0: 4}), "b": group("b", {T0: 10})},
    )
    lags = [
        ({"consumergroup": "a", "partition": "0"}, 3.0),
        ({"consumergroup": "a", "partition": "1"}, 8.0),
    ]
    samples = MetricSamples({"tidelog_consumergroup_lag_seconds": lags})
    found = groups_in(known, {1: AdminReading("x", 1, samples, None, "", "")})
    assert [(each.group, each.lag_records, each.lag_s) for each in found] == [
        ("a", 6, 8.0),
        ("b", 0, None),
    ]


def test_a_replica_out_of_the_isr_without_a_described_cause_still_has_a_sentence() -> None:
    known = reading(metadata=metadata({"flights": [partition(0, isr=(1, 2)), partition(1)]}))
    (found,) = under_replicated_in(known)
    assert (found.partition, found.state) == (0, "out of sync")
    assert [(each.broker, each.cause) for each in found.out] == [(3, None)]
    assert found.out[0].sentence


WIDE_NAME = "a-topic-with-a-very-long-name-that-no-narrow-terminal-has-room-for"
EMPTY = TopFrame(1_800_000_000_000, "id", 1, 2, 0, 0, 0, 0, 0, None, None, [], [], [], [], [], [])
FULL = replace(
    EMPTY,
    groups_total=30,
    groups=[
        TopGroup("\x1b[31mred\n", "Stable", 2, 1, 12_345, 75.0),
        TopGroup("none", "Empty", None, 1, None, None),
        TopGroup("small", "Stable", 1, 2, 5, 0.5),
    ],
    under_replicated=[
        TopUnderReplicated(
            WIDE_NAME, 0, "out of sync", 1, (1, 2), (1,),
            [TopOutReplica(2, "slow", "slow: it fetches, but does not catch up", 9, 1)],
        )
    ],
    notes=["the admin port 127.0.0.1:1 does not respond: \x07refused"],
)  # fmt: skip


@pytest.mark.parametrize("width", [1, 10, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = list(plain_lines(FULL, width))
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines), "names of clients cannot move the cursor"


def test_a_name_of_any_length_leaves_the_table_readable() -> None:
    long = replace(FULL, groups=[TopGroup("g" * 32_767, "Stable", 1, 1, 5, 0.5)])
    assert max(map(len, plain_lines(long, None))) < 600


def test_a_narrow_terminal_shows_names_and_lags_and_a_pipe_everything() -> None:
    narrow, piped = list(plain_lines(FULL, 40)), list(plain_lines(FULL, None))
    assert any(line.split() == ["small", "5", "0.5", "s"] for line in narrow)
    assert any("12,345 1 min 15 s" in " ".join(line.split()) for line in piped)
    assert any(f"{WIDE_NAME}-0" in line and "2: slow: it fetches" in line for line in piped)
    assert "Groups (the first 3 of 30)" in piped
    assert "  No partition moves now." in piped


def test_rows_are_sorted_by_a_column_and_unknown_values_come_last() -> None:
    lag = next(each for each in GROUPS.columns if each.title == "lag")
    assert [each.lag_records for each in sorted_rows(FULL.groups, lag, True)] == [12_345, 5, None]
    assert [each.lag_records for each in sorted_rows(FULL.groups, lag, False)] == [5, 12_345, None]
    assert sorted_rows(FULL.groups, None, True) == FULL.groups


def test_each_view_has_a_key_and_columns_for_the_narrowest_terminal() -> None:
    assert len({each.key for each in VIEWS}) == len({each.name for each in VIEWS}) == len(VIEWS)
    for view in VIEWS:
        narrow, wide = view.shown_columns(40), view.shown_columns(None)
        assert 1 < len(narrow) <= len(wide) == len(view.columns)
    assert len(BROKERS.shown_columns(80)) > len(BROKERS.shown_columns(40))


def test_an_admin_port_is_a_broker_with_an_address() -> None:
    assert _admin_port("1=127.0.0.1:9644") == (1, "127.0.0.1:9644")
    assert _admin_port("2=[::1]:9644") == (2, "[::1]:9644")


@pytest.mark.parametrize(
    "text", ["", "9644", "127.0.0.1:9644", "x=h:1", "1=h", "1=h:0", "1=h:70000"]
)
def test_a_text_that_is_no_admin_port_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="BROKER=HOST:PORT expected"):
        _admin_port(text)
