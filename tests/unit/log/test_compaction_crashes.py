"""A process that dies at any file call of a compaction, on a disk that loses what is not synced.

What is left is the log as it was, or with groups of segments compacted from its start on, each
whole or not at all; every key has its last value, and the next process compacts the rest.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
from tests.support.draws import FACTOR
from tests.support.log import TOPIC_ID, TP, SimLogHarness, drive
from tests.unit.log.compacting import batches_of, cleaner, put

from tidelog.core.errors import NodeDead
from tidelog.log.config import LogConfig
from tidelog.log.log_cleaner import CleaningStats
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import Segment
from tidelog.records.builder import Producer
from tidelog.records.reader import iter_records
from tidelog.sim.disk import Loss, SimDisk

CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    compact_enabled=True,
    delete_enabled=False,
    delete_retention_ms=0,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)

Row = tuple[int, bytes | None, bytes | None]


def rows_of(log: PartitionLog) -> list[Row]:
    return [
        (record.offset, record.key, record.value)
        for batch in batches_of(log)
        for record in iter_records(batch)
    ]


def filled(harness: SimLogHarness) -> PartitionLog:
    """A log of some segments, compacted once and grown since, all flushed."""
    log = harness.open().create(TP, TOPIC_ID, CONFIG).result()
    log.assign_epoch(0, 0)
    sequence = 0
    for number in range(36):
        if number == 18:
            drive(cleaner(harness.clock).clean_one([(log, log.log_end_offset)]))
        value = None if number % 7 == 3 else b"%d" % number * 9
        producer = Producer(5, 0, sequence) if number % 5 == 0 else None
        sequence += 2 if producer else 0
        put(log, [(b"k%d" % (number % 5), value), (b"x", b"%d" % number)], producer=producer)
    log.flush().result()
    log.directory.checkpoint().result()
    return log


def disk_to_strike() -> SimDisk:
    """The disk under a log that is ready to be compacted; its process has died."""
    harness = SimLogHarness(0, CONFIG)
    filled(harness)
    harness.disk.sync_everything()
    return harness.disk


DISK = disk_to_strike()


def reopened(strike_at: int, seed: int) -> tuple[SimLogHarness, PartitionLog]:
    """A process on a copy of that disk, which dies `strike_at` file calls after its start."""
    harness = SimLogHarness(seed, CONFIG)
    harness.disk = copy.deepcopy(DISK)
    harness.clock.advance(10)
    log = harness.open().logs[TP]
    harness.life.calls, harness.life.strike_at = 0, strike_at
    return harness, log


def compact(harness: SimLogHarness, log: PartitionLog) -> CleaningStats | None:
    run = cleaner(harness.clock, slice_bytes=150).clean_one([(log, log.log_end_offset)])
    return drive(run)


def struck(strike_at: int, loss: Loss) -> SimLogHarness:
    """A rig whose process died at that file call of a compaction."""
    harness, log = reopened(strike_at, strike_at)
    with pytest.raises(NodeDead):
        compact(harness, log)
    if loss is not Loss.NONE:
        harness.disk.lose_power(harness.draw, loss)
    return harness


def all_states() -> tuple[list[list[Row]], int]:
    """What the log holds after each swap of an undisturbed compaction; and its file calls."""
    harness, log = reopened(-1, 0)
    states = [rows_of(log)]
    replaced = PartitionLog.replaced

    def noted(self: PartitionLog, old: list[Segment], new: Segment) -> None:
        replaced(self, old, new)
        calls = harness.life.calls
        states.append(rows_of(self))
        harness.life.calls = calls

    harness.life.calls = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLog, "replaced", noted)
        assert compact(harness, log) is not None
    return states, harness.life.calls


STATES, CALLS = all_states()


def test_the_compaction_that_is_struck_merges_and_empties_segments() -> None:
    assert len(STATES) > 3 and CALLS > 100
    assert len(STATES[-1]) < len(STATES[0])
    assert all(set(after) < set(before) for before, after in pairwise(STATES))


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.value)
def test_a_crash_leaves_each_group_old_or_new(loss: Loss) -> None:
    seen: dict[int, None] = {}
    # Each loss strikes other calls, so that together they strike all; `make fuzz` strikes each
    # call with each loss.
    step = max(1, len(Loss) // FACTOR)
    for strike_at in range(1 + list(Loss).index(loss) % step, CALLS + 1, step):
        check_left(struck(strike_at, loss), seen, f"strike {strike_at}")
    assert len(seen) >= 3


def check_left(harness: SimLogHarness, seen: dict[int, None], where: str) -> None:
    log = harness.open().logs[TP]
    rows = rows_of(log)
    assert rows in STATES or partly_emptied(rows), where
    seen[len(rows)] = None
    assert log.log_end_offset == STATES[0][-1][0] + 1, where
    assert log.producers.entry(5) is not None
    assert log.epochs.entries() == [(0, 0)]
    path = f"{harness.disk.root}/topic-0"
    left = [name for name, _ in harness.disk.files() if name.startswith(path)]
    assert not [n for n in left if n.endswith((".swap", ".cleaned", ".tmp"))], where
    last = [row for row in STATES[-1] if row[2] is not None]
    if compact(harness, log) is not None:
        assert rows_of(log) in (STATES[-1], last), where
    entry = log.producers.entry(5)
    assert entry is not None
    put(log, [(b"new", b"1")], producer=Producer(5, 0, entry.last_sequence + 1))


def partly_emptied(rows: list[Row]) -> bool:
    """Between two states: old segments of which nothing is kept are still behind the new one."""
    return any(
        set(after) <= set(rows) <= set(before)
        and rows == [row for row in before if row in rows]
        and all(row not in rows or row in after for row in before[: kept_until(before, after)])
        for before, after in pairwise(STATES)
    )


def kept_until(before: list[Row], after: list[Row]) -> int:
    """Where in `before` the last record lies that a swap has kept of its group."""
    gone = [number for number, row in enumerate(before) if row not in after]
    kept = [number for number, row in enumerate(before[: gone[-1]]) if row in after]
    return kept[-1] if kept else gone[0]


@pytest.mark.parametrize("loss", [Loss.UNSYNCED, Loss.ALL_UNSYNCED], ids=lambda loss: loss.value)
def test_a_crash_in_the_recovery_of_a_crash_changes_nothing(loss: Loss) -> None:
    step = 100 if FACTOR == 1 else max(1, 60 // FACTOR)
    for strike_at in range(1, CALLS + 1, step):
        for second in range(1, 1000, 5):
            harness = struck(strike_at, loss)
            try:
                harness.open(second)
                break
            except NodeDead:
                harness.disk.lose_power(harness.draw, loss)
                check_left(harness, {}, f"strike {strike_at}, then {second}")
