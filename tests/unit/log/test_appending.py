"""Appends: what is refused and why, what offsets and files come of it, in which order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.clients.codec_cases import frame
from tests.support.log import NOW_MS, LogHarness, append, batch_of, directory_of, values_of
from tests.support.records import framed, record_bytes

from tidelog.core import limits
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.append_validation import CostlyBatch
from tidelog.log.config import LOG_APPEND_TIME, NEVER, LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import Segment
from tidelog.records import checking, compression
from tidelog.records.batch import LOG_APPEND_TIME as APPEND_TIME_TYPE
from tidelog.records.batch import BatchView, check, iter_batches
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.compression import GZIP, LZ4, SNAPPY, ZSTD

Small = Callable[..., LogConfig]


def refused(log: PartitionLog, records: bytes | bytearray, epoch: int = 0) -> KafkaError:
    before = (log.next_offset, log.epochs.entries(), log.producers.entries())
    with pytest.raises(KafkaError) as caught:
        log.plan_leader_append(records, epoch, NOW_MS)
    assert (log.next_offset, log.epochs.entries(), log.producers.entries()) == before
    return caught.value


def with_crc(data: bytearray) -> bytearray:
    data[17:21] = struct.pack(">I", BatchView(data).computed_crc())
    return data


def only_batch(log: PartitionLog) -> BatchView:
    data = log.read(0, 1 << 20, log.log_end_offset, min_one_batch=True).result().data
    (batch,) = iter_batches(data)
    check(batch)
    return batch


def test_appends_get_offsets_and_epochs_in_order(harness: LogHarness) -> None:
    log = harness.log()
    log.assign_epoch(4, 0)
    first = log.plan_leader_append(batch_of([b"a", b"b"]), 4, NOW_MS)
    second = log.plan_leader_append(batch_of([b"c"]), 4, NOW_MS)
    assert (log.next_offset, log.log_end_offset) == (3, 0), "planned, not written"
    assert not first.done
    log.submit_planned()
    assert (log.next_offset, log.log_end_offset) == (3, 3)
    info = first.result()
    assert (info.base_offset, info.last_offset, info.record_count) == (0, 1, 2)
    assert (info.leader_epoch, info.duplicate, info.log_append_time_ms) == (4, False, -1)
    assert second.result().base_offset == 2
    assert values_of(log) == [b"a", b"b", b"c"]
    assert log.epochs.epoch_at(2) == 4
    assert log.size_bytes == (harness.log_path / "00000000000000000000.log").stat().st_size


def test_the_files_bytes_are_the_batches_bytes(harness: LogHarness) -> None:
    log = harness.log()
    data = batch_of([b"a"])
    append(log, [b"a"])
    append(log, [b"a"])
    data[12:16] = bytes(4)
    second = bytearray(data)
    second[0:8] = struct.pack(">q", 1)
    assert (harness.log_path / "00000000000000000000.log").read_bytes() == bytes(data + second)


def test_nothing_planned_submits_nothing(harness: LogHarness) -> None:
    log = harness.log()
    log.submit_planned()
    assert "append" not in harness.lane.names


def test_a_buffer_that_cannot_be_written_is_copied(harness: LogHarness) -> None:
    log = harness.log()
    records = bytes(batch_of([b"a"]))
    log.plan_leader_append(records, 3, NOW_MS)
    log.submit_planned()
    assert only_batch(log).partition_leader_epoch == 3
    assert BatchView(records).partition_leader_epoch == -1


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_every_compression_is_kept_as_it_came(harness: LogHarness, codec: int) -> None:
    log = harness.log()
    append(log, [b"v" * 100] * 10, codec=codec)
    assert only_batch(log).compression == codec
    assert values_of(log) == [b"v" * 100] * 10


def test_a_batch_that_is_damaged_is_refused(harness: LogHarness) -> None:
    log = harness.log()
    data = batch_of([b"a"])
    data[-1] ^= 1
    assert refused(log, data).code == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, batch_of([b"a"])[:-1]).code == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, b"").code == ErrorCode.CORRUPT_MESSAGE
    negative = batch_of([b"a"])
    negative[8:12] = struct.pack(">i", -5)
    error = refused(log, negative)
    assert error.code == ErrorCode.CORRUPT_MESSAGE and "length is -5" in error.message


def test_what_a_client_must_not_write_is_an_invalid_record(harness: LogHarness) -> None:
    log = harness.log()
    two = batch_of([b"a"]) + batch_of([b"b"])
    assert "one batch per partition" in refused(log, two).message
    assert refused(log, two).code == ErrorCode.INVALID_RECORD
    control = build_batch([NewRecord(b"k", b"v")], control=True)
    assert refused(log, control).code == ErrorCode.INVALID_RECORD
    miscounted = batch_of([b"a"])
    miscounted[57:61] = struct.pack(">i", 2)
    assert refused(log, with_crc(miscounted)).code == ErrorCode.INVALID_RECORD
    misframed = batch_of([b"a"])
    misframed[61] = 60
    assert refused(log, with_crc(misframed)).code == ErrorCode.INVALID_RECORD


def test_unknown_compressions_and_bombs_are_refused(harness: LogHarness) -> None:
    log = harness.log(LogConfig(max_decompressed_bytes=10_000))
    unknown = batch_of([b"a"])
    unknown[22] |= 6
    assert refused(log, with_crc(unknown)).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    bomb = refused(log, batch_of([bytes(50_000)], codec=ZSTD))
    assert bomb.code == ErrorCode.CORRUPT_MESSAGE and "more than 10000" in bomb.message


def test_frames_that_kafkas_clients_cannot_read_are_refused(harness: LogHarness) -> None:
    log = harness.log()
    payload = b"".join(record_bytes(number) for number in range(9_000))
    linked = framed(payload, 9_000, LZ4, frame(payload, block_linked=True))
    error = refused(log, linked)
    assert error.code == ErrorCode.INVALID_RECORD
    assert "Kafka's clients cannot read the batch" in error.message
    assert log.log_end_offset == 0


def costly(log: PartitionLog, batch: bytes | bytearray) -> bool:
    """Whether the loop leaves a batch to a thread; otherwise it is appended."""
    try:
        log.plan_leader_append(batch, 0, NOW_MS)
    except CostlyBatch:
        return True
    log.submit_planned()
    return False


def decompressed_by(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the bytes that each decompression of a check gives."""
    found: list[int] = []
    decompress = compression.decompress

    def counted(codec: int, data: Any, max_bytes: int) -> Any:
        output = decompress(codec, data, max_bytes)
        found.append(len(output))
        return output

    monkeypatch.setattr(compression, "decompress", counted)
    return found


def test_however_many_batches_arrive_at_once_the_loop_decompresses_so_much(
    harness: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred batches of a few KiB, each with 1 MB inside: the rest is for the thread."""
    inside = 1_000_000
    batch = batch_of([bytes(inside)], codec=ZSTD)
    found = decompressed_by(monkeypatch)
    log = harness.log()
    left = [costly(log, bytes(batch)) for _ in range(100)]
    most = limits.LOOP_CHECK_BURST_BYTES
    assert left[0] is False and left[-1] is True
    assert most <= sum(found) <= 2 * most + inside, "spent once more after the first refill"
    # What is small and not compressed stays on the loop.
    assert not costly(log, batch_of([b"small"] * 50))
    assert costly(log, batch_of([b"small"] * 3, codec=ZSTD)), "it may have anything inside"
    harness.clock.advance(100)
    found.clear()
    assert not costly(log, bytes(batch)), "time has refilled it"
    assert found == [pytest.approx(inside, rel=0.01)]


def test_batches_that_are_refused_cost_the_loop_as_much(
    harness: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.log(LogConfig(max_decompressed_bytes=1_000_000))
    bomb = bytes(batch_of([bytes(3_000_000)], codec=ZSTD))
    outcomes: list[str] = []
    for _ in range(30):
        try:
            log.plan_leader_append(bomb, 0, NOW_MS)
        except CostlyBatch:
            outcomes.append("thread")
        except KafkaError as error:
            outcomes.append(error.code.name)
    assert outcomes[0] == "CORRUPT_MESSAGE" and outcomes[-1] == "thread"
    assert outcomes.count("CORRUPT_MESSAGE") <= 2 * limits.LOOP_CHECK_BURST_BYTES // 1_000_000 + 1


def test_what_claims_more_records_than_the_loop_walks_goes_to_the_thread(
    harness: LogHarness,
) -> None:
    log = harness.log(LogConfig(max_message_bytes=1 << 30))
    many = limits.MAX_DECOMPRESSED_ON_LOOP_BYTES // checking.RECORD_EFFORT_BYTES + 1
    data = batch_of([b"a"])
    data[57:61] = struct.pack(">i", many)
    assert costly(log, with_crc(data))
    error = log.check_on_thread(bytes(data)).error
    assert isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_RECORD


def test_a_batch_with_much_inside_is_checked_on_the_directorys_thread(
    harness: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_DECOMPRESSED_ON_LOOP_BYTES", 5_000)
    log = harness.log(LogConfig(max_decompressed_bytes=10_000))
    append(log, [bytes(4_000)], codec=ZSTD)
    assert "check of a batch" not in harness.lane.names
    large = batch_of([bytes(8_000)], codec=ZSTD, timestamp_ms=NOW_MS + 7)
    with pytest.raises(CostlyBatch, match="more than 5000"):
        log.plan_leader_append(large, 0, NOW_MS)
    checked = log.check_on_thread(bytes(large)).result()
    assert checked.max_timestamp_ms == NOW_MS + 7
    assert harness.lane.names[-1] == "check of a batch"
    planned = log.plan_leader_append(large, 0, NOW_MS, checked)
    log.submit_planned()
    assert planned.result().base_offset == 1
    assert values_of(log) == [bytes(4_000), bytes(8_000)]


@pytest.mark.parametrize(
    ("batch", "code", "why"),
    [
        (batch_of([bytes(50_000)], codec=ZSTD), ErrorCode.CORRUPT_MESSAGE, "more than 10000"),
        (batch_of([bytes(50_000)]), ErrorCode.MESSAGE_TOO_LARGE, "at most 40000"),
        (b"short", ErrorCode.CORRUPT_MESSAGE, "5 bytes left"),
    ],
)
def test_the_check_on_a_thread_refuses_what_any_other_does(
    harness: LogHarness, batch: bytes, code: ErrorCode, why: str
) -> None:
    log = harness.log(LogConfig(max_decompressed_bytes=10_000, max_message_bytes=40_000))
    error = log.check_on_thread(batch).error
    assert isinstance(error, KafkaError) and error.code is code and why in error.message


def test_a_batch_may_be_as_large_as_the_topic_says(harness: LogHarness) -> None:
    size = len(batch_of([bytes(500)]))
    log = harness.log(LogConfig(max_message_bytes=size, segment_bytes=2000))
    append(log, [bytes(500)])
    error = refused(log, batch_of([bytes(501)]))
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE and f"at most {size}" in error.message
    log.config = LogConfig(segment_bytes=300)
    assert refused(log, batch_of([bytes(501)])).code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_transactions_are_not_supported_yet(harness: LogHarness) -> None:
    data = build_batch([NewRecord(b"k", b"v")], producer=Producer(1, 0, 0), transactional=True)
    assert refused(harness.log(), data).code == ErrorCode.INVALID_TXN_STATE


def test_a_compacted_topic_needs_keys(harness: LogHarness) -> None:
    log = harness.log(LogConfig(compact_enabled=True))
    append(log, [b"v"])
    error = refused(log, build_batch([NewRecord(None, b"v")]))
    assert error.code == ErrorCode.INVALID_RECORD and "no key" in error.message


def test_log_append_time_replaces_the_clients(harness: LogHarness) -> None:
    log = harness.log(LogConfig(message_timestamp_type=LOG_APPEND_TIME))
    completion = log.plan_leader_append(batch_of([b"a"], timestamp_ms=5), 0, NOW_MS + 7)
    log.submit_planned()
    assert completion.result().log_append_time_ms == NOW_MS + 7
    batch = only_batch(log)
    assert batch.timestamp_type == APPEND_TIME_TYPE and batch.max_timestamp == NOW_MS + 7


def test_the_largest_timestamp_of_a_compressed_batch_is_found_not_believed(
    harness: LogHarness,
) -> None:
    log = harness.log()
    data = batch_of([b"a", b"b"], codec=GZIP)
    data[35:43] = struct.pack(">q", 5)
    log.plan_leader_append(with_crc(data), 0, NOW_MS)
    log.submit_planned()
    assert only_batch(log).max_timestamp == NOW_MS + 1


def test_records_of_an_older_epoch_never_follow_newer_ones(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"], epoch=5)
    assert refused(log, batch_of([b"b"]), epoch=4).code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_epoch_without_records_does_not_count(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"], epoch=3)
    log.assign_epoch(7, 1)
    records = batch_of([b"b"], base_offset=1, leader_epoch=5)
    log.plan_follower_append(records)
    log.submit_planned()
    assert log.epochs.entries() == [(3, 0), (5, 1)]


# idempotent producers


def test_a_repeated_batch_is_answered_with_the_originals_offsets(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"x"])
    for number in range(3):
        append(log, [b"a", b"b"], producer=Producer(9, 0, 2 * number))
    size = log.size_bytes
    repeated = log.plan_leader_append(batch_of([b"a", b"b"], producer=Producer(9, 0, 2)), 0, NOW_MS)
    info = repeated.result()
    assert (info.base_offset, info.last_offset, info.duplicate) == (3, 4, True)
    assert (log.next_offset, log.size_bytes) == (7, size)


def test_a_batch_repeated_before_it_is_written_waits_for_the_original(harness: LogHarness) -> None:
    log = harness.log()
    records = batch_of([b"a"], producer=Producer(9, 0, 0))
    first = log.plan_leader_append(bytearray(records), 0, NOW_MS)
    repeated = log.plan_leader_append(records, 0, NOW_MS)
    assert not repeated.done and log.next_offset == 1
    log.submit_planned()
    assert first.result().duplicate is False
    assert repeated.result().duplicate is True and repeated.result().base_offset == 0


def test_sequences_out_of_order_are_refused(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"], producer=Producer(9, 1, 0))
    error = refused(log, batch_of([b"b"], producer=Producer(9, 1, 5)))
    assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    error = refused(log, batch_of([b"b"], producer=Producer(9, 0, 1)))
    assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH


# followers


def copy_of(log: PartitionLog, offset: int = 0) -> bytes:
    parts = []
    while offset < log.log_end_offset:
        slice_ = log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True).result()
        parts.append(bytes(slice_.data))
        offset = slice_.next_offset
    return b"".join(parts)


@pytest.fixture
def leader_and_follower(harness: LogHarness) -> tuple[PartitionLog, PartitionLog]:
    from tests.support.log import TOPIC_ID, TP

    leader = harness.log()
    follower = directory_of(leader).create(TP._replace(partition=1), TOPIC_ID, LogConfig()).result()
    return leader, follower


def test_a_follower_takes_batches_as_they_are(
    leader_and_follower: tuple[PartitionLog, PartitionLog],
) -> None:
    leader, follower = leader_and_follower
    for number in range(5):
        append(leader, [b"a", b"b"], epoch=number // 2, producer=Producer(3, 0, 2 * number))
    completion = follower.plan_follower_append(copy_of(leader))
    follower.submit_planned()
    info = completion.result()
    assert (info.base_offset, info.last_offset, info.record_count) == (0, 9, 10)
    assert copy_of(follower) == copy_of(leader)
    assert follower.epochs.entries() == leader.epochs.entries() == [(0, 0), (1, 4), (2, 8)]
    found, expected = follower.producers.entry(3), leader.producers.entry(3)
    assert found is not None and expected is not None and found.batches == expected.batches


def test_a_partial_batch_at_the_end_is_left_off(
    leader_and_follower: tuple[PartitionLog, PartitionLog],
) -> None:
    leader, follower = leader_and_follower
    append(leader, [b"a"])
    end = leader.size_bytes
    append(leader, [b"b" * 100])
    data = copy_of(leader)
    for cut in (end, end + 1, end + 30, len(data) - 1):
        plan = follower.plan_follower_append(data[:cut])
        assert follower.next_offset == 1 and not plan.done
        follower.submit_planned()
        assert plan.result().last_offset == 0
        follower.truncate_to(0).result()
    nothing = follower.plan_follower_append(data[: end - 1])
    assert nothing.result().record_count == 0


def test_a_follower_takes_no_overlap_and_nothing_damaged(
    leader_and_follower: tuple[PartitionLog, PartitionLog],
) -> None:
    leader, follower = leader_and_follower
    append(leader, [b"a"])
    first = len(copy_of(leader))
    append(leader, [b"b"], producer=Producer(5, 0, 0))
    data = bytearray(copy_of(leader))
    for records, code in [
        (data[:first] * 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (data[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (data[:first] + b"\0" * 61, ErrorCode.CORRUPT_MESSAGE),
    ]:
        with pytest.raises(KafkaError) as caught:
            follower.plan_follower_append(bytes(records))
        assert caught.value.code == code
        assert follower.next_offset == 0 and len(follower.producers) == 0
        assert follower.epochs.entries() == []


def test_an_empty_log_may_begin_inside_a_batch(
    leader_and_follower: tuple[PartitionLog, PartitionLog],
) -> None:
    """The leader's log may start in the middle of one (V67)."""
    leader, follower = leader_and_follower
    append(leader, [b"a", b"b", b"c"])
    follower.truncate_fully_and_start_at(2).result()
    completion = follower.plan_follower_append(copy_of(leader))
    follower.submit_planned()
    assert completion.result().last_offset == 2
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 3)
    assert values_of(follower) == [b"c"]
    follower.flush().result()
    again = directory_of(follower)
    assert again.logs[follower.topic_partition] is follower


# segments


def test_a_full_segment_is_rolled(harness: LogHarness, small: Small) -> None:
    log = harness.log(small())
    for number in range(30):
        append(log, [bytes([65 + number]) * 60])
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 1000 for segment in log.segments)
    assert values_of(log) == [bytes([65 + number]) * 60 for number in range(30)]
    assert sum(segment.size_bytes for segment in log.segments) == log.size_bytes
    assert all(segment.sealed for segment in log.segments[:-1]), "rolled segments are flushed"
    assert log.recovery_point == log.active_segment.base_offset


def test_one_submission_may_roll_several_times(harness: LogHarness, small: Small) -> None:
    log = harness.log(small())
    plans = [log.plan_leader_append(batch_of([bytes(400)]), 0, NOW_MS) for _ in range(7)]
    log.submit_planned()
    assert harness.lane.names.count("append") == 1
    assert [plan.result().base_offset for plan in plans] == list(range(7))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]
    assert len(values_of(log)) == 7


def test_an_old_segment_is_rolled_by_time(harness: LogHarness) -> None:
    log = harness.log(LogConfig(segment_ms=1000))
    append(log, [b"a"], timestamp_ms=NOW_MS)
    append(log, [b"b"], timestamp_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, [b"c"], timestamp_ms=NOW_MS + 1001)
    assert len(log.segments) == 2
    untimed = harness.open(LogConfig(segment_ms=1000))
    log = untimed.logs[log.topic_partition]
    log.active_segment.first_timestamp_ms = -1
    records = batch_of([b"d"], timestamp_ms=-1)
    log.plan_leader_append(records, 0, log.active_segment.created_ms + 1001)
    log.submit_planned()
    assert len(log.segments) == 3


def test_a_full_index_rolls_the_segment(harness: LogHarness) -> None:
    log = harness.log(LogConfig(index_interval_bytes=0, segment_index_bytes=40))
    for number in range(12):
        append(log, [b"a"], timestamp_ms=NOW_MS + number)
    assert len(log.segments) > 2
    assert len(values_of(log)) == 12


def test_offsets_in_a_segment_fit_31_bits(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    log.next_offset = log.log_end_offset = 2**31
    append(log, [b"b"])
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


# slow disks


def test_on_a_slow_disk_appends_wait_and_are_written_together(harness: LogHarness) -> None:
    log = harness.log()
    harness.lane.slow_disk = True
    first = log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    log.submit_planned()
    later = [log.plan_leader_append(batch_of([b"b"]), 0, NOW_MS) for _ in range(3)]
    log.submit_planned()
    assert not first.done and log.log_end_offset == 0 and log.next_offset == 4
    harness.lane.run(1)
    assert first.result().base_offset == 0 and log.log_end_offset == 1
    harness.lane.run(1)
    assert [completion.result().base_offset for completion in later] == [1, 2, 3]
    assert harness.lane.names.count("append") == 2
    assert len(values_of_slow(harness, log)) == 4


def values_of_slow(harness: LogHarness, log: PartitionLog) -> list[bytes | None]:
    harness.lane.slow_disk = False
    return values_of(log)


def test_completions_may_plan_more(harness: LogHarness) -> None:
    log = harness.log()
    bases: list[int] = []

    def again(_: object) -> None:
        if len(bases) < 5:
            completion = log.plan_leader_append(batch_of([b"n"]), 0, NOW_MS)
            bases.append(log.next_offset)
            completion.then(again)
            log.submit_planned()

    again(None)
    assert bases == [1, 2, 3, 4, 5] and log.log_end_offset == 5


ZEROS = [bytes(200)] * 20


@pytest.mark.parametrize("source", [0, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("target", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_is_stored_with_the_topics_codec(
    harness: LogHarness, source: int, target: int
) -> None:
    log = harness.log(LogConfig(codec=target))
    append(log, [b"first"])
    assert append(log, ZEROS, codec=source, producer=Producer(7, 1, 5)) == 1
    batch = list(iter_batches(log.read(0, 1 << 20, 99, min_one_batch=True).result().data))[-1]
    check(batch)
    assert (batch.compression, batch.base_offset, batch.record_count) == (target, 1, 20)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 5)
    assert values_of(log) == [b"first", *ZEROS]


def test_a_recompressed_batch_is_known_when_it_is_sent_again(harness: LogHarness) -> None:
    log = harness.log(LogConfig(codec=ZSTD))
    assert append(log, ZEROS, producer=Producer(7, 1, 0)) == 0
    assert append(log, ZEROS, producer=Producer(7, 1, 0)) == 0
    assert log.log_end_offset == 20


def test_a_recompressed_batch_carries_log_append_time(harness: LogHarness) -> None:
    log = harness.log(LogConfig(codec=ZSTD, message_timestamp_type=LOG_APPEND_TIME))
    append(log, ZEROS, timestamp_ms=5)
    batch = only_batch(log)
    assert batch.timestamp_type == APPEND_TIME_TYPE
    assert (batch.base_timestamp, batch.max_timestamp) == (5, NOW_MS)


def test_a_batch_that_outgrows_the_limit_by_its_new_codec_is_refused(harness: LogHarness) -> None:
    packed = batch_of(ZEROS, codec=ZSTD)
    assert len(packed) < 1000
    error = refused(harness.log(LogConfig(codec=0, max_message_bytes=1000)), packed)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "compressed again" in error.message


def test_a_batch_above_the_limit_is_refused_though_it_would_become_small(
    harness: LogHarness,
) -> None:
    error = refused(harness.log(LogConfig(codec=ZSTD, max_message_bytes=1000)), batch_of(ZEROS))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_segment_must_hold_what_is_stored_not_what_was_sent(harness: LogHarness) -> None:
    log = harness.log(LogConfig(codec=ZSTD, segment_bytes=1000))
    append(log, ZEROS)
    log.configured(LogConfig(codec=0, segment_bytes=1000))
    error = refused(log, batch_of(ZEROS, codec=ZSTD))
    assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("source", [0, ZSTD])
def test_a_large_batch_is_compressed_again_on_a_thread(harness: LogHarness, source: int) -> None:
    log = harness.log(LogConfig(codec=GZIP))
    large = [bytes(limits.MAX_RECOMPRESSED_ON_LOOP_BYTES)]
    data = batch_of(large, codec=source)
    with pytest.raises(CostlyBatch):
        log.plan_leader_append(data, 0, NOW_MS)
    checked = log.check_on_thread(data).result()
    log.plan_leader_append(data, 0, NOW_MS, checked)
    log.submit_planned()
    assert only_batch(log).compression == GZIP
    assert values_of(log) == large


def test_a_batch_with_the_topics_codec_stays_on_the_loop(harness: LogHarness) -> None:
    log = harness.log(LogConfig(codec=ZSTD))
    data = batch_of([bytes(limits.MAX_RECOMPRESSED_ON_LOOP_BYTES)], codec=ZSTD)
    size = len(data)
    log.plan_leader_append(data, 0, NOW_MS)
    log.submit_planned()
    assert only_batch(log).size_bytes == size


@pytest.mark.parametrize("codec", [0, ZSTD])
@pytest.mark.parametrize(
    ("before_ms", "after_ms", "timestamp_ms"),
    [
        (5, NEVER, NOW_MS - 5),
        (5, NEVER, NOW_MS + 10**9),
        (NEVER, 5, NOW_MS + 4),
        (NEVER, 5, 7),
    ],
)
def test_timestamps_within_the_topics_limits_are_taken(
    harness: LogHarness, codec: int, before_ms: int, after_ms: int, timestamp_ms: int
) -> None:
    limited = LogConfig(timestamp_before_max_ms=before_ms, timestamp_after_max_ms=after_ms)
    assert append(harness.log(limited), [b"a", b"b"], timestamp_ms=timestamp_ms, codec=codec) == 0


@pytest.mark.parametrize("codec", [0, ZSTD])
@pytest.mark.parametrize(
    ("before_ms", "after_ms", "timestamp_ms"),
    # The second record is a millisecond later.
    [(5, NEVER, NOW_MS - 6), (NEVER, 5, NOW_MS + 5)],
)
def test_timestamps_outside_of_the_topics_limits_are_refused(
    harness: LogHarness, codec: int, before_ms: int, after_ms: int, timestamp_ms: int
) -> None:
    limited = LogConfig(timestamp_before_max_ms=before_ms, timestamp_after_max_ms=after_ms)
    data = batch_of([b"a", b"b"], timestamp_ms=timestamp_ms, codec=codec)
    error = refused(harness.log(limited), data)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert f"timestamp {timestamp_ms + (after_ms == 5)}" in error.message


def test_timestamps_of_a_topic_with_log_append_time_are_not_compared(harness: LogHarness) -> None:
    config = LogConfig(timestamp_before_max_ms=5, message_timestamp_type=LOG_APPEND_TIME)
    assert append(harness.log(config), [b"a"], timestamp_ms=7) == 0


def test_a_record_without_timestamp_passes_every_limit(harness: LogHarness) -> None:
    log = harness.log(LogConfig(timestamp_before_max_ms=5))
    log.plan_leader_append(build_batch([NewRecord(b"k", b"v")]), 0, NOW_MS)


def test_segments_are_rolled_up_to_the_jitter_before_their_age() -> None:
    """Segments that began together are rolled at times of their own, each the same every time."""
    day_ms = 86_400_000
    config = LogConfig(segment_ms=day_ms, segment_jitter_ms=day_ms // 2)
    ages = []
    for number in range(20):
        segment = Segment(f"/logs/topic-{number}", 0, NOW_MS)
        segment.note_batch(0, 100, NOW_MS, 4096)
        due = [
            age_ms
            for age_ms in range(0, day_ms + 2, day_ms // 64)
            if segment.must_roll(config, 100, 100, 1, NOW_MS + age_ms, NOW_MS)
        ]
        ages.append(due[0] if due else day_ms)
    assert day_ms // 2 <= min(ages) and max(ages) <= day_ms
    assert len(set(ages)) > 5
