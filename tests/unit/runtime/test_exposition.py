"""The text of metrics: Prometheus' format and OpenMetrics, and the slices in which it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tidelog.core.metrics import PAUSE, MetricReading, Metrics, counter, gauge, histogram, reading
from tidelog.runtime.admin.exposition import (
    OPENMETRICS,
    PROMETHEUS,
    content_type,
    metrics_text,
    newer_name,
)

SENT = counter("tidelog_sent_total", 'commands "sent"', "broker")
SIZE = gauge("tidelog_size", "bytes of a log", "topic", "partition")
TAKEN_MS = histogram("tidelog_taken_ms", "time that commands took", "name", bounds=(10, 100))
DECLARED = [SENT, SIZE, TAKEN_MS]


def text_of(metrics: Metrics, form: str = PROMETHEUS) -> str:
    return b"".join(asyncio.run(metrics_text(metrics, DECLARED, form))).decode()


def filled() -> Metrics:
    metrics = Metrics()
    metrics.add(SENT, 3, 'a"b\\c\n')
    for taken_ms in (5, 50, 500):
        metrics.observe(TAKEN_MS, taken_ms, "x")
    metrics.collect(lambda: iter([reading(SIZE, 7, "t", 0), PAUSE, reading(SIZE, 8, "t", 1)]))
    return metrics


def test_prometheus_format() -> None:
    assert text_of(filled()).splitlines() == [
        '# HELP tidelog_sent_total commands "sent"',
        "# TYPE tidelog_sent_total counter",
        r'tidelog_sent_total{broker="a\"b\\c\n"} 3',
        "# HELP tidelog_size bytes of a log",
        "# TYPE tidelog_size gauge",
        'tidelog_size{topic="t",partition="0"} 7',
        'tidelog_size{topic="t",partition="1"} 8',
        "# HELP tidelog_taken_ms time that commands took",
        "# TYPE tidelog_taken_ms histogram",
        'tidelog_taken_ms_bucket{name="x",le="10.0"} 1',
        'tidelog_taken_ms_bucket{name="x",le="100.0"} 2',
        'tidelog_taken_ms_bucket{name="x",le="+Inf"} 3',
        'tidelog_taken_ms_sum{name="x"} 555',
        'tidelog_taken_ms_count{name="x"} 3',
    ]


def test_openmetrics_names_counters_without_their_ending() -> None:
    lines = text_of(filled(), OPENMETRICS).splitlines()
    assert lines[:2] == [
        r"# HELP tidelog_sent commands \"sent\"",
        "# TYPE tidelog_sent counter",
    ]
    assert lines[2].startswith("tidelog_sent_total{") and lines[-1] == "# EOF"


def test_newer_names_are_beside_the_older_ones_if_they_are_wanted() -> None:
    metrics = Metrics()
    bytes_in = counter("kafka_server_brokertopicmetrics_bytesin_total", "bytes", "topic")
    metrics.add(bytes_in, 5, "t")
    for wanted in (False, True):
        pieces = asyncio.run(metrics_text(metrics, [bytes_in], has_newer_names=wanted))
        text = b"".join(pieces).decode()
        assert 'bytesin_total{topic="t"} 5\n' in text
        newer = "kafka_server_brokertopicmetrics_bytesinpersec_total"
        assert (f'# TYPE {newer} counter\n{newer}{{topic="t"}} 5\n' in text) is wanted
    idle = "kafka_network_socketserver_networkprocessoravgidle_percent"
    assert newer_name(idle) == "kafka_network_socketserver_networkprocessoravgidlepercent"
    assert newer_name("kafka_log_log_size") is newer_name("tidelog_sent_total") is None


def test_a_counter_that_a_collector_reads_has_one_sample() -> None:
    metrics = Metrics()
    cpu = counter("tidelog_cpu_seconds_total", "processor time")
    quiet = counter("tidelog_quiet_total", "nothing yet")
    metrics.collect(lambda: iter([reading(cpu, 7)]))
    text = b"".join(asyncio.run(metrics_text(metrics, [cpu, quiet]))).decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == ["tidelog_cpu_seconds_total 7", "tidelog_quiet_total 0"]


def test_a_gauge_keeps_its_name_in_openmetrics() -> None:
    metrics = Metrics()
    idle = gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "share")
    metrics.put(idle, 1)
    pieces = asyncio.run(metrics_text(metrics, [idle], OPENMETRICS, has_newer_names=True))
    newer = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"
    assert f"# TYPE {newer} gauge\n{newer} 1\n" in b"".join(pieces).decode()


def test_a_text_of_named_metrics_has_no_other_metric() -> None:
    made = metrics_text(filled(), DECLARED, names=frozenset({"tidelog_size"}))
    assert b"".join(asyncio.run(made)).decode().splitlines() == [
        "# HELP tidelog_size bytes of a log",
        "# TYPE tidelog_size gauge",
        'tidelog_size{topic="t",partition="0"} 7',
        'tidelog_size{topic="t",partition="1"} 8',
    ]


def test_the_client_chooses_the_format() -> None:
    assert content_type({}) == content_type({"accept": "text/plain"}) == PROMETHEUS
    accepted = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    assert content_type({"accept": accepted}) == OPENMETRICS


def test_the_loop_turns_between_slices() -> None:
    metrics = Metrics()
    turns = 0

    def readings() -> Iterator[MetricReading]:
        for number in range(4_000):
            yield MetricReading((SIZE,), (turns,), (f"topic-{number}", "0"))

    metrics.collect(readings)

    async def run() -> None:
        nonlocal turns
        making = asyncio.ensure_future(metrics_text(metrics, DECLARED))
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        values = [int(line.split()[-1]) for line in b"".join(making.result()).splitlines()[2:]]
        assert len(values) == 4_000 and sorted(values) == values and values[-1] > values[0]

    asyncio.run(run())


def test_an_undeclared_metric_is_a_defect() -> None:
    metrics = Metrics()
    metrics.collect(lambda: iter([reading(gauge("tidelog_stray", "nothing"), 1)]))
    with pytest.raises(AssertionError, match="tidelog_stray"):
        text_of(metrics)
