"""A crash undoes a truncation, and keeps the segment that was rolled behind it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.log import NOW_MS, LogHarness, append, directory_of, drive

from tidelog.core.types import CleanEpochs
from tidelog.log.config import LogConfig
from tidelog.records.batch import iter_batches

Small = Callable[..., LogConfig]
COUNT = 12


def ends(path: Path) -> list[int]:
    """Where each batch of a log file ends."""
    return [batch.end_position for batch in iter_batches(path.read_bytes())]


@pytest.mark.rule("V36")
@pytest.mark.parametrize("index_interval_bytes", [150, 450, 4_000])
def test_records_that_a_crash_brought_back_go_again_with_their_times(
    harness: LogHarness, small: Small, index_interval_bytes: int
) -> None:
    """A truncation and the roll behind it: the crash undoes the first and keeps the second."""
    config = small(segment_bytes=100_000, index_interval_bytes=index_interval_bytes)
    log = harness.log(config)
    for number in range(COUNT):
        append(log, [bytes(30)], timestamp_ms=NOW_MS + number)
    drive(directory_of(log).close(CleanEpochs(1)))
    log = harness.again()
    first = harness.log_path / f"{0:020d}.log"
    before = {path: path.read_bytes() for path in harness.log_path.glob(f"{0:020d}.*")}
    ends_before = ends(first)
    end = COUNT - 3
    log.truncate_to(end).result()
    append(log, [b"x" * 99_900], epoch=2, timestamp_ms=NOW_MS + COUNT + 100)
    log.flush().result()
    directory_of(log).checkpoint().result()
    point = harness.path / "recovery-point-offset-checkpoint"
    point.write_text(point.read_text().replace(f"topic 0 {end + 1}", f"topic 0 {end}"))
    for path, data in before.items():
        path.write_bytes(data)
    log = harness.again()
    assert [segment.base_offset for segment in log.segments] == [0, end]
    assert ends(first) == ends_before[:end]
    for number in range(end):
        found = log.offset_for_timestamp(NOW_MS + number, log.log_end_offset).result()
        assert found is not None and found[:2] == (NOW_MS + number, number)
    found = log.offset_for_timestamp(NOW_MS + end, log.log_end_offset).result()
    assert found is not None and found[1] == end
    times = (harness.log_path / f"{0:020d}.timeindex").read_bytes()
    assert all(offset < end for _, offset in struct.iter_unpack(">qi", times))
