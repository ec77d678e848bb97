"""What happens to a log while it is compacted: truncation, retention, deletion, reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.log import NOW_MS, TP, LogHarness, directory_of
from tests.unit.log.compacting import Small, cleaner, pairs_of, rounds

from tidelog.core.completion import Completion
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import iter_batches
from tidelog.records.reader import iter_records


@pytest.mark.parametrize("step", range(0, 60, 3))
def test_a_truncation_in_the_middle_makes_the_run_void(
    harness: LogHarness, compact: Small, step: int
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    before = pairs_of(log)
    cut = log.base_offsets[2]
    done = interleaved(harness, log, step, lambda: log.truncate_to(cut))
    after = pairs_of(log)
    assert log.log_end_offset == cut and directory_of(log).failure is None
    last: dict[bytes | None, int] = {key: offset for offset, key, _ in before if offset < cut}
    assert set(after) <= set(before)
    if not done:  # nothing was swapped that a record behind the cut had replaced
        assert after == [row for row in before if row[0] < cut]
    assert all(any(row[1] == key for row in after) or done for key in last)


def interleaved(
    harness: LogHarness, log: PartitionLog, steps: int, act: Callable[[], object]
) -> bool:
    """Run the cleaner for so many operations of the disk, act, go on; whether it had swapped."""
    harness.lane.eager = False
    swapped = False

    async def both() -> None:
        nonlocal swapped
        task = asyncio.ensure_future(
            cleaner(harness.clock, slice_bytes=100).clean_one([(log, log.log_end_offset)])
        )
        for _ in range(steps):
            await asyncio.sleep(0)
            harness.lane.run(1)
        swapped = bool(list(harness.log_path.glob("*.deleted")))
        act()
        while not task.done() or harness.lane.waiting:
            await asyncio.sleep(0)
            harness.lane.run(1)
        await task

    asyncio.run(both())
    harness.lane.eager = True
    return swapped


@pytest.mark.parametrize("step", range(0, 60, 3))
def test_retention_in_the_middle_is_no_loss(harness: LogHarness, compact: Small, step: int) -> None:
    log = harness.log(compact(delete_enabled=True, retention_ms=-1))
    rounds(log, 10)
    start = log.base_offsets[2]
    rows = {key: (offset, value) for offset, key, value in pairs_of(log)}

    def delete() -> None:
        log.advance_log_start(start)
        log.enforce_retention(NOW_MS, log.log_end_offset)

    interleaved(harness, log, step, delete)
    assert directory_of(log).failure is None
    assert {key: (offset, value) for offset, key, value in pairs_of(log)} == rows
    again = harness.again()
    assert {key: (offset, value) for offset, key, value in pairs_of(again)} == rows


@pytest.mark.parametrize("step", range(0, 60, 3))
def test_a_log_that_goes_in_the_middle_takes_its_compaction_along(
    harness: LogHarness, compact: Small, step: int
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    interleaved(harness, log, step, lambda: directory_of(log).delete(TP))
    assert directory_of(log).failure is None and not harness.log_path.exists()


@pytest.mark.parametrize("step", range(0, 60, 3))
def test_readers_in_the_middle_read_on(harness: LogHarness, compact: Small, step: int) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    rows = {key: (offset, value) for offset, key, value in pairs_of(log)}
    log = harness.again(harness.config)  # with no file open and no index in memory
    found: list[tuple[bytes | None, tuple[int, bytes | None]]] = []

    def read(offset: int) -> None:
        def done(completion: Completion[Any]) -> None:
            slice_ = completion.result()
            found.extend(
                (record.key, (record.offset, record.value))
                for batch in iter_batches(slice_.data)
                for record in iter_records(batch)
            )
            if 0 <= slice_.next_offset < log.log_end_offset:
                read(slice_.next_offset)

        log.read(offset, 150, log.log_end_offset, min_one_batch=True).then(done)

    def read_everywhere() -> None:
        for offset in (0, 5, 17):
            read(offset)

    interleaved(harness, log, step, read_everywhere)
    assert len(found) > 8 and directory_of(log).failure is None
    assert dict(found).items() >= rows.items()
