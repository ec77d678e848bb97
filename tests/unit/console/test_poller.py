"""The poller: what it publishes when a part of a reading fails."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.console import reader
from tidelog.console.poller import Poller
from tidelog.console.readings import ClusterReading, ReadingPart
from tidelog.core.errors import RequestTimeout
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
    return poller._reading


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
