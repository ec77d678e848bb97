"""Recovery: whatever bytes a crash left, the log is the good batches before them."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    LogHarness,
    append,
    directory_of,
    drive,
    read_all,
    values_of,
)
from tests.unit.log.recovered_logs import COUNT, damaged, ends, expect, filled

from tidelog.core.errors import StorageError
from tidelog.core.types import CleanEpochs
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.segment_files import SegmentFile, producers_at
from tidelog.records.builder import Producer

Small = Callable[..., LogConfig]


def test_a_file_cut_at_any_byte_keeps_the_whole_batches_before(harness: LogHarness) -> None:
    filled(harness)
    path = harness.log_path / "00000000000000000000.log"
    data, batch_ends = path.read_bytes(), ends(path)
    # Every place in one batch, in the middle of an epoch, and around the ends of all others.
    around = [end + step for end in (0, *batch_ends) for step in (-1, 0, 1)]
    within = range(batch_ends[5], batch_ends[6])
    for size in sorted({size for size in (*around, *within) if 0 <= size <= len(data)}):
        path.write_bytes(data[:size])
        whole = [end for end in batch_ends if end <= size]
        log = harness.again()
        expect(log, len(whole))
        assert path.stat().st_size == (whole[-1] if whole else 0)


@examples(60, HealthCheck.function_scoped_fixture)
@example(position=0, bit=7)
@given(position=st.integers(0, 2**20), bit=st.integers(0, 7))
def test_a_flipped_bit_cuts_before_its_batch(harness: LogHarness, position: int, bit: int) -> None:
    shutil.rmtree(harness.path, ignore_errors=True)
    filled(harness)
    path = harness.log_path / "00000000000000000000.log"
    batch_ends = ends(path)
    data = bytearray(path.read_bytes())
    position %= len(data)
    data[position] ^= 1 << bit
    path.write_bytes(data)
    log = harness.again()
    good = len([end for end in batch_ends if end <= position])
    assert log.log_end_offset >= good
    start = ([0, *batch_ends])[good]
    # The leader epoch lies outside of the checksum: a later one cannot be told from the truth.
    if not 12 <= position - start < 16:
        expect(log, good)
    assert len(values_of(log)) >= good


@pytest.mark.parametrize(
    "tail", [b"\0" * 5, b"\0" * 100, b"\0" * 5000, b"\xff" * 100, b"garbage" * 40]
)
def test_garbage_behind_the_last_batch_is_cut_off(harness: LogHarness, tail: bytes) -> None:
    filled(harness)
    path = harness.log_path / "00000000000000000000.log"
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    expect(harness.again(), COUNT)
    assert path.stat().st_size == size
    assert harness.tracer.named("log_recovered")[-1]["cut_bytes"] == len(tail)
    assert any("is truncated at byte" in line for line in harness.tracer.lines)


@pytest.mark.parametrize(
    "sizes",
    [
        # One batch larger than what is read for headers, and than what is read for whole batches.
        [40_000],
        [1_040_000],
        # Small ones, of which one lies across the end of what was read for headers (16 KiB), or of
        # what was read for whole batches (1 MiB); and both kinds in turn.
        [100] * 300,
        [5_000] * 300,
        [100, 40_000, 100, 1_040_000, 16_000, 100],
    ],
)
def test_whole_batches_are_kept_however_they_lie_in_what_is_read(
    harness: LogHarness, sizes: list[int]
) -> None:
    log = harness.log()
    sent = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    for value in sent:
        append(log, [value])
    path = harness.log_path / "00000000000000000000.log"
    written = path.stat().st_size
    log = harness.again()
    assert (log.log_end_offset, path.stat().st_size) == (len(sizes), written)
    assert not any("is truncated at byte" in line for line in harness.tracer.lines)
    assert b"".join(value or b"" for value in values_of(log)) == b"".join(sent)


def test_what_was_recovered_is_durable_and_goes_on(harness: LogHarness) -> None:
    log = filled(harness)
    log = harness.again()
    calls = harness.files.calls
    synced = calls.index(("sync_volume", str(harness.path)))
    last = len(calls) - calls[::-1].index(("sync_volume", str(harness.path)))
    after = [call for call, path in calls[synced:] if path.startswith(str(harness.log_path))]
    assert after == ["rename"] * len(after)
    assert not any(path.startswith(str(harness.log_path)) for _, path in calls[last:])
    # Only then do checkpoints tell of it.
    assert not [path for call, path in calls[:last] if call == "replace_file"]
    append(log, [b"x"], epoch=5, producer=Producer(7, 0, COUNT))
    assert harness.again().log_end_offset == COUNT + 1


def test_what_was_flushed_and_a_snapshot_covers_is_not_checked_again(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(segment_bytes=600))
    log.flush().result()
    directory_of(log).checkpoint().result()
    path = harness.log_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert harness.again().log_end_offset == COUNT


def test_a_hole_between_segments_ends_the_log(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(segment_bytes=300))
    assert len(log.segments) > 3
    first = harness.log_path / "00000000000000000000.log"
    first.write_bytes(first.read_bytes()[: ends(first)[0]])
    (harness.path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    log = harness.again()
    assert log.log_end_offset == 1 and len(log.segments) == 1
    assert sorted(path.name for path in harness.log_path.glob("*.log")) == [first.name]


def test_a_hole_where_records_were_flushed_is_compactions(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(segment_bytes=300, compact_enabled=True))
    log.flush().result()
    directory_of(log).checkpoint().result()
    first = harness.log_path / "00000000000000000000.log"
    first.write_bytes(first.read_bytes()[: ends(first)[0]])
    (harness.log_path / "leader-epoch-checkpoint").unlink()  # so that all is read again
    log = harness.again()
    assert log.log_end_offset == COUNT
    slice_ = log.read(1, 1000, COUNT, min_one_batch=True).result()
    assert slice_.first_offset == log.segments[1].base_offset


def test_a_hole_elsewhere_ends_a_compacted_log_too(harness: LogHarness, small: Small) -> None:
    filled(harness, small(segment_bytes=300, compact_enabled=True))
    first = harness.log_path / "00000000000000000000.log"
    first.write_bytes(first.read_bytes()[: ends(first)[0]])
    (harness.path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert harness.again().log_end_offset == 1


def test_a_damaged_batch_in_an_older_segment_ends_the_log_there(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(segment_bytes=300))
    second = log.segments[1]
    (harness.path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    path = Path(second.path(".log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    log = harness.again()
    expect(log, second.base_offset)
    assert log.active_segment.base_offset == second.base_offset


@pytest.mark.rule("V39")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("leader-epoch-checkpoint", b"0\n1\nx y\n"),
        ("leader-epoch-checkpoint", b""),
        ("leader-epoch-checkpoint", None),
        ("leader-epoch-checkpoint", b"0\n1\n2 8\n"),
    ],
)
def test_leader_epochs_are_rebuilt_from_the_batches(
    harness: LogHarness, name: str, content: bytes | None
) -> None:
    log = filled(harness)
    drive(directory_of(log).close(CleanEpochs(1)))
    path = harness.log_path / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log = harness.again()
    assert log.epochs.entries() == [(0, 0), (1, 4), (2, 8)]


@pytest.mark.rule("V39")
def test_entries_at_or_beyond_the_log_end_do_not_count(harness: LogHarness) -> None:
    log = filled(harness)
    log.assign_epoch(9, COUNT)
    log.flush().result()
    assert b"9 12" in (harness.log_path / "leader-epoch-checkpoint").read_bytes()
    log = harness.again()
    assert log.epochs.entries() == [(0, 0), (1, 4), (2, 8)]
    log.assign_epoch(9, COUNT)
    drive(directory_of(log).close(CleanEpochs(1)))
    assert b"9 12" in (harness.log_path / "leader-epoch-checkpoint").read_bytes()
    assert harness.again().epochs.entries() == [(0, 0), (1, 4), (2, 8)], "also after a clean end"


@pytest.mark.rule("V39")
def test_leading_writes_nothing_and_the_next_flush_writes_the_epochs_before_it_counts(
    harness: LogHarness,
) -> None:
    log = filled(harness)
    log.flush().result()
    harness.files.calls.clear()
    log.assign_epoch(9, COUNT)
    assert harness.files.calls == []
    append(log, [b"x"], epoch=9)
    points: list[int] = []
    harness.files.refuse = lambda call, path: points.append(log.recovery_point) or 0  # type: ignore[func-returns-value]  # append() or 0
    log.flush().result()
    assert points and max(points) == COUNT, "the recovery point rose before all was on disk"
    written = [(call, Path(path).name) for call, path in harness.files.calls]
    synced = written.index(("fsync", "00000000000000000000.log"))
    assert synced < written.index(("replace_file", "leader-epoch-checkpoint"))
    assert log.recovery_point == COUNT + 1
    assert b"9 12" in (harness.log_path / "leader-epoch-checkpoint").read_bytes()


@pytest.mark.rule("V39")
def test_entries_at_or_beyond_the_recovery_point_are_made_from_the_batches(
    harness: LogHarness,
) -> None:
    log = filled(harness)
    directory_of(log).checkpoint().result()
    path = harness.log_path / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n3\n0 0\n1 3\n2 7\n")
    assert harness.again().epochs.entries() == [(0, 0), (1, 4), (2, 8)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"", b"123", b"\xff" * 24])
def test_indexes_are_rebuilt(
    harness: LogHarness, small: Small, suffix: str, content: bytes | None
) -> None:
    log = filled(harness, small(segment_bytes=600))
    drive(directory_of(log).close(CleanEpochs(1)))
    for path in harness.log_path.glob(f"*{suffix}"):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    log = harness.again()
    expect(log, COUNT)
    for number in range(COUNT):
        found = log.offset_for_timestamp(NOW_MS + number, COUNT).result()
        assert found == (NOW_MS + number, number, number // 4)


def test_a_damaged_snapshot_costs_only_time(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(segment_bytes=600))
    drive(directory_of(log).close(CleanEpochs(1)))
    for path in harness.log_path.glob("*.snapshot"):
        path.write_bytes(b"\xff" * 50)
    expect(harness.again(), COUNT)


@pytest.mark.rule("V38")
def test_a_producer_is_not_taken_up_from_before_what_retention_took(
    harness: LogHarness, small: Small
) -> None:
    # What it wrote in between is gone: who believed the snapshot would refuse it for ever.
    log = harness.log(small(segment_bytes=600))
    sequences = {7: 0, 8: 0}
    for number in range(20):
        writer = 8 if number in (0, 7) else 7
        append(log, [bytes(30)], producer=Producer(writer, 0, sequences[writer]))
        sequences[writer] += 1
    segments = [SegmentFile.of(one) for one in log.segments]
    second, third = segments[1].base_offset, segments[2].base_offset
    assert 0 < second <= 7 < third, "the second batch of producer 8 is in the second segment"
    drive(directory_of(log).close(CleanEpochs(1)))

    def last_sequence(producer_id: int, first_segment: int) -> int:
        state = producers_at(
            harness.files, str(harness.log_path), segments[first_segment:], [second], 20, 0
        )
        entry = state.entry(producer_id)
        return -1 if entry is None else entry.last_sequence

    assert [last_sequence(8, first) for first in (0, 1, 2)] == [1, 1, -1]
    assert [last_sequence(7, first) for first in (0, 1, 2)] == [17, 17, 17]


def test_a_log_that_ends_before_its_start_begins_anew(harness: LogHarness) -> None:
    filled(harness)
    (harness.path / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 500\n")
    log = harness.again()
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert log.epochs.entries() == [] and len(log.producers) == 0
    append(log, [b"x"], epoch=5)
    assert harness.again().log_end_offset == 501


def test_a_log_start_inside_the_log_survives(harness: LogHarness) -> None:
    log = filled(harness)
    log.advance_log_start(6)
    directory_of(log).checkpoint().result()
    log = harness.again()
    assert (log.log_start_offset, log.log_end_offset) == (6, COUNT)
    assert log.epochs.entries() == [(1, 4), (2, 8)], "where epoch 1 began is known"


def test_a_log_that_began_inside_a_batch_is_found_again(harness: LogHarness) -> None:
    leader = filled(harness)
    follower = directory_of(leader).create(TP._replace(partition=1), TOPIC_ID, LogConfig()).result()
    follower.truncate_fully_and_start_at(40).result()
    batch = bytearray(bytes(leader.read(0, 1, 1, min_one_batch=True).result().data))
    batch[0:8] = struct.pack(">q", 39)
    batch[23:27] = struct.pack(">i", 2)
    from tidelog.records.batch import BatchView

    batch[17:21] = struct.pack(">I", BatchView(batch).computed_crc())
    follower.plan_follower_append(bytes(batch))
    follower.submit_planned()
    assert (follower.log_start_offset, follower.log_end_offset) == (40, 42)
    harness.again()
    log = harness.open().logs[TP._replace(partition=1)]
    assert (log.log_start_offset, log.log_end_offset) == (40, 42)


def test_leftovers_are_removed_and_strangers_left_alone(harness: LogHarness, small: Small) -> None:
    filled(harness, small(segment_bytes=600))
    for name in ("00000000000000000003.log.deleted", "x.tmp", "00000000000000000009.index"):
        (harness.log_path / name).write_bytes(b"x")
    (harness.log_path / "notes.txt").write_text("mine")
    expect(harness.again(), COUNT)
    left = [path.name for path in harness.log_path.iterdir()]
    assert "notes.txt" in left
    assert not [name for name in left if name.endswith((".deleted", ".tmp"))]
    assert "00000000000000000009.index" not in left or any("9.log" in name for name in left)


def test_a_swap_that_kafka_left_is_finished(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(segment_bytes=300))
    second, third = log.base_offsets[1:3]
    first = harness.log_path / "00000000000000000000.log"
    data, batch_ends = first.read_bytes(), ends(first)
    more = (harness.log_path / f"{second:020d}.log").read_bytes()
    # The first two segments as one, without the second batch.
    merged = data[: batch_ends[0]] + data[batch_ends[1] :] + more
    (harness.log_path / "00000000000000000000.log.swap").write_bytes(merged)
    log.flush().result()
    directory_of(log).checkpoint().result()
    log = harness.again()
    assert log.base_offsets[:2] == [0, third]
    assert [record.offset for record in read_all(log)] == [0, *range(2, COUNT)]
    assert not list(harness.log_path.glob("*.swap"))
    assert not (harness.log_path / f"{second:020d}.log").exists()


def test_a_swap_beside_a_cleaned_file_was_not_begun(harness: LogHarness) -> None:
    filled(harness)
    for name in ("0.log.swap", "0.index.cleaned", "7.log.swap"):
        (harness.log_path / name.zfill(20 + len(name) - 1)).write_bytes(b"x")
    expect(harness.again(), COUNT)
    left = [path.name for path in harness.log_path.iterdir()]
    assert not [name for name in left if name.endswith((".swap", ".cleaned"))]


def test_a_creation_cut_short_never_was(harness: LogHarness) -> None:
    harness.log()
    for path in harness.log_path.iterdir():
        path.unlink()
    (harness.path / "new-replicas").unlink()
    directory = harness.open()
    assert directory.logs == {} and not harness.log_path.exists()


def test_records_without_a_topic_id_are_kept(harness: LogHarness) -> None:
    filled(harness)
    (harness.log_path / "partition.metadata").write_bytes(b"")
    (harness.path / "new-replicas").unlink()
    log = harness.again()
    assert log.topic_id == bytes(16) and log.log_end_offset == COUNT


def test_damaged_offset_checkpoints_are_not_believed(harness: LogHarness) -> None:
    log = filled(harness)
    log.flush().result()
    directory_of(log).checkpoint().result()
    directory_of(log).write_high_watermarks({TP: 9}).result()
    for name in ("recovery-point", "replication", "log-start"):
        (harness.path / f"{name}-offset-checkpoint").write_bytes(b"0\n1\ntopic 0 -1\n")
    directory = harness.open()
    expect(directory.logs[TP], COUNT)
    assert directory.high_watermarks == {}
    assert sum("is not believed" in line for line in harness.tracer.lines) >= 2


# what was flushed


NO_OFFSETS = [-1, -(2**63), 2**31, 2**62, 2**63 - 1]


@pytest.mark.parametrize("offset", [*NO_OFFSETS, 0, 3])
def test_an_impossible_offset_in_the_unflushed_tail_ends_the_log_there(
    harness: LogHarness, offset: int
) -> None:
    filled(harness)
    damaged(harness, 7, 0, struct.pack(">q", offset))
    expect(harness.again(), 7)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        *[(0, struct.pack(">q", offset), "none of the segment") for offset in NO_OFFSETS],
        (0, struct.pack(">q", 2), "go back to 2 after 6"),
        (8, struct.pack(">i", -5), "length is -5"),
        (8, struct.pack(">i", 2**30), "are left"),
        (16, b"\x01", "magic is 1"),
        (23, struct.pack(">i", -2), "last offset delta is -2"),
    ],
)
def test_damage_where_records_were_flushed_is_refused_and_nothing_is_cut(
    harness: LogHarness, at: int, value: bytes, why: str, clean: bool
) -> None:
    log = filled(harness)
    if clean:
        drive(directory_of(log).close(CleanEpochs(1)))
    else:
        log.flush().result()
        directory_of(log).checkpoint().result()
    position = ends(harness.log_path / "00000000000000000000.log")[6]
    path = damaged(harness, 7, at, value)
    content = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StorageError, match=why) as caught:
            harness.open()
        assert f"{path} failed" in str(caught.value)
        assert f"damaged at byte {position}, offset 7" in str(caught.value)
        assert caught.value.directory == str(harness.path)
        assert path.read_bytes() == content
    assert not (harness.path / ".kafka_cleanshutdown").exists(), "this was no clean shutdown"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("batches", [0, 5])
def test_a_file_without_batches_that_were_flushed_is_refused(
    harness: LogHarness, batches: int, clean: bool
) -> None:
    """No byte that is there is wrong; what is missing was counted on all the same."""
    log = filled(harness)
    if clean:
        drive(directory_of(log).close(CleanEpochs(1)))
    else:
        log.flush().result()
        directory_of(log).checkpoint().result()
    path = harness.log_path / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[: [0, *ends(path)][batches]])
    with pytest.raises(StorageError, match=f"offset {batches}, .*file ends here"):
        harness.open()


def test_damage_behind_what_was_flushed_is_cut(harness: LogHarness) -> None:
    log = filled(harness, count=8)
    log.flush().result()
    directory_of(log).checkpoint().result()
    append(log, [b"x"], epoch=2, producer=Producer(7, 0, 8))
    damaged(harness, 8, 0, struct.pack(">q", -1))
    expect(harness.again(), 8)


def test_a_gap_where_records_were_flushed_is_an_earlier_compactions(harness: LogHarness) -> None:
    log = filled(harness)
    log.flush().result()
    directory_of(log).checkpoint().result()
    path = harness.log_path / "00000000000000000000.log"
    batch_ends, data = ends(path), path.read_bytes()
    path.write_bytes(data[: batch_ends[4]] + data[batch_ends[6] :])
    log = harness.again()
    assert log.log_end_offset == COUNT
    assert [record.offset for record in read_all(log)] == [*range(5), *range(7, COUNT)]


@pytest.mark.parametrize("position", [1, 60, 100, 305])
def test_an_index_that_points_into_a_batch_is_not_believed(
    harness: LogHarness, small: Small, position: int
) -> None:
    log = filled(harness, small(segment_bytes=100_000))
    drive(directory_of(log).close(CleanEpochs(1)))
    path = harness.log_path / "00000000000000000000.index"
    path.write_bytes(struct.pack(">ii", 3, position))
    expect(harness.again(), COUNT)
    assert any("is not believed" in line for line in harness.tracer.lines)


@pytest.mark.parametrize("offset", NO_OFFSETS)
def test_damage_in_a_segment_of_old_hurts_no_start(
    harness: LogHarness, small: Small, offset: int
) -> None:
    log = filled(harness, small(segment_bytes=600))
    drive(directory_of(log).close(CleanEpochs(1)))
    damaged(harness, 2, 0, struct.pack(">q", offset))
    for path in harness.log_path.glob("*index"):
        path.unlink()
    log = harness.again()
    assert log.log_end_offset == COUNT
    assert log.offset_for_timestamp(NOW_MS + COUNT - 1, COUNT).result() is not None
    drive(directory_of(log).close(CleanEpochs(2)))
    for path in harness.log_path.glob("*.snapshot"):
        path.unlink()
    with pytest.raises(StorageError, match="damaged at byte"):
        harness.again()  # its producers are told by those batches alone


# clean and unclean


@pytest.mark.rule("E3")
def test_after_a_clean_shutdown_only_the_end_of_each_segment_is_looked_at(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small(segment_bytes=600), count=3 * COUNT)
    drive(directory_of(log).close(CleanEpochs(42)))
    harness.files.calls.clear()
    directory = harness.open()
    reads = [
        path for call, path in harness.files.calls if call == "pread" and path.endswith(".log")
    ]
    old = [path for path in reads if int(Path(path).name[:20]) < log.active_segment.base_offset]
    assert len(old) == len(set(old)) == len(log.segments) - 1 > 3
    assert directory.clean_shutdown == CleanEpochs(42)
    assert directory.logs[TP].log_end_offset == 3 * COUNT
    assert not (harness.path / ".kafka_cleanshutdown").exists()
    assert harness.open().clean_shutdown is None, "the marker counts once"


@pytest.mark.rule("E3")
def test_a_damaged_marker_is_no_marker(harness: LogHarness) -> None:
    log = filled(harness)
    drive(directory_of(log).close(CleanEpochs(42)))
    (harness.path / ".kafka_cleanshutdown").write_bytes(b"{")
    directory = harness.open()
    assert directory.clean_shutdown is None
    expect(directory.logs[TP], COUNT)


@pytest.mark.rule("E3")
def test_a_directory_whose_partition_lost_its_topic_id_proves_nothing(harness: LogHarness) -> None:
    """The broker no longer knows whose records these are, so a replica is lost."""
    log = filled(harness)
    drive(directory_of(log).close(CleanEpochs(42)))
    (harness.log_path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: \xff\n")
    (harness.path / "new-replicas").unlink()
    assert harness.open().clean_shutdown is None
    noted = [line for line in harness.tracer.lines if "is not believed" in line]
    assert len(noted) == 1 and "a partition's topic is unknown" in noted[0]


def test_what_lies_behind_a_gap_survives_the_loss_of_recovery_points_and_then_a_crash(
    harness: LogHarness, small: Small
) -> None:
    """A gap is compaction's only below the recovery point, so that has to be on disk first."""
    log = filled(harness, small(segment_bytes=600))
    first = log.segments[0]
    drive(directory_of(log).close(CleanEpochs(42)))
    for suffix in (".log", ".index", ".timeindex"):
        (harness.log_path / f"{first.base_offset:020d}{suffix}").write_bytes(b"")
    (harness.path / "recovery-point-offset-checkpoint").write_bytes(b"damaged")
    log = harness.again()
    assert log.log_end_offset == COUNT
    append(log, [b"new"], epoch=9)
    assert harness.again().log_end_offset == COUNT + 1


def test_closing_what_did_not_change_writes_no_log_file(harness: LogHarness) -> None:
    log = filled(harness)
    drive(directory_of(log).close(CleanEpochs(1)))
    directory: LogDirectory = harness.open()
    harness.files.calls.clear()
    drive(directory.close(CleanEpochs(2)))
    written = [path for call, path in harness.files.calls if call in ("fsync", "replace_file")]
    assert not [path for path in written if "topic-0" in path]
    assert harness.open().clean_shutdown == CleanEpochs(2)


def test_five_duplicates_are_known_after_a_clean_restart(harness: LogHarness) -> None:
    log = filled(harness)
    drive(directory_of(log).close(CleanEpochs(1)))
    log = harness.again()
    entry = log.producers.entry(7)
    assert entry is not None
    assert [batch.last_sequence for batch in entry.batches] == [7, 8, 9, 10, 11]


@pytest.mark.rule("V36")
def test_the_time_index_of_a_segment_that_was_rolled_at_the_recovery_point_is_whole(
    harness: LogHarness, small: Small
) -> None:
    """A start counts all as flushed, with indexes of an earlier end; the roll is not flushed."""
    log = filled(harness, small(segment_bytes=100_000), count=4)
    drive(directory_of(log).close(CleanEpochs(1)))
    log = harness.again()
    for number in range(4, COUNT):
        append(log, [bytes(30)], epoch=number // 4, timestamp_ms=NOW_MS + number)
    log = harness.again()  # after a crash
    assert log.recovery_point == COUNT
    (harness.log_path / f"{COUNT:020d}.log").touch()  # rolled, and no more
    log = harness.again()
    assert [segment.base_offset for segment in log.segments] == [0, COUNT]
    for number in range(COUNT):
        found = log.offset_for_timestamp(NOW_MS + number, COUNT).result()
        assert found == (NOW_MS + number, number, number // 4)
