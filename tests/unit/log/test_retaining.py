"""Retention: which segments go, when, and what of them is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    LogHarness,
    SimLogHarness,
    append,
    batch_of,
    values_of,
)

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.records.builder import Producer
from tidelog.sim.disk import Loss

Small = Callable[..., LogConfig]


def filled(harness: LogHarness, config: LogConfig) -> PartitionLog:
    log = harness.log(config)
    for number in range(30):
        append(log, [bytes([65 + number]) * 60], epoch=number // 5, timestamp_ms=NOW_MS + number)
    return log


def test_by_size_the_oldest_segments_go(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_bytes=2000))
    count = log.enforce_retention(NOW_MS, 30).result()
    assert count > 0 and log.size_bytes >= 2000
    assert log.size_bytes - log.segments[0].size_bytes < 2000, "no more than needed are kept"
    start = log.segments[0].base_offset
    assert log.log_start_offset == start
    assert values_of(log) == [bytes([65 + number]) * 60 for number in range(start, 30)]
    before = (start - 1) // 5  # the epoch of the record before the first: where it began stays
    assert log.epochs.entries()[0] == (before, before * 5)
    with pytest.raises(KafkaError):
        log.read(start - 1, 100, 30, min_one_batch=True)


def test_by_time_what_is_too_old_goes(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_ms=100))
    second = log.base_offsets[1]
    assert log.enforce_retention(NOW_MS + second - 1 + 100, 30).result() == 0
    assert log.enforce_retention(NOW_MS + second - 1 + 101, 30).result() == 1
    assert log.log_start_offset == second


def test_nothing_at_or_above_the_high_watermark_goes(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_ms=0))
    second = log.base_offsets[1]
    assert log.enforce_retention(NOW_MS * 2, second - 1).result() == 0
    assert log.enforce_retention(NOW_MS * 2, second).result() == 1
    assert log.log_start_offset == second


def test_when_everything_is_too_old_an_empty_segment_is_left(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(retention_ms=0))
    segments = len(log.segments)
    assert log.enforce_retention(NOW_MS * 2, 30).result() == segments
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
    assert log.enforce_retention(NOW_MS * 2, 30).result() == 0
    append(log, [b"x"], epoch=9)
    assert values_of(log) == [b"x"]
    assert harness.again().log_start_offset == 30


def test_records_without_timestamps_age_with_their_segment(
    harness: LogHarness, small: Small
) -> None:
    log = harness.log(small(retention_ms=1000))
    for _ in range(10):
        log.plan_leader_append(batch_of([bytes(300)], timestamp_ms=-1), 0, NOW_MS)
        log.submit_planned()
    assert len(log.segments) > 2
    assert log.enforce_retention(NOW_MS + 1000, 10).result() == 0
    assert log.enforce_retention(NOW_MS + 1001, 10).result() == 5


def test_without_limits_or_the_policy_nothing_goes(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_ms=-1, retention_bytes=-1))
    assert log.enforce_retention(NOW_MS * 2, 30).result() == 0
    log.config = small(retention_ms=0, delete_enabled=False)
    assert log.enforce_retention(NOW_MS * 2, 30).result() == 0


def test_what_lies_before_the_log_start_goes_whatever_the_policy(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(delete_enabled=False))
    assert log.advance_log_start(log.base_offsets[2] + 1)
    assert not log.advance_log_start(3)
    assert log.enforce_retention(NOW_MS, 30).result() == 2
    assert log.segments[0].base_offset <= log.log_start_offset
    with pytest.raises(KafkaError) as caught:
        log.advance_log_start(31)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_files_are_renamed_now_and_removed_later(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_bytes=0))
    log.flush().result()
    gone = log.base_offsets[0]
    log.enforce_retention(NOW_MS, 30).result()
    left = sorted(path.name for path in harness.log_path.iterdir())
    assert f"{gone:020d}.log" not in left and f"{gone:020d}.log.deleted" in left
    assert f"{gone:020d}.index.deleted" in left
    harness.clock.advance(1000)
    left = sorted(path.name for path in harness.log_path.iterdir())
    assert not [name for name in left if name.endswith(".deleted")]
    assert all(
        int(path.name[:20]) >= log.log_start_offset for path in harness.log_path.glob("*.snap*")
    )


def test_a_reader_of_a_removed_segment_is_told_so(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_bytes=0))
    harness.lane.eager = False
    harness.lane.slow_disk = True
    handle = log.segments[0].file.take()
    assert handle is not None
    harness.files.close(handle)
    completion = log.read(0, 100, 30, min_one_batch=True)
    harness.lane.slow_disk = False
    log.enforce_retention(NOW_MS, 30)
    first = harness.lane.waiting.popleft()
    harness.lane.eager = True
    harness.lane.run()
    harness.lane.waiting.append(first)
    harness.lane.run()
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.directory.failure is None


def test_silent_producers_are_forgotten_by_the_same_sweep(harness: LogHarness) -> None:
    log = harness.log(LogConfig(producer_id_expiration_ms=1000))
    append(log, [b"a"], producer=Producer(4, 0, 0), timestamp_ms=5)
    harness.clock.advance(999)
    log.enforce_retention(harness.clock.now_ms, 1).result()
    assert log.producers.entry(4) is not None, "its records' times do not matter"
    harness.clock.advance(1)
    log.enforce_retention(harness.clock.now_ms, 0).result()
    assert log.producers.entry(4) is None


@pytest.mark.rule("V64")
@pytest.mark.parametrize("is_snapshot_lost", [False, True])
@pytest.mark.parametrize("retention_bytes", [0, 1])
def test_a_crash_after_retention_forgets_no_batch_of_a_producer(
    harness: LogHarness, small: Small, retention_bytes: int, is_snapshot_lost: bool
) -> None:
    """All records are gone, or all but those of the last segment; nothing was checkpointed.

    Also where the snapshot of the roll had been lost in an earlier crash.
    """
    config = small(retention_bytes=retention_bytes)
    log = harness.log(config)
    for number in range(30):
        append(log, [b"x" * 60], producer=Producer(7, 0, number), timestamp_ms=NOW_MS)
    if is_snapshot_lost:
        log.snapshots.clear()
        log.new_snapshots.clear()
        for path in harness.path.rglob("*.snapshot"):
            path.unlink()
    entry = log.producers.entry(7)
    assert entry is not None
    gone = len(log.segments) - retention_bytes
    assert log.enforce_retention(NOW_MS, 30).result() == gone
    loaded = harness.open(config).logs[TP].producers.entry(7)
    assert loaded is not None and loaded.batches == entry.batches


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rounds", [(6,), (2, 6), (2, 4, 6), (8,), (3, 8)])
def test_a_power_loss_after_retention_loses_no_record_that_was_left(
    rounds: tuple[int, ...], seed: int
) -> None:
    """Names reach the disk in any order, and no recovery point is on disk.

    Each round removes the segments up to one offset. The last round may leave an empty segment.
    """
    harness = SimLogHarness(seed, LogConfig(segment_bytes=150, retention_ms=0))
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    for number in range(8):
        append(log, [bytes([number]) * 50], timestamp_ms=NOW_MS)
    log.flush().result()
    assert log.base_offsets == list(range(8))
    for end in rounds:
        log.enforce_retention(NOW_MS * 2, end).result()
        assert log.log_start_offset == end
    harness.life.alive = False
    harness.disk.lose_power(harness.draw, Loss.REORDERED)
    log = harness.open().logs[TP]
    assert log.log_end_offset == 8
    assert log.log_start_offset <= rounds[-1]
    assert values_of(log) == [bytes([number]) * 50 for number in range(log.log_start_offset, 8)]


def test_removals_cost_no_sync_where_the_names_are_durable(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(retention_ms=100))
    log.flush().result()
    second, fourth = log.base_offsets[1], log.base_offsets[3]
    harness.files.calls.clear()
    assert log.enforce_retention(NOW_MS + second + 100, 30).result() == 1
    assert "fsync_directory" not in dict(harness.files.calls)
    assert log.enforce_retention(NOW_MS + fourth + 100, 30).result() == 2
    syncs = [path for call, path in harness.files.calls if call == "fsync_directory"]
    assert syncs == [log.path] * 2, "one for the first removal, one between the others"
