"""Reads: whole batches, from the one that holds the offset, below the end, within the bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FaultyFiles,
    LogHarness,
    SimLogHarness,
    StepLane,
    append,
    batch_of,
    directory_of,
    values_of,
)

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import LogSlice, PartitionLog
from tidelog.log.segment_reads import RECENT_APPENDS, RECENT_BYTES, NotCached
from tidelog.records.batch import iter_batches

Small = Callable[..., LogConfig]


def read(
    log: PartitionLog, offset: int, max_bytes: int, end: int, min_one: bool = True
) -> LogSlice:
    return log.read(offset, max_bytes, end, min_one_batch=min_one).result()


def expected_slice(
    log: PartitionLog,
    batches: list[tuple[int, int, int]],
    offset: int,
    max_bytes: int,
    end: int,
    min_one: bool,
) -> list[tuple[int, int, int]]:
    """What a read must give, from (base, next, size) of every batch."""
    end = min(end, log.log_end_offset)
    if offset >= end:
        return []
    bases = [segment.base_offset for segment in log.segments]
    segment = max(base for base in bases if base <= offset)
    segment_end = min([base for base in bases if base > segment], default=log.log_end_offset)
    found: list[tuple[int, int, int]] = []
    total = 0
    for batch in batches:
        if batch[1] <= offset or not segment <= batch[0] < segment_end:
            continue
        if batch[0] >= end:
            break
        if total + batch[2] > max_bytes and not (min_one and not found):
            break
        found.append(batch)
        total += batch[2]
        if total > max_bytes:
            break
    return found


@examples(40)
@given(seed=st.integers(0, 2**32))
def test_any_read_is_what_a_simple_reader_gives(seed: int) -> None:
    draw = random.Random(seed)
    config = LogConfig(segment_bytes=2500, index_interval_bytes=300)
    harness = SimLogHarness(seed, config)
    log = harness.open().create(TP, TOPIC_ID, config).result()
    batches: list[tuple[int, int, int]] = []
    for _ in range(draw.randrange(5, 40)):
        values = [bytes(draw.randrange(150))] * draw.randrange(1, 4)
        before = log.size_bytes
        base = append(log, values)
        batches.append((base, log.log_end_offset, log.size_bytes - before))
    if draw.random() < 0.5:
        log.flush()
        log = harness.open().logs[TP]
    for _ in range(150):
        offset = draw.randrange(log.log_end_offset + 1)
        end = draw.choice([log.log_end_offset, draw.choice(batches)[0], draw.choice(batches)[1]])
        max_bytes = draw.choice([0, 1, 61, draw.randrange(3000), 1 << 20])
        min_one = draw.random() < 0.7
        found = read(log, offset, max_bytes, end, min_one)
        wanted = expected_slice(log, batches, offset, max_bytes, end, min_one)
        held = [(b.base_offset, b.next_offset, b.size_bytes) for b in iter_batches(found.data)]
        assert held == wanted
        assert len(found.data) == sum(size for _, _, size in wanted) == found.size
        rest = expected_slice(log, batches, offset, 1 << 30, end, True)
        assert found.is_cut == (len(wanted) < len(rest)), "cut off where batches had no room"
        if wanted:
            assert found.first_offset == wanted[0][0]
            assert found.next_offset == wanted[-1][1]
            bases = [segment.base_offset for segment in log.segments]
            assert found.base_offset == max(base for base in bases if base <= offset)


def test_offsets_outside_are_out_of_range(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    assert read(log, 1, 100, 1).size == 0
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as caught:
            read(log, offset, 100, 1)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.advance_log_start(1)
    with pytest.raises(KafkaError):
        read(log, 0, 100, 1)


def test_only_what_is_written_is_read(harness: LogHarness) -> None:
    from tests.support.log import batch_of

    log = harness.log()
    log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    assert read(log, 0, 100, 10).size == 0


def test_what_is_not_in_the_page_cache_is_read_on_the_thread(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    log.directory.recent = None
    harness.files.refuse = lambda call, path: 0
    cached = harness.files._files
    harness.lane.files = _Cold(cached)
    harness.lane.eager = False
    refused = log.read(0, 100, 1, min_one_batch=True, may_wait=False)
    assert isinstance(refused.error, NotCached)
    completion = log.read(0, 100, 1, min_one_batch=True)
    assert not completion.done
    harness.lane.run()
    assert completion.result().next_offset == 1
    assert harness.lane.names.count("read from disk") == 1


def test_what_was_appended_last_is_read_without_the_file(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a", b"b"])
    log.read(0, 1000, 2, min_one_batch=True).result()
    append(log, [b"c", b"d"])
    before = len(harness.lane.names)
    slice_ = log.read(2, 1000, 4, min_one_batch=True).result()
    assert (slice_.first_offset, slice_.next_offset) == (2, 4)
    assert len(harness.lane.names) == before
    in_file = harness.files.read_file(log.active_segment.file.path)
    assert bytes(slice_.data) == in_file[slice_.end_position - slice_.size : slice_.end_position]
    assert log.read(0, 1000, 4, min_one_batch=True).result().first_offset == 0
    assert log.read(3, 1000, 4, min_one_batch=True).result().first_offset == 2
    assert log.read(2, 10, 4, min_one_batch=False).result().size == 0
    assert log.read(2, 10, 4, min_one_batch=True).result().next_offset == 4


def test_what_was_appended_last_and_cut_off_is_not_read(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    log.read(0, 1000, 1, min_one_batch=True).result()
    append(log, [b"b"])
    log.truncate_to(1).result()
    assert log.directory.recent is not None
    assert log.read(0, 1000, 2, min_one_batch=True).result().next_offset == 1
    append(log, [b"c"])
    assert log.read(1, 1000, 2, min_one_batch=True).result().data == log.directory.recent.slice.data
    assert b"c" in bytes(log.directory.recent.slice.data)


def test_appends_that_nobody_waits_for_are_not_kept(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    assert log.directory.recent is None
    log.read(0, 1000, 1, min_one_batch=True).result()
    for _ in range(RECENT_APPENDS):
        append(log, [b"b"])
        assert log.directory.recent is not None
    append(log, [b"c"])
    assert log.directory.recent is None


def test_big_and_gathered_appends_are_read_from_the_file(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    log.read(0, 1000, 1, min_one_batch=True).result()
    append(log, [bytes(RECENT_BYTES)])
    assert log.directory.recent is None
    for value in (b"a", b"b"):
        log.plan_leader_append(batch_of([value]), 0, NOW_MS)
    log.submit_planned()
    assert log.directory.recent is None
    assert log.read(3, 1000, 4, min_one_batch=True).result().next_offset == 4


def test_a_slow_disk_does_not_keep_cached_data_from_its_readers(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    log.directory.recent = None
    harness.lane.eager = False
    harness.lane.slow_disk = True
    assert log.read(0, 100, 1, min_one_batch=True).result().next_offset == 1
    handle = log.segments[0].file.take()
    assert handle is not None
    harness.files.close(handle)
    completion = log.read(0, 100, 1, min_one_batch=True)
    assert not completion.done, "opening the file may wait for the disk"
    refused = log.read(0, 100, 1, min_one_batch=True, may_wait=False)
    assert isinstance(refused.error, NotCached)
    harness.lane.run()
    assert completion.result().next_offset == 1


def test_nothing_is_read_that_a_truncation_under_way_may_have_cut_off(harness: LogHarness) -> None:
    log = harness.log()
    for number in range(4):
        append(log, [bytes([65 + number])])
    harness.lane.eager = False
    harness.lane.slow_disk = True
    done = log.truncate_to(2)
    while log.truncating_to is None:
        harness.lane.run(1)
    assert log.log_end_offset == 4
    assert log.read(0, 1000, 4, min_one_batch=True).result().next_offset == 2
    assert log.read(2, 1000, 4, min_one_batch=True).result().size == 0
    harness.lane.run()
    assert done.done and log.log_end_offset == 2


class _Cold(FaultyFiles):
    """Nothing is in the page cache."""

    def pread_cached(self, handle: object, size_bytes: int, position: int) -> None:
        return None


def test_a_read_that_a_truncation_overtook_fails(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    append(log, [b"b"])
    harness.lane.files = _Cold(harness.files._files)
    harness.lane.eager = False
    completion = log.read(0, 100, 2, min_one_batch=True)
    log.truncations += 1
    harness.lane.run()
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_a_truncation_takes_from_under_a_read_is_no_damage(harness: LogHarness) -> None:
    """Each directory has two threads: a read may find the file cut before the loop hears of it."""
    log = harness.log()
    for number in range(4):
        append(log, [bytes([65 + number])])
    harness.lane.files = _Cold(harness.files._files)
    harness.lane.eager = False
    harness.lane.slow_disk = True
    completion = log.read(0, 1000, 4, min_one_batch=True)
    late_read = harness.lane.waiting.popleft()
    log.truncate_to(2)
    while log.truncating_to is None:
        harness.lane.run(1)
    while harness.lane.names[-1] != "truncate":
        harness.lane.run(1)
    cut, _, _ = harness.lane.waiting[0]
    cut(harness.lane.files)
    harness.lane.waiting.appendleft(late_read)
    harness.lane.run(1)
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not harness.tracer.named("log_corrupt")
    harness.lane.run()
    assert log.log_end_offset == 2


def test_a_file_that_a_truncation_has_removed_is_no_failure_of_the_disk(
    harness: LogHarness,
) -> None:
    log = harness.log()
    append(log, [b"a"])
    handle = log.segments[0].file.take()
    assert handle is not None
    harness.files.close(handle)
    harness.lane.eager = False
    log.truncate_fully_and_start_at(7)
    while harness.lane.names[-1] != "truncate fully":
        harness.lane.run(1)
    cut, _, _ = harness.lane.waiting[0]
    cut(harness.lane.files)
    log.directory.recent = None
    completion = log.read(0, 1000, 1, min_one_batch=True)
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert directory_of(log).failure is None


def test_an_index_that_was_dropped_from_memory_is_read_again(
    harness: LogHarness, small: Small
) -> None:
    log = harness.log(small())
    for number in range(30):
        append(log, [bytes([65 + number]) * 60])
    harness.lane.eager = True
    for segment in log.segments[:-1]:
        segment.index = segment.time_index = None
    assert len(values_of(log)) == 30
    assert all(segment.index is not None for segment in log.segments)


def test_a_damaged_index_is_rebuilt_in_memory(harness: LogHarness, small: Small) -> None:
    log = harness.log(small())
    for number in range(30):
        append(log, [bytes([65 + number]) * 60])
    segment = log.segments[1]
    segment.index = segment.time_index = None
    with open(segment.path(".index"), "wb") as file:
        file.write(b"\xff" * 16)
    assert len(values_of(log)) == 30
    assert any("was rebuilt in memory" in line for line in harness.tracer.lines)


def test_indexes_of_old_segments_are_dropped_when_there_are_many(
    harness: LogHarness, small: Small
) -> None:
    log = harness.log(small(index_interval_bytes=0))
    directory_of(log).indexes._limit = 30
    for number in range(60):
        append(log, [bytes([65 + number]) * 60], timestamp_ms=NOW_MS + number)
    assert len(values_of(log)) == 60
    held = [segment for segment in log.segments if segment.index is not None]
    assert log.active_segment in held and len(held) < len(log.segments)
    assert directory_of(log).indexes._entries <= 30


def test_open_files_are_bounded(harness: LogHarness, small: Small) -> None:
    from tests.support.log import TOPIC_ID, TP

    directory = harness.open(small(), max_open_files=4)
    log = directory.create(TP, TOPIC_ID, small()).result()
    for number in range(60):
        append(log, [bytes([65 + number]) * 60])
    assert len(log.segments) > 6
    assert len(values_of(log)) == 60
    assert len(directory.open_files) <= 4


def test_a_file_that_does_not_hold_what_was_written_is_reported(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(3):
        append(log, [b"a" * 50])
    size = log.active_segment.size_bytes
    with open(log.active_segment.file.path, "r+b") as file:
        file.truncate(size - 10)
    completion = log.read(0, 1 << 20, 3, min_one_batch=True)
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.CORRUPT_MESSAGE
    assert harness.tracer.named("log_corrupt")
    with open(log.active_segment.file.path, "r+b") as file:
        file.truncate(0)
        file.write(bytes(size))
    log.batch_starts.clear()
    log.directory.recent = None
    for offset, max_bytes in [(0, 100), (1, 100), (2, 1 << 20)]:
        log.read_ends.clear()
        failed = log.read(offset, max_bytes, 2 if offset < 2 else 3, min_one_batch=True).error
        assert isinstance(failed, KafkaError) and failed.code == ErrorCode.CORRUPT_MESSAGE


def test_a_read_of_a_replica_that_went_is_no_failure_of_the_disk(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory = directory_of(log)
    directory.delete(TP)
    lane: StepLane = harness.lane
    assert lane.names[-2:] == ["rename replica", "close"] or "rename replica" in lane.names
    completion = log.read(0, 100, 1, min_one_batch=True)
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert directory.failure is None


def test_the_last_stable_offset_of_a_log_without_transactions_is_the_high_watermark(
    harness: LogHarness,
) -> None:
    log = harness.log()
    append(log, [b"a", b"b", b"c"])
    assert [log.last_stable_offset(high_watermark) for high_watermark in (0, 2, 3)] == [0, 2, 3]
