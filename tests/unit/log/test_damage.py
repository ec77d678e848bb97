"""Files that do not hold what was written: damage is found, told, mended or refused (V68)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.log import (
    NOW_MS,
    TP,
    LogHarness,
    append,
    directory_of,
    drive,
    read_all,
    values_of,
)

from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import CleanEpochs, TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.index import TimeIndex
from tidelog.log.log_state import Damage
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery_walk import DamagedLog
from tidelog.log.segment_reads import LogSlice
from tidelog.records.builder import Producer

Small = Callable[..., LogConfig]
COUNT = 60
#: In a batch.
PRODUCER_ID_AT = 43 + 6
MAX_TIMESTAMP_AT = 35
VALUES: list[bytes | None] = [bytes([33 + number]) * 40 for number in range(COUNT)]


def filled(harness: LogHarness, config: LogConfig) -> PartitionLog:
    log = harness.log(config)
    for number, value in enumerate(VALUES):
        assert value is not None
        append(log, [value], epoch=number // 25, timestamp_ms=NOW_MS + number)
    return log


def closed(harness: LogHarness, small: Small) -> PartitionLog:
    """A log after a clean end: files are believed."""
    log = filled(harness, small())
    drive(directory_of(log).close(CleanEpochs(4)))
    return log


def change(path: Path, position: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def read(log: PartitionLog, offset: int) -> LogSlice:
    done = log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True)
    directory_of(log).lane.run()  # type: ignore[attr-defined]  # a lane that is run by hand
    return done.result()


def damage_of(log: PartitionLog) -> Damage:
    assert log.damage is not None
    return log.damage


def refused(log: PartitionLog, offset: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        read(log, offset)
    return caught.value.code


@pytest.mark.rule("V68")
@pytest.mark.parametrize("at", [0, 6, 7, 9, 11, 16, 17, 22, 26, 40, 58, 62, 80, 100])
def test_a_flipped_bit_is_never_served(harness: LogHarness, small: Small, at: int) -> None:
    """Wherever in a batch it is: length, magic, checksum, offsets, header or records."""
    log = closed(harness, small)
    segment = log.segments[2]
    size = segment.size_bytes // (log.segments[3].base_offset - segment.base_offset)
    change(Path(segment.file.path), 2 * size + at, 0x10)
    log = harness.again()
    told: list[tuple[TopicPartition, int]] = []
    directory_of(log).on_damage = lambda name: told.append((name, damage_of(log).offset))
    damaged = segment.base_offset + 2
    assert refused(log, segment.base_offset) == ErrorCode.CORRUPT_MESSAGE
    assert told == [(TP, damaged)]
    assert harness.tracer.named("log_corrupt") and not harness.tracer.named("index_rebuilt")
    assert refused(log, damaged) == ErrorCode.CORRUPT_MESSAGE
    before = log.read(segment.base_offset, size * 2, damaged, min_one_batch=True).result()
    assert before.next_offset == damaged, "what lies before is served"
    after = read(log, log.segments[3].base_offset)
    assert after.first_offset == log.segments[3].base_offset, "and so are other segments"


@pytest.mark.rule("V68")
@pytest.mark.parametrize("segment_number", [2, -1])
@pytest.mark.parametrize("max_bytes", [1, 120, 1 << 20])
def test_a_base_offset_beyond_its_segment_is_damage_and_no_empty_answer(
    harness: LogHarness, small: Small, segment_number: int, max_bytes: int
) -> None:
    """No checksum covers a base offset; a reader would ask for this one again and again."""
    log = closed(harness, small)
    log = harness.again()
    segment = log.segments[segment_number]
    change(Path(segment.file.path), 6, 0x10)
    with pytest.raises(KafkaError) as caught:
        log.read(segment.base_offset, max_bytes, COUNT, min_one_batch=True).result()
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert damage_of(log).offset == segment.base_offset


@pytest.mark.rule("V68")
def test_every_bit_of_an_index_may_flip(harness: LogHarness, small: Small) -> None:
    """Records are read all the same: where the index points beside them it is made anew."""
    log = closed(harness, small)
    marker = (harness.path / ".kafka_cleanshutdown").read_bytes()
    segment = log.segments[1]
    rebuilt = 0
    for suffix in (".index", ".timeindex"):
        path = Path(segment.path(suffix))
        whole = path.read_bytes()
        for position in range(len(whole)):
            for bit in (0, 3, 7):
                change(path, position, 1 << bit)
                (harness.path / ".kafka_cleanshutdown").write_bytes(marker)
                harness.tracer.events.clear()
                log = harness.again()
                for offset in range(segment.base_offset, log.segments[2].base_offset):
                    assert read(log, offset).first_offset == offset
                rebuilt += bool(harness.tracer.named("index_rebuilt"))
                path.write_bytes(whole)
    assert rebuilt, "none of them would have been missed"


@pytest.mark.rule("V68")
def test_a_rebuilt_time_index_takes_no_timestamp_from_a_damaged_header(
    harness: LogHarness, small: Small
) -> None:
    log = closed(harness, small)
    segment = log.segments[1]
    wanted = TimeIndex.from_bytes(
        segment.base_offset, Path(segment.path(".timeindex")).read_bytes()
    ).last()
    Path(segment.path(".timeindex")).unlink()
    change(Path(segment.file.path), MAX_TIMESTAMP_AT + 1, 0x01)
    harness.again()
    rebuilt = Path(segment.path(".timeindex")).read_bytes()
    assert TimeIndex.from_bytes(segment.base_offset, rebuilt).last() == wanted


@pytest.mark.rule("V68")
def test_an_index_that_points_beside_batches_is_made_anew(
    harness: LogHarness, small: Small
) -> None:
    log = closed(harness, small)
    segment = log.segments[1]
    path = Path(segment.path(".index"))
    data = bytearray(path.read_bytes())
    position = int.from_bytes(data[4:8], "big") + 5
    data[4:8] = position.to_bytes(4, "big")
    path.write_bytes(data)
    log = harness.again()
    assert values_of(log) == VALUES
    offset = log.segments[2].base_offset - 1
    assert read(log, offset).first_offset == offset
    log.read_ends.clear()
    first = segment.base_offset + int.from_bytes(data[:4], "big")
    assert read(log, first).first_offset == first
    assert len(harness.tracer.named("index_rebuilt")) == 1
    assert not harness.tracer.named("log_corrupt")


@pytest.mark.rule("V68")
@pytest.mark.parametrize("left", [0, 1, 61, 200])
def test_a_segment_that_was_cut_short_keeps_the_broker_from_starting(
    harness: LogHarness, small: Small, left: int
) -> None:
    """Also after a clean end, also in the middle of the log, also where a batch ends."""
    log = closed(harness, small)
    segment = log.segments[1]
    count = log.segments[2].base_offset - segment.base_offset
    sizes = {0: 0, 1: 1, 61: segment.size_bytes - 61, 200: segment.size_bytes // count * 2}
    path = Path(segment.file.path)
    path.write_bytes(path.read_bytes()[: sizes[left]])
    with pytest.raises(DamagedLog, match=r"damaged at byte .* Give the file back"):
        harness.open()
    assert not (harness.path / ".kafka_cleanshutdown").exists()


def test_a_damaged_index_does_not_keep_the_broker_from_starting(
    harness: LogHarness, small: Small
) -> None:
    log = closed(harness, small)
    path = Path(log.segments[1].path(".index"))
    path.write_bytes(path.read_bytes()[:-3] + b"\x7f\xff\xff")
    log = harness.again()
    assert values_of(log) == VALUES


@pytest.mark.rule("V68")
def test_where_others_have_the_records_the_log_begins_again_before_the_damage(
    harness: LogHarness, small: Small
) -> None:
    log = closed(harness, small)
    segment = log.segments[2]
    change(Path(segment.file.path), segment.size_bytes - 5, 1)
    log = harness.again()
    directory_of(log).checkpoint().result()
    ended: list[StorageError] = []
    directory = directory_of(log)
    directory.on_failure = ended.append
    directory.on_damage = lambda name: directory.begin_again_at(name, *damage_of(log))
    last = log.segments[3].base_offset - 1
    assert refused(log, segment.base_offset) == ErrorCode.CORRUPT_MESSAGE
    assert [error.path for error in ended] == [f"{directory.path}/topic-0"]
    assert f"the log is truncated at offset {last} and refetched" in str(ended[0])
    with pytest.raises(StorageError):
        append(log, [b"x"], epoch=9)
    log = harness.again()
    assert log.log_end_offset == last and values_of(log) == VALUES[:last]
    assert harness.tracer.named("log_recovered")


def with_producer(harness: LogHarness, small: Small) -> tuple[PartitionLog, int]:
    """A log of one segment and a producer, all flushed: (it, how large its batches are)."""
    log = harness.log(small(segment_bytes=1 << 20))
    for number in range(20):
        append(log, [bytes(30)], producer=Producer(7, 0, number), timestamp_ms=NOW_MS + number)
    log.flush().result()
    directory_of(log).checkpoint().result()
    return log, log.segments[0].size_bytes // 20


@pytest.mark.rule("V68")
@pytest.mark.parametrize("at", [PRODUCER_ID_AT, 70], ids=["the header", "a record"])
def test_producers_are_not_taken_from_damaged_batches(
    harness: LogHarness, small: Small, at: int
) -> None:
    """Nobody reads those batches, and a repetition of what they held would pass for new."""
    log, size = with_producer(harness, small)
    path = Path(log.segments[0].file.path)
    change(path, 4 * size + at, 0x10)
    with pytest.raises(DamagedLog, match=f"damaged at byte {4 * size}, offset 4, .*CRC"):
        harness.open()
    change(path, 4 * size + at, 0x10)
    entry = harness.again().producers.entry(7)
    assert entry is not None and entry.last_sequence == 19


@pytest.mark.rule("V68")
def test_a_follower_that_needs_damaged_batches_for_its_producers_begins_again_before_them(
    harness: LogHarness, small: Small
) -> None:
    log, size = with_producer(harness, small)
    path = Path(log.segments[0].file.path)
    change(path, 4 * size + PRODUCER_ID_AT, 0x10)
    ended: list[StorageError] = []
    directory_of(log).on_failure = ended.append
    with pytest.raises(
        StorageError, match=r"at the next start the log is truncated at offset 4 and"
    ):
        log.truncate_to(8).result()
    assert len(ended) == 1
    log = harness.again()
    entry = log.producers.entry(7)
    assert log.log_end_offset == 4 and entry is not None and entry.last_sequence == 3


def test_a_flipped_leader_epoch_is_told_when_the_segment_is_checked(
    harness: LogHarness, small: Small
) -> None:
    """The checksum does not cover it; a check of the whole segment looks."""
    log = closed(harness, small)
    segment = log.segments[1]
    change(Path(segment.file.path), 12, 0x40)
    change(Path(segment.file.path), segment.size_bytes - 1, 1)
    log = harness.again()
    told: list[int] = []
    directory_of(log).on_damage = lambda _: told.append(damage_of(log).offset)
    assert refused(log, segment.base_offset) == ErrorCode.CORRUPT_MESSAGE
    assert told == [segment.base_offset]


def test_reading_everything_still_reads_everything(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small())
    assert [record.offset for record in read_all(log)] == list(range(COUNT))


@pytest.mark.rule("V68")
@pytest.mark.parametrize("at", [0, 6, 7, 9, 11, 16, 17, 22, 26, 40, 58, 62, 80, 100])
def test_a_log_is_truncated_before_its_damage_and_goes_on(
    harness: LogHarness, small: Small, at: int
) -> None:
    """Wherever in a batch the bit is: no header of the damaged batch is believed."""
    log = closed(harness, small)
    segment = log.segments[2]
    size = segment.size_bytes // (log.segments[3].base_offset - segment.base_offset)
    change(Path(segment.file.path), 2 * size + at, 0x10)
    log = harness.again()
    assert refused(log, segment.base_offset + 2) == ErrorCode.CORRUPT_MESSAGE
    end = damage_of(log).offset
    assert end == segment.base_offset + 2
    log.truncate_to(end).result()
    assert log.log_end_offset == end and log.damage is None
    assert values_of(log) == VALUES[:end]
    for number in range(end, COUNT):
        append(log, [VALUES[number] or b""], epoch=9, timestamp_ms=NOW_MS + number)
    assert values_of(log) == VALUES
    drive(directory_of(log).close(CleanEpochs(5)))
    log = harness.again()
    assert values_of(log) == VALUES
    found = log.offset_for_timestamp(NOW_MS + end, COUNT).result()
    assert found is not None and found[1] == end


@pytest.mark.rule("V68")
def test_a_damaged_index_does_not_mislead_the_truncation(harness: LogHarness, small: Small) -> None:
    log = closed(harness, small)
    segment = log.segments[1]
    path = Path(segment.path(".index"))
    data = bytearray(path.read_bytes())
    data[4:8] = (int.from_bytes(data[4:8], "big") + 5).to_bytes(4, "big")
    path.write_bytes(data)
    change(Path(segment.file.path), segment.size_bytes - 1, 1)
    log = harness.again()
    last = log.segments[2].base_offset - 1
    assert refused(log, last) == ErrorCode.CORRUPT_MESSAGE
    log.truncate_to(damage_of(log).offset).result()
    assert log.log_end_offset == last and values_of(log) == VALUES[:last]


@pytest.mark.rule("V68")
def test_damage_is_known_until_it_is_truncated_or_before_the_log_start(
    harness: LogHarness, small: Small
) -> None:
    log = closed(harness, small)
    segment = log.segments[2]
    change(Path(segment.file.path), segment.size_bytes - 1, 1)
    log = harness.again()
    last = log.segments[3].base_offset - 1
    refused(log, segment.base_offset)
    found = damage_of(log)
    assert found.offset == last and segment.file.path in found.reason
    log.note_damage(last + 3, "behind it")
    assert log.damage == found, "the first damage counts"
    log.truncate_to(last + 2).result()
    assert log.damage == found, "a truncation behind it does not touch it"
    log.advance_log_start(last)
    assert log.damage == found
    log.advance_log_start(last + 1)
    assert log.damage is None
    log.note_damage(0, "a batch that begins before the log")
    assert damage_of(log).offset == last + 1
    log.truncate_fully_and_start_at(70).result()
    assert log.damage is None


@pytest.mark.rule("V68")
def test_more_damage_than_was_known_fails_the_truncation_and_the_directory(
    harness: LogHarness, small: Small
) -> None:
    """Records before the known damage would go, and they may count."""
    log = closed(harness, small)
    segment = log.segments[2]
    size = segment.size_bytes // (log.segments[3].base_offset - segment.base_offset)
    change(Path(segment.file.path), segment.size_bytes - 1, 1)
    log = harness.again()
    refused(log, log.segments[3].base_offset - 1)
    change(Path(segment.file.path), size + 70, 1)
    with pytest.raises(StorageError, match=f"truncated at offset {segment.base_offset + 1} and"):
        log.truncate_to(damage_of(log).offset).result()
    log = harness.again()
    assert log.log_end_offset == segment.base_offset + 1
