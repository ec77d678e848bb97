"""The poller: what it publishes when a part of a reading fails, and what it samples."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.console_readings import metadata, partition, reading

from tidelog.console import poller as poller_module
from tidelog.console import processor_budget, reader
from tidelog.console.poller import Poller
from tidelog.console.readings import ClusterReading, ReadingPart
from tidelog.core.errors import RequestTimeout
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient


def round_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> ClusterReading:
    """The reading after a round in which the brokers' metadata cannot be read."""

    def failing(_client: BlockingClient) -> Any:
        raise error

    published: list[ClusterReading] = []
    monkeypatch.setattr(reader, "read_cluster", failing)
    monkeypatch.setattr(reader, "read_groups", lambda *_: {"groups": {}})
    monkeypatch.setattr(reader.MoveReader, "__call__", lambda *_: {})
    poller = Poller(BlockingClient("127.0.0.1:1"), published.append)
    assert poller.run_due() and not poller.run_due()
    return published[-1]


def test_a_part_that_fails_is_a_sentence_and_other_parts_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = round_with(monkeypatch, RequestTimeout("no broker responds"))
    assert found.problems == {ReadingPart.CLUSTER: "Reading cluster failed: no broker responds"}
    assert ReadingPart.GROUPS in found.read_ms and ReadingPart.CLUSTER not in found.read_ms


def test_a_defect_does_not_end_the_poller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = round_with(monkeypatch, KeyError("kind"))
    assert "by a defect of the console: KeyError('kind')" in found.problems[ReadingPart.CLUSTER]
    assert ReadingPart.GROUPS in found.read_ms
    assert "reading cluster failed" in caplog.text and "Traceback" in caplog.text


def test_the_parts_of_a_large_cluster_take_turns_within_a_fifth_of_a_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, used_s = [1_000.0], [5.0]
    reads: list[str] = []

    def costly(name: str, fields: dict[str, Any]) -> Any:
        def read(*_: object) -> dict[str, Any]:
            reads.append(name)
            now_s[0] += 0.5
            used_s[0] += 0.5
            return fields

        return read

    clock = SimpleNamespace(
        monotonic=lambda: now_s[0], thread_time=lambda: used_s[0], time_ns=time.time_ns
    )
    monkeypatch.setattr(poller_module, "time", clock)
    monkeypatch.setattr(processor_budget, "time", clock)
    placed = metadata({"t": [partition(0, 1, [1])]})
    monkeypatch.setattr(reader, "read_cluster", costly("cluster", {"metadata": placed}))
    monkeypatch.setattr(reader, "read_offsets", costly("offsets", {"ends": {}}))
    monkeypatch.setattr(reader, "read_groups", costly("groups", {"groups": {}}))
    parts = [ReadingPart.CLUSTER, ReadingPart.OFFSETS, ReadingPart.GROUPS]
    poller = Poller(BlockingClient("127.0.0.1:1"), lambda _: None, parts)
    poller.add_viewer(())
    poller.run_due()
    assert reads == ["cluster", "offsets", "groups"], "the first readings come at once"
    begun_s, before_s = now_s[0], used_s[0]
    while now_s[0] < begun_s + 300:
        poller.run_due()
        now_s[0] += 0.05
    share = (used_s[0] - before_s) / (now_s[0] - begun_s)
    assert 0.19 < share < 0.21
    counts = Counter(reads)
    assert max(counts.values()) - min(counts.values()) <= 2, "each part has its turn"


def test_a_part_that_is_not_served_has_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[dict[str, Any]] = iter([{"described": {}}])

    def described(*_: object) -> Any:
        try:
            return next(answers)
        except StopIteration:
            raise reader.PartNotServed("Kafka's brokers do not serve it.") from None

    monkeypatch.setattr(reader, "read_replicas", described)
    published: list[ClusterReading] = []
    poller = Poller(BlockingClient("127.0.0.1:1"), published.append, [ReadingPart.REPLICAS])
    poller.run_due()
    assert ReadingPart.REPLICAS in published[-1].read_ms
    poller.add_viewer(())
    poller.run_due()
    assert published[-1].problems == {ReadingPart.REPLICAS: "Kafka's brokers do not serve it."}
    assert published[-1].read_ms == {}


def test_a_partition_that_gets_its_first_leader_is_no_burst_of_records() -> None:
    poller = Poller(BlockingClient("127.0.0.1:1"), lambda _: None)
    placed = metadata({"t": [partition(0, 1, [1]), partition(1, -1, [2])]})
    first = TopicPartition("t", 0)
    for second, ends in enumerate(
        [{first: 10}, {first: 20, TopicPartition("t", 1): 9_000_000}], start=1
    ):
        poller._reading = replace(reading(metadata=placed, ends=ends), time_ms=second * 10_000)
        poller._take_samples()
    assert poller.samples.topics.points("t") == [(20_000, 9_000_020)]
    assert poller.samples.topics.rates(15_000) == {}


def test_what_is_read_is_published_before_a_part_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: list[ClusterReading] = []
    known_before: list[bool] = []

    def hanging(*_: object) -> Any:
        known_before.append(any(each.metadata is not None for each in published))
        return {}

    placed = metadata({"t": [partition(0, 1, [1])]})
    monkeypatch.setattr(poller_module, "_ROUND_S", 0.0)
    monkeypatch.setattr(reader, "read_cluster", lambda _: {"metadata": placed})
    for name in ("read_offsets", "read_replicas", "read_settings", "read_groups", "read_disks"):
        monkeypatch.setattr(reader, name, hanging)
    monkeypatch.setattr(reader.MoveReader, "__call__", lambda *_: {})
    Poller(BlockingClient("127.0.0.1:1"), published.append).run_due()
    assert known_before == [True] * 5
