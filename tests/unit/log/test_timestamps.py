"""Offsets by timestamp: the first record that is as new."""

from __future__ import annotations

import random

import pytest
from tests.support.log import NOW_MS, LogHarness, append, batch_of, read_all

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.config import LogConfig
from tidelog.records.compression import ZSTD


@pytest.mark.parametrize("codec", [0, ZSTD])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_record_as_new_is_found(harness: LogHarness, codec: int, seed: int) -> None:
    draw = random.Random(seed)
    log = harness.log(LogConfig(segment_bytes=1500, index_interval_bytes=200))
    for number in range(40):
        append(
            log,
            [bytes(draw.randrange(60))] * draw.randrange(1, 5),
            epoch=number // 6,
            timestamp_ms=NOW_MS + number * 5 + draw.randrange(-20, 20),
            codec=codec,
        )
    if seed % 2:
        log = harness.again()
    records = read_all(log)
    for timestamp_ms in range(NOW_MS - 25, NOW_MS + 240, 3):
        for end in (log.log_end_offset, 50):
            expected = next(
                (
                    (record.timestamp_ms, record.offset, log.epochs.epoch_at(record.offset))
                    for record in records
                    if record.timestamp_ms >= timestamp_ms and record.offset < end
                ),
                None,
            )
            found = log.offset_for_timestamp(timestamp_ms, end).result()
            first = next((r for r in records if r.timestamp_ms >= timestamp_ms), None)
            # The first record may lie at or beyond the end: then there is none.
            if first is not None and first.offset >= end:
                expected = None
            assert found == expected
    newest = max(records, key=lambda record: record.timestamp_ms)
    found_newest = log.max_timestamp().result()
    assert found_newest is not None and found_newest[0] == newest.timestamp_ms


def test_an_empty_log_and_one_without_times_have_none(harness: LogHarness) -> None:
    log = harness.log()
    assert log.offset_for_timestamp(0, 0).result() is None
    assert log.max_timestamp().result() is None
    log.plan_leader_append(batch_of([b"a"], timestamp_ms=-1), 0, NOW_MS)
    log.submit_planned()
    assert log.max_timestamp().result() is None


def test_records_before_the_log_start_are_not_found(harness: LogHarness) -> None:
    log = harness.log()
    for number in range(5):
        append(log, [b"a"], timestamp_ms=NOW_MS + number)
    log.advance_log_start(3)
    found = log.offset_for_timestamp(NOW_MS, 5).result()
    assert found is not None and found[1] == 3


def test_the_largest_timestamp_is_named_though_its_record_was_deleted(
    harness: LogHarness,
) -> None:
    """As Kafka does, as long as the segment is there."""
    log = harness.log()
    for number, newer in enumerate((0, 9, 1, 2)):
        append(log, [b"a"], timestamp_ms=NOW_MS + newer, epoch=number)
    log.advance_log_start(3)
    assert log.max_timestamp().result() == (NOW_MS + 9, 1, 1)
    assert log.offset_for_timestamp(NOW_MS + 3, 4).result() is None


def test_segments_are_listed_by_the_time_of_their_last_write(harness: LogHarness) -> None:
    """As ListOffsets 0 has it: a begin for each segment, and the log end as one of now."""
    log = harness.log(LogConfig(segment_bytes=150))
    written_ms = []
    for _ in range(3):
        append(log, [b"a" * 60])
        written_ms.append(log.active_segment.last_modified_ms)
        harness.clock.now_ms += 1_000
    now_ms = harness.clock.now_ms
    assert log.base_offsets == [0, 1, 2] and written_ms == sorted(set(written_ms))
    assert log.offsets_before(-1, 9, now_ms) == [3, 2, 1, 0]
    assert log.offsets_before(-1, 2, now_ms) == [3, 2]
    assert log.offsets_before(-2, 9, now_ms) == [0]
    assert log.offsets_before(written_ms[1], 9, now_ms) == [1, 0]
    assert log.offsets_before(written_ms[0] - 1, 9, now_ms) == []
    assert log.offsets_before(-1, 0, now_ms) == log.offsets_before(-1, -1, now_ms) == []
    log.advance_log_start(2)
    assert log.offsets_before(-2, 1, now_ms) == [2]


def test_a_damaged_batch_is_reported(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a" * 100])
    with open(log.active_segment.file.path, "r+b") as file:
        file.seek(100)
        file.write(b"xxxx")
    error = log.offset_for_timestamp(NOW_MS, 1).error
    assert isinstance(error, KafkaError) and error.code == ErrorCode.CORRUPT_MESSAGE
    assert harness.tracer.named("log_corrupt")
