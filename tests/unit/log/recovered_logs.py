"""A log of twelve batches in three leader epochs, for tests that damage and recover it."""

from __future__ import annotations

from pathlib import Path

from tests.support.log import NOW_MS, LogHarness, append, values_of

from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import iter_batches
from tidelog.records.builder import Producer

COUNT = 12


def filled(
    harness: LogHarness, config: LogConfig | None = None, count: int = COUNT
) -> PartitionLog:
    log = harness.log(config)
    for number in range(count):
        append(
            log,
            [bytes([65 + number]) * 30],
            epoch=number // 4,
            producer=Producer(7, 0, number),
            timestamp_ms=NOW_MS + number,
        )
    return log


def ends(path: Path) -> list[int]:
    """Where each batch of a log file ends."""
    return [batch.end_position for batch in iter_batches(path.read_bytes())]


def expect(log: PartitionLog, count: int) -> None:
    """The log holds the first `count` records of `filled`, and all that goes with them."""
    assert values_of(log) == [bytes([65 + number]) * 30 for number in range(count)]
    assert log.recovery_point == log.next_offset == log.log_end_offset == count
    assert log.epochs.entries() == [(e, 4 * e) for e in range(3) if 4 * e < count]
    entry = log.producers.entry(7)
    assert (entry.last_sequence if entry else -1) == count - 1
    if count:
        assert log.max_timestamp().result() == (NOW_MS + count - 1, count - 1, (count - 1) // 4)


def damaged(harness: LogHarness, number: int, at: int, value: bytes) -> Path:
    """Overwrite bytes of a batch of the first log file; no checksum covers the first 16."""
    path = harness.log_path / "00000000000000000000.log"
    start = [0, *ends(path)][number]
    data = bytearray(path.read_bytes())
    data[start + at : start + at + len(value)] = value
    path.write_bytes(data)
    return path
