"""Truncation (V38): offsets, files, indexes, leader epochs, producers, and what waits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.support.log import (
    NOW_MS,
    LogHarness,
    append,
    batch_of,
    directory_of,
    read_all,
    values_of,
)

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.records.builder import Producer

Small = Callable[..., LogConfig]


def filled(
    harness: LogHarness, config: LogConfig, count: int = 30, epochs: int = 5
) -> PartitionLog:
    log = harness.log(config)
    for number in range(count):
        append(
            log,
            [bytes([65 + number]) * 60],
            epoch=number // epochs,
            producer=Producer(7, 0, number),
            timestamp_ms=NOW_MS + number,
        )
    return log


@pytest.mark.rule("V38")
@pytest.mark.parametrize("offset", range(0, 31, 3))
def test_everything_from_the_offset_on_is_gone(
    harness: LogHarness, small: Small, offset: int
) -> None:
    log = filled(harness, small())
    log.truncate_to(offset).result()
    assert (log.log_end_offset, log.next_offset) == (offset, offset)
    assert values_of(log) == [bytes([65 + number]) * 60 for number in range(offset)]
    assert log.epochs.entries() == [(e, 5 * e) for e in range(6) if 5 * e < offset]
    entry = log.producers.entry(7)
    assert (entry.last_sequence if entry else -1) == offset - 1
    assert log.recovery_point <= offset
    names = sorted(path.name for path in harness.log_path.glob("*.log"))
    assert names == [f"{segment.base_offset:020d}.log" for segment in log.segments]
    assert all(int(path.name[:20]) <= offset for path in harness.log_path.glob("*.snapshot"))
    append(log, [b"new"], epoch=9, producer=Producer(7, 0, offset))
    assert read_all(log)[-1].offset == offset


@pytest.mark.parametrize("offset", [3, 11, 18, 29])
def test_a_cut_log_finds_timestamps_and_rolls_as_if_never_longer(
    harness: LogHarness, small: Small, offset: int
) -> None:
    log = filled(harness, small())
    log.truncate_to(offset).result()
    assert log.max_timestamp().result() == (NOW_MS + offset - 1, offset - 1, (offset - 1) // 5)
    assert log.offset_for_timestamp(NOW_MS + offset, offset).result() is None
    for number in range(offset, 40):
        append(log, [bytes([65 + number]) * 60], epoch=8, timestamp_ms=NOW_MS + 100 + number)
    assert all(segment.size_bytes <= 1000 for segment in log.segments)
    assert len(values_of(log)) == 40
    found = log.offset_for_timestamp(NOW_MS + 100 + 35, 40).result()
    assert found is not None and found[1] == 35


def test_at_or_beyond_the_end_only_an_epoch_without_records_goes(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"], epoch=1)
    log.assign_epoch(4, 1)
    log.truncate_to(5).result()
    assert log.epochs.entries() == [(1, 0), (4, 1)]
    log.truncate_to(1).result()
    assert log.epochs.entries() == [(1, 0)] and log.log_end_offset == 1
    assert log.truncations == 0


def test_a_batch_that_holds_the_offset_goes_whole(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a", b"b"])
    append(log, [b"c", b"d", b"e"])
    log.truncate_to(4).result()
    assert log.log_end_offset == 2


def test_below_the_first_segment_everything_goes(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_bytes=0))
    log.enforce_retention(NOW_MS, 30).result()
    start = log.log_start_offset
    assert start > 10
    log.truncate_to(5).result()
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (5, 5, 1)


@pytest.mark.rule("V67")
@pytest.mark.parametrize("offset", [0, 15, 30, 1000])
def test_a_log_can_start_anew_anywhere(harness: LogHarness, small: Small, offset: int) -> None:
    log = filled(harness, small())
    log.truncate_fully_and_start_at(offset).result()
    assert (log.log_start_offset, log.next_offset, log.log_end_offset) == (offset,) * 3
    assert log.epochs.entries() == [] and len(log.producers) == 0 and log.size_bytes == 0
    append(log, [b"x"], epoch=12)
    assert values_of(log) == [b"x"]
    assert [path.name for path in sorted(harness.log_path.glob("*.log"))] == [f"{offset:020d}.log"]


def test_what_was_planned_before_is_written_first(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    planned = log.plan_leader_append(batch_of([b"b"]), 0, NOW_MS)
    done = log.truncate_to(1)
    assert planned.result().base_offset == 1
    assert done.done and log.log_end_offset == 1


def test_nothing_is_planned_while_a_truncation_waits(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small())
    harness.lane.eager = False
    done = log.truncate_to(5)
    assert not done.done and log.is_truncating
    plans: tuple[Callable[[], object], ...] = (
        lambda: log.plan_leader_append(batch_of([b"b"]), 9, NOW_MS),
        lambda: log.plan_follower_append(batch_of([b"b"], base_offset=30)),
    )
    for plan in plans:
        with pytest.raises(KafkaError) as caught:
            plan()
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    harness.lane.run()
    done.result()
    append(log, [b"b"], epoch=9)
    assert log.log_end_offset == 6


def test_truncations_follow_each_other(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small())
    harness.lane.eager = False
    first, second, third = log.truncate_to(25), log.truncate_to(28), log.truncate_to(3)
    harness.lane.run()
    for done in (first, second, third):
        done.result()
    assert log.log_end_offset == 3 and not log.is_truncating


def test_a_flush_asked_for_during_a_truncation_comes_after_it(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small())
    harness.lane.eager = False
    cut = log.truncate_to(5)
    flushed = log.flush()
    harness.lane.run()
    cut.result()
    flushed.result()
    assert log.recovery_point == 5


def test_a_flush_under_way_ends_before_the_truncation_begins(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small())
    harness.lane.eager = False
    flushed = log.flush()
    cut = log.truncate_to(5)
    harness.lane.run()
    flushed.result()
    cut.result()
    assert log.recovery_point == 5 and log.log_end_offset == 5


@pytest.mark.rule("V38")
def test_checkpoints_on_disk_never_claim_more_than_the_cut_log_has(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small())
    directory = directory_of(log)
    log.flush().result()
    directory.checkpoint().result()
    directory.write_high_watermarks({log.topic_partition: 28}).result()
    assert "topic 0 30" in (harness.path / "recovery-point-offset-checkpoint").read_text()
    order: list[str] = []
    harness.files.refuse = lambda call, path: order.append(f"{call} {path}") or 0  # type: ignore[func-returns-value]  # append() or 0
    log.truncate_to(12).result()
    assert "topic 0 12" in (harness.path / "recovery-point-offset-checkpoint").read_text()
    assert "topic 0 12" in (harness.path / "replication-offset-checkpoint").read_text()
    cut_at = next(i for i, call in enumerate(order) if call.startswith("truncate"))
    lowered = [i for i, call in enumerate(order) if call.startswith("replace_file")]
    assert max(lowered) < cut_at


@pytest.mark.rule("V38")
def test_producers_beyond_what_is_remembered_are_read_from_the_log(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small())
    log.truncate_to(9).result()
    assert "producers_rebuilt" in harness.tracer.marks
    entry = log.producers.entry(7)
    assert entry is not None and [b.last_offset for b in entry.batches] == [4, 5, 6, 7, 8]


def test_random_truncations_leave_what_a_shorter_log_would_hold(
    harness: LogHarness, small: Small
) -> None:
    draw = random.Random(5)
    log = harness.log(small())
    expected: list[bytes] = []
    sequence = 0
    for step in range(150):
        if draw.random() < 0.15:
            offset = draw.randrange(max(0, len(expected) - 20), len(expected) + 1)
            log.truncate_to(offset).result()
            del expected[log.log_end_offset :]
            entry = log.producers.entry(1)
            sequence = entry.last_sequence + 1 if entry else 0
        value = bytes([step]) * draw.randrange(10, 90)
        append(log, [value], epoch=step // 10, producer=Producer(1, 0, sequence))
        expected.append(value)
        sequence += 1
    assert values_of(log) == expected
