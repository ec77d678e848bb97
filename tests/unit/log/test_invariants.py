"""Invariants of a log: broken ones end what broke them, at once and loudly (DESIGN.md, rule 9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.log import NOW_MS, LogHarness, append, batch_of

from tidelog.log import retention
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import Segment

Small = Callable[..., LogConfig]


@pytest.fixture
def log(harness: LogHarness, small: Small) -> PartitionLog:
    """A log of several segments and epochs; the harness forgets it, for tests break it."""
    log = harness.log(small())
    for number in range(30):
        append(log, [b"v" * 60], epoch=number // 10)
    assert len(log.segments) > 3 and len(log.epochs) == 3 and len(log.snapshots) > 2
    log.check_invariants()
    harness.directory = None
    return log


def swap_segments(log: PartitionLog) -> None:
    log.segments[0], log.segments[1] = log.segments[1], log.segments[0]
    log.base_offsets[0], log.base_offsets[1] = log.base_offsets[1], log.base_offsets[0]


def drop_segments(log: PartitionLog) -> None:
    log.segments.clear()
    log.base_offsets.clear()


BREAKS: dict[str, Callable[[PartitionLog], object]] = {
    "no segment": drop_segments,
    "a base offset that is not the segment's": lambda log: log.base_offsets.append(1_000),
    "segments out of order": swap_segments,
    "log start before the first segment": lambda log: setattr(log, "log_start_offset", -1),
    "log start beyond the log end": lambda log: setattr(log, "log_start_offset", 31),
    "next offset below the log end": lambda log: setattr(log, "next_offset", 29),
    "recovery point beyond the log end": lambda log: setattr(log, "recovery_point", 31),
    "negative recovery point": lambda log: setattr(log, "recovery_point", -1),
    "leader epochs that fall": lambda log: log.epochs._epochs.reverse(),
    "leader epochs whose offsets fall": lambda log: log.epochs._starts.reverse(),
    "a leader epoch beyond the log": lambda log: log.epochs.assign(9, 31),
    "snapshots out of order": lambda log: log.snapshots.reverse(),
    "another size than the segments'": lambda log: setattr(log, "size_bytes", 1),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_state_is_noticed(log: PartitionLog, name: str) -> None:
    BREAKS[name](log)
    with pytest.raises(AssertionError):
        log.check_invariants()


def test_the_log_start_may_lie_beyond_the_recovery_point(log: PartitionLog) -> None:
    """Records may be deleted before they are flushed."""
    assert log.advance_log_start(30)
    log.recovery_point = 20
    log.check_invariants()


def test_what_is_written_continues_the_log(log: PartitionLog) -> None:
    log.plan_leader_append(batch_of([b"v"]), 3, NOW_MS)
    log.log_end_offset += 1
    with pytest.raises(AssertionError, match="ends at 31, written 30"):
        log.submit_planned()


def test_only_the_last_plans_are_taken_back(log: PartitionLog) -> None:
    log.plan_leader_append(batch_of([b"v"]), 3, NOW_MS)
    log.next_offset += 1
    with pytest.raises(AssertionError, match="not the last plans"):
        log.close("closed")


def test_a_turn_ends_once(log: PartitionLog) -> None:
    with pytest.raises(AssertionError, match="turn"):
        log.end_turn()


@pytest.mark.parametrize("base_offset", [0, 29])
def test_a_new_segment_begins_at_the_log_end_or_beyond(log: PartitionLog, base_offset: int) -> None:
    with pytest.raises(AssertionError, match="a segment at"):
        log.add_segment(Segment(log.path, base_offset, NOW_MS))


def test_a_compacted_segment_takes_the_place_of_neighbours(log: PartitionLog) -> None:
    merged = Segment(log.path, 0, NOW_MS)
    with pytest.raises(AssertionError, match="side by side"):
        log.replaced([log.segments[0], log.segments[2]], merged)
    with pytest.raises(AssertionError, match="place"):
        log.replaced([log.segments[1], log.segments[2]], merged)


def test_nothing_above_the_high_watermark_is_removed(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "segments_to_delete", lambda *_: 1)
    with pytest.raises(AssertionError, match="removed up to"):
        log.enforce_retention(NOW_MS, 0)


def test_a_file_is_unpinned_as_often_as_pinned(log: PartitionLog) -> None:
    files = log.directory.open_files
    files.pin(log.active_segment.file)
    files.unpin(log.active_segment.file)
    with pytest.raises(AssertionError, match="unpinned"):
        files.unpin(log.active_segment.file)


def test_what_is_compacted_was_flushed(log: PartitionLog) -> None:
    log.flush().result()
    log.directory.compacted(log.topic_partition, 30).result()
    with pytest.raises(AssertionError, match="31 compacted, 30 flushed"):
        log.directory.compacted(log.topic_partition, 31)
