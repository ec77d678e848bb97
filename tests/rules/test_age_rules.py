"""The age of records without timestamps: the time of their segment's last write (D21).

Restarts, compaction, truncation and moves to another directory do not change it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FakeClock,
    LogHarness,
    SimLogHarness,
    batch_of,
    directory_of,
    drive,
)

from tidelog.core.types import CleanEpochs
from tidelog.log import names
from tidelog.log.config import LogConfig
from tidelog.log.log_cleaner import Cleaner, CleanerSettings, CleaningStats
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import NO_TIMESTAMP
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.files import OsFiles
from tidelog.sim.disk import Loss


def config(**more: Any) -> LogConfig:
    """Small segments of two or three batches."""
    small = LogConfig(segment_bytes=1000, index_interval_bytes=150, file_delete_delay_ms=60_000)
    return replace(small, **more)


def untimed(log: PartitionLog, clock: FakeClock, count: int = 1, size_bytes: int = 300) -> None:
    """Append batches whose records carry no timestamp, at this time."""
    for _ in range(count):
        batch = build_batch([NewRecord(b"k", bytes(size_bytes), NO_TIMESTAMP)])
        log.plan_leader_append(batch, 0, clock.wall_ms())
        log.submit_planned()


def compacted(**more: Any) -> LogConfig:
    return config(
        compact_enabled=True,
        delete_enabled=False,
        segment_bytes=400,
        min_cleanable_dirty_ratio=0.0,
        **more,
    )


async def no_sleep(_: float) -> None:
    """A clock that need not be waited for."""


def clean(log: PartitionLog, clock: FakeClock) -> CleaningStats | None:
    cleaner = Cleaner(CleanerSettings(), clock, no_sleep)
    return drive(cleaner.clean_one([(log, log.log_end_offset)]))


def new_log(harness: SimLogHarness, config: LogConfig) -> PartitionLog:
    harness.config = config
    return harness.open().create(TP, TOPIC_ID, config).result()


def again(harness: SimLogHarness, loss: Loss = Loss.NONE) -> PartitionLog:
    """The log after a crash."""
    harness.life.alive = False
    harness.tracer.lines.clear()
    if loss is not Loss.NONE:
        harness.disk.lose_power(harness.draw, loss)
    return harness.open().logs[TP]


def restarted(harness: SimLogHarness, log: PartitionLog) -> PartitionLog:
    """The log after a clean shutdown."""
    directory = directory_of(log)
    drive(directory.close(CleanEpochs(7)))
    return again(harness)


def deleted(log: PartitionLog, clock: FakeClock) -> int:
    return log.enforce_retention(clock.wall_ms(), log.log_end_offset).result()


@pytest.mark.rule("D21")
@pytest.mark.parametrize("restarts", [False, True])
def test_retention_counts_from_the_last_write(restarts: bool) -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(retention_ms=1000))
    untimed(log, harness.clock)
    harness.clock.advance(900)
    untimed(log, harness.clock)
    harness.clock.advance(900)
    if restarts:
        log = again(harness)
    assert deleted(log, harness.clock) == 0, "its last record is 900 ms old"
    harness.clock.advance(100)
    assert deleted(log, harness.clock) == 0
    if restarts:
        log = again(harness)
    harness.clock.advance(1)
    assert deleted(log, harness.clock) == 1


@pytest.mark.rule("D21")
def test_a_restart_makes_no_record_young() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(retention_ms=1000))
    untimed(log, harness.clock, 7)
    segments = len(log.segments)
    assert segments > 2
    for _ in range(3):
        harness.clock.advance(300)
        log = again(harness)
        assert deleted(log, harness.clock) == 0
    harness.clock.advance(101)
    log = again(harness)
    assert deleted(log, harness.clock) == segments


@pytest.mark.rule("D21")
def test_the_largest_timestamp_counts_where_a_record_carries_one() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(retention_ms=1000))
    log.plan_leader_append(batch_of([b"a"], timestamp_ms=NOW_MS - 2000), 0, NOW_MS)
    log.submit_planned()
    untimed(log, harness.clock)
    assert deleted(log, harness.clock) == 1


@pytest.mark.rule("D21")
def test_a_power_loss_leaves_the_time_of_the_last_synced_write() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(retention_ms=1000))
    untimed(log, harness.clock)
    log.flush().result()
    harness.clock.advance(500)
    untimed(log, harness.clock)
    log = again(harness, Loss.ALL_UNSYNCED)
    assert log.log_end_offset == 1
    assert log.active_segment.last_modified_ms == NOW_MS
    harness.clock.advance(501)
    assert deleted(log, harness.clock) == 1


@pytest.mark.rule("D21")
def test_a_truncated_segment_counts_as_written_then() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(retention_ms=1000))
    untimed(log, harness.clock, 2)
    harness.clock.advance(900)
    log.truncate_to(1).result()
    harness.clock.advance(900)
    assert deleted(log, harness.clock) == 0
    assert deleted(again(harness), harness.clock) == 0
    harness.clock.advance(101)
    assert deleted(again(harness), harness.clock) == 1


@pytest.mark.rule("D21")
def test_records_without_timestamps_wait_for_the_compaction_lag() -> None:
    harness = SimLogHarness()
    log = new_log(harness, compacted(min_compaction_lag_ms=1000))
    untimed(log, harness.clock, 4)
    log.flush().result()
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    harness.clock.advance(999)
    assert clean(log, harness.clock) is None
    harness.clock.advance(1)
    assert clean(log, harness.clock) is not None


@pytest.mark.rule("D21")
@pytest.mark.parametrize("loss", [None, Loss.NONE, Loss.ALL_UNSYNCED])
def test_compaction_makes_no_record_young(loss: Loss | None) -> None:
    harness = SimLogHarness()
    both = replace(compacted(retention_ms=1000), delete_enabled=True)
    log = new_log(harness, both)
    untimed(log, harness.clock, 7, 40)
    log.flush().result()
    harness.clock.advance(900)
    untimed(log, harness.clock, 1, 40)
    untimed(log, harness.clock, 1, 300)
    log.flush().result()
    before = len(log.segments)
    log.config = replace(both, segment_bytes=2000)
    harness.clock.advance(500)
    assert clean(log, harness.clock) is not None
    assert len(log.segments) < before
    if loss is not None:
        log = again(harness, loss)
    merged = log.segments[0]
    assert merged.size_bytes and merged.max_timestamp_ms < 0
    harness.clock.advance(500)
    assert deleted(log, harness.clock) == 0
    harness.clock.advance(1)
    segments = len(log.segments)
    assert deleted(log, harness.clock) == segments, "1001 ms after the last write"


@pytest.mark.rule("D21")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_segment_whose_first_record_has_no_timestamp_rolls_by_the_clock(restarts: bool) -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(segment_ms=1000))
    untimed(log, harness.clock)
    harness.clock.advance(1000)
    if restarts:
        log = again(harness)
    untimed(log, harness.clock)
    assert len(log.segments) == 1
    harness.clock.advance(1001)
    if restarts:
        # Since the write before; a broker that runs on knows when the segment was begun.
        log = again(harness)
    untimed(log, harness.clock)
    assert len(log.segments) == 2


def test_a_record_without_timestamp_rolls_no_segment_that_begins_with_one() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(segment_ms=1000))
    log.plan_leader_append(batch_of([b"a"], timestamp_ms=NOW_MS), 0, NOW_MS)
    log.submit_planned()
    harness.clock.advance(5000)
    untimed(log, harness.clock)
    assert len(log.segments) == 1


def test_a_segment_that_is_active_again_after_a_truncation_rolls_by_its_first_timestamp() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(segment_ms=60_000))
    for number in range(20):
        batch = batch_of([bytes(100)], timestamp_ms=NOW_MS + number)
        log.plan_leader_append(batch, 0, NOW_MS)
        log.submit_planned()
    log = restarted(harness, log)
    assert log.segments[0].first_timestamp_ms == NO_TIMESTAMP, "not read at the start"
    log.truncate_to(log.base_offsets[1] - 1).result()
    assert len(log.segments) == 1 and log.active_segment.first_timestamp_ms == NOW_MS
    log.plan_leader_append(batch_of([b"x"], timestamp_ms=NOW_MS + 60_001), 0, NOW_MS)
    log.submit_planned()
    assert len(log.segments) == 2


def test_indexes_of_segments_without_timestamps_are_believed_at_a_start() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(segment_bytes=5000))
    untimed(log, harness.clock, 40)
    reads: list[str] = []
    path = log.segments[0].path(names.LOG)

    def seen(call: str, file: str) -> int:
        if call == "pread":
            reads.append(file)
        return 0

    harness.disk.fault = seen
    log = restarted(harness, log)
    assert len(log.segments) > 2 and log.log_end_offset == 40
    assert reads.count(path) < 5, "the first batch and the last indexed one, not all of them"
    slice_ = log.read(3, 100, 40, min_one_batch=True).result()
    assert slice_.data and not [line for line in harness.tracer.lines if "rebuilt" in line]


def test_an_emptied_time_index_of_records_with_timestamps_is_rebuilt() -> None:
    harness = SimLogHarness()
    log = new_log(harness, config(segment_bytes=5000))
    for number in range(40):
        batch = batch_of([bytes(300)], timestamp_ms=NOW_MS + number)
        log.plan_leader_append(batch, 0, NOW_MS)
        log.submit_planned()
    path = log.segments[0].path(names.TIME_INDEX)
    drive(directory_of(log).close(CleanEpochs(7)))
    harness.disk.file(path).data.clear()
    log = again(harness)
    assert log.segments[0].max_timestamp_ms == NOW_MS + log.base_offsets[1] - 1


@pytest.mark.rule("D21")
def test_the_real_files_return_and_set_the_time_of_the_last_write(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path)
    log = harness.log(config(retention_ms=1000))
    untimed(log, harness.clock, 4)
    path = Path(log.segments[0].path(names.LOG))
    files = OsFiles()
    files.set_modified(str(path), NOW_MS - 5000)
    assert os.stat(path).st_mtime_ns == (NOW_MS - 5000) * 1_000_000
    handle = files.open(str(path))
    assert files.status(handle) == (path.stat().st_size, NOW_MS - 5000)
    files.close(handle)
    log = harness.again()
    assert log.segments[0].last_modified_ms == NOW_MS - 5000
    assert log.segments[1].last_modified_ms > NOW_MS
    assert log.enforce_retention(NOW_MS, 4).result() == 1
