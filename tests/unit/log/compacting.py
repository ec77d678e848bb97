"""What tests of compaction share: keyed batches, runs of the cleaner, what is left of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.log import NOW_MS, FakeClock, drive

from tidelog.log.config import LogConfig
from tidelog.log.log_cleaner import Cleaner, CleanerSettings, CleaningStats
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import BatchView, iter_batches
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import Record, iter_records

#: Key, value; None for a tombstone.
Pair = tuple[bytes, bytes | None]
#: Makes a configuration with small segments; keywords change it.
Small = Callable[..., LogConfig]


async def no_sleep(_: float) -> None:
    """A clock that need not be waited for."""


def put(
    log: PartitionLog,
    pairs: Sequence[Pair],
    *,
    epoch: int = 0,
    producer: Producer | None = None,
    codec: int = 0,
    now_ms: int = NOW_MS,
) -> int:
    """Append one batch; returns its base offset."""
    records = [NewRecord(key, value, now_ms + n) for n, (key, value) in enumerate(pairs)]
    batch = build_batch(records, codec=codec, producer=producer or Producer())
    completion = log.plan_leader_append(batch, epoch, now_ms)
    log.submit_planned()
    return completion.result().base_offset


def cleaner(clock: FakeClock, **settings: Any) -> Cleaner:
    """A cleaner that never waits."""
    return Cleaner(CleanerSettings(**settings), clock, no_sleep)


def clean(log: PartitionLog, clock: FakeClock, **settings: float) -> CleaningStats | None:
    """One run of a cleaner that finds the log committed to its end."""
    return drive(cleaner(clock, **settings).clean_one([(log, log.log_end_offset)]))


def batches_of(log: PartitionLog, max_bytes: int = 1 << 20) -> list[BatchView]:
    """Every batch from the log's start to its end."""
    found: list[BatchView] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        slice_ = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=True).result()
        if not slice_.data:
            break
        found += iter_batches(slice_.data)
        assert slice_.next_offset > offset
        offset = slice_.next_offset
    return found


def pairs_of(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all_with_gaps(log)]


def read_all_with_gaps(log: PartitionLog) -> list[Record]:
    return [record for batch in batches_of(log) for record in iter_records(batch)]


def rounds(log: PartitionLog, count: int, keys: int = 4, epoch: int = 0) -> None:
    """Every key once a round, a batch each."""
    for number in range(count):
        for key in range(keys):
            put(log, [(b"k%d" % key, b"%d of round %d" % (key, number))], epoch=epoch)
