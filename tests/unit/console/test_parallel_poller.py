"""The poller of frames: parts side by side, and a part that hangs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.support.console_readings import metadata, partition

from tidelog.console import reader
from tidelog.console.parallel_poller import ParallelPoller
from tidelog.console.readings import ClusterReading, ReadingPart
from tidelog.runtime.blocking import BlockingClient

PARTS = (ReadingPart.CLUSTER, ReadingPart.OFFSETS, ReadingPart.GROUPS, ReadingPart.DISKS)
PLACED = metadata({"t": [partition(0, 1, [1])]})
PATIENCE_S = 30.0


def test_parts_that_hang_delay_a_frame_once_and_are_taken_when_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, calls = threading.Event(), []

    def hanging(fields: dict[str, Any]) -> Any:
        def read(*_: object) -> dict[str, Any]:
            calls.append(fields)
            assert goes_on.wait(PATIENCE_S)
            return fields

        return read

    monkeypatch.setattr(reader, "read_cluster", lambda _: {"metadata": PLACED})
    monkeypatch.setattr(reader, "read_offsets", lambda *_: {"ends": {}})
    monkeypatch.setattr(reader, "read_groups", hanging({"groups": {}}))
    monkeypatch.setattr(reader, "read_disks", hanging({"log_dirs": ()}))
    published: list[ClusterReading] = []
    poller = ParallelPoller(lambda: BlockingClient("127.0.0.1:1"), published.append, PARTS)
    poller.add_viewer(())
    poller.begin_due(time.monotonic() + PATIENCE_S)
    assert published[-1].metadata is PLACED, "ports may be looked for at once"
    poller.finish(time.monotonic())  # the deadline of the frame
    assert set(published[-1].problems) >= {ReadingPart.GROUPS, ReadingPart.DISKS}
    assert "has not ended yet" in published[-1].problems[ReadingPart.GROUPS]
    poller.begin_due(time.monotonic() + PATIENCE_S)
    poller.finish(time.monotonic() + PATIENCE_S)  # waits only for what this frame has begun
    assert len(calls) == 2, "neither part is read a second time beside the first"
    goes_on.set()
    poller._reads.wait(PARTS, time.monotonic() + PATIENCE_S)
    poller.finish(time.monotonic() + PATIENCE_S)
    assert published[-1].problems == {}
    assert {ReadingPart.GROUPS, ReadingPart.DISKS} <= published[-1].read_ms.keys()
    poller.close()
