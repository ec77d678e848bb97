"""Micro benchmark of the log on a real lane: what an append and a read cost beside the disk.

Prints the median and the fastest of several rounds: µs of CPU on the loop per append (plan, submit)
or read, and the MB/s that this would allow, beside the bare pwritev and CRC of the same bytes.
Run: python -m bench.log [--directory DIR]. The pages of the files are cold; the first round of
each case is not counted. Compaction (`python -m bench compaction`) is told in MiB of log gone
through per second, with the most CPU time that one of its slices took on the directory's slow
thread.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from crc32c import crc32c

from bench.rig import spread, table
from tidelog.core.completion import Completion
from tidelog.core.ports import Files, Work
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_cleaner import Cleaner, CleanerSettings
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.records import compression
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.runtime import lanes
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.lanes import ThreadLane

ROUNDS = 7
BYTES_PER_ROUND = 256 << 20
COMPACTED_BYTES = 64 << 20

_CONFIG = LogConfig(segment_bytes=1 << 30, max_message_bytes=8 << 20)

T = TypeVar("T")


class _Silent:
    """A tracer that keeps nothing."""

    def event(self, name: str, /, **fields: object) -> None: ...
    def mark(self, name: str, /) -> None: ...
    def log(self, logger: str, level: int, message: str, /) -> None: ...


def _report(what: str, size_bytes: int, times_us: list[float]) -> None:
    median, fastest = statistics.median(times_us), min(times_us)
    sys.stdout.write(
        f"{what:<34}{size_bytes:>9} B  {median:9.2f} us  best {fastest:9.2f} us"
        f"  {size_bytes / median:9.0f} MB/s\n"
    )


def _rounds(one: Callable[[], None], count: int) -> list[float]:
    times = []
    for number in range(ROUNDS + 1):
        begin = time.thread_time_ns()
        for _ in range(count):
            one()
        if number:
            times.append((time.thread_time_ns() - begin) / count / 1000)
    return times


def _append_case(log: PartitionLog, what: str, values: list[bytes], idempotent: bool) -> None:
    producer_id = 1000 + len(values) if idempotent else -1
    producer = Producer(producer_id, 0, 0) if idempotent else Producer()
    batch = build_batch([NewRecord(None, value, 1) for value in values], producer=producer)
    view = memoryview(batch)
    count = max(20, min(20_000, BYTES_PER_ROUND // len(batch) // (ROUNDS + 1)))
    sequence = 0

    def append() -> None:
        nonlocal sequence
        view[0:8] = bytes(8)
        if idempotent:
            view[53:57] = sequence.to_bytes(4, "big")
            view[17:21] = crc32c(view[21:]).to_bytes(4, "big")
            sequence += len(values)
        completion = log.plan_leader_append(view, 0, 1_700_000_000_000)
        log.submit_planned()
        completion.result()

    _report(f"append {what}", len(batch), _rounds(append, count))


def _plan_case(log: PartitionLog, value_bytes: int) -> None:
    """Planning alone: the appends are written outside of the measured time."""
    batch = build_batch([NewRecord(None, bytes(value_bytes), 1)])
    view = memoryview(batch)
    times = []
    for number in range(ROUNDS + 1):
        begin = time.thread_time_ns()
        for _ in range(200):
            view[0:8] = bytes(8)
            log.plan_leader_append(view, 0, 1_700_000_000_000)
        if number:
            times.append((time.thread_time_ns() - begin) / 200 / 1000)
        log.submit_planned()
    _report("plan only", len(batch), times)


def _bare_case(directory: str, size_bytes: int) -> None:
    """What the system and the checksum take for the same bytes."""
    data = memoryview(os.urandom(size_bytes))
    descriptor = os.open(f"{directory}/bare", os.O_RDWR | os.O_CREAT)
    position = 0

    def write() -> None:
        nonlocal position
        position += os.pwritev(descriptor, [data], position)

    count = max(20, min(20_000, BYTES_PER_ROUND // size_bytes // (ROUNDS + 1)))
    _report("bare pwritev", size_bytes, _rounds(write, count))
    os.close(descriptor)
    Path(f"{directory}/bare").unlink()
    _report("bare CRC-32C", size_bytes, _rounds(lambda: crc32c(data), 200))


def _read_case(log: PartitionLog, what: str, max_bytes: int) -> None:
    offset = log.log_start_offset
    total = 0

    def read() -> None:
        nonlocal offset, total
        end = log.log_end_offset
        completion = log.read(offset, max_bytes, end, min_one_batch=True)
        if not completion.done:
            raise SystemExit("the files are not in the page cache: too little memory is free")
        slice_ = completion.result()
        total += len(slice_.data)
        offset = slice_.next_offset if slice_.next_offset < end else log.log_start_offset

    times = _rounds(read, 100)
    _report(f"read {what}", total // (100 * (ROUNDS + 1)), times)


class _TimedLane(ThreadLane):
    """A lane that notes the most CPU time that each kind of operation took."""

    longest_ms: ClassVar[dict[str, float]] = {}

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        def timed(files: Files) -> T:
            begin = time.thread_time()
            try:
                return operation(files)
            finally:
                taken_ms = (time.thread_time() - begin) * 1000
                self.longest_ms[name] = max(taken_ms, self.longest_ms.get(name, 0.0))

        return super().submit(timed, work, name)


@dataclass(frozen=True)
class _Compacted:
    """One kind of log, and what compacting it took, a run after the other."""

    name: str
    codec: int
    record_bytes: int
    keys: int
    mib_per_s: list[float] = field(default_factory=list)
    mib_per_cpu_s: list[float] = field(default_factory=list)
    longest_slice_ms: list[float] = field(default_factory=list)


async def _compact(opened: LogDirectory, case: _Compacted, run: int) -> None:
    """Fill a log with records of random keys, then compact it once."""
    config = LogConfig(
        segment_bytes=16 << 20,
        compact_enabled=True,
        min_cleanable_dirty_ratio=0.0,
        file_delete_delay_ms=0,
    )
    topic = f"compact-{case.codec}-{case.record_bytes}"
    log = await opened.create(TopicPartition(topic, run), bytes([1] * 16), config)
    log.assign_epoch(0, 0)
    draw = random.Random(1)
    written = 0
    while written < COMPACTED_BYTES:
        records = [
            NewRecord(
                b"key %d" % draw.randrange(case.keys),
                draw.randbytes(case.record_bytes // 2) + bytes(case.record_bytes // 2),
                1_700_000_000_000,
            )
            for _ in range(100)
        ]
        batch = build_batch(records, codec=case.codec)
        # A row of appends without a pause is beyond the event loop's budget for checks.
        checked = await log.check_on_thread(batch)
        completion = log.plan_leader_append(batch, 0, 1_700_000_000_000, checked)
        log.submit_planned()
        written += (await completion).size_bytes
    await log.flush()
    _TimedLane.longest_ms.clear()
    cleaner = Cleaner(CleanerSettings(), opened.clock, asyncio.sleep)
    begin, cpu = time.perf_counter(), time.process_time()
    stats = await cleaner.clean_one([(log, log.log_end_offset)])
    taken_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    if stats is None:
        raise SystemExit("nothing was compacted")
    # Both passes go through the whole log: for the keys, and for what stays.
    mib = stats.bytes_read / 2 / (1 << 20)
    case.mib_per_s.append(mib / taken_s)
    case.mib_per_cpu_s.append(mib / cpu_s)
    case.longest_slice_ms.append(
        max(_TimedLane.longest_ms[kind] for kind in ("map keys", "compact"))
    )


async def _compact_all(directory: str, rounds: int) -> list[_Compacted]:
    cases = [
        _Compacted("1 KiB, 5,000 keys, not compressed", compression.NONE, 1024, 5_000),
        _Compacted("1 KiB, 5,000 keys, zstd", compression.ZSTD, 1024, 5_000),
        _Compacted("100 B, 50,000 keys, not compressed", compression.NONE, 100, 50_000),
    ]
    opened = await _open(directory)
    for run in range(rounds):
        for case in cases:
            await _compact(opened, case, run)
    return cases


def compactions(rounds: int) -> list[str]:
    """The table of compaction."""
    with tempfile.TemporaryDirectory(prefix="bench-log-") as directory:
        cases = asyncio.run(_compact_all(directory, rounds))
    rows = [
        (
            case.name,
            spread(case.mib_per_s),
            spread(case.mib_per_cpu_s),
            spread(case.longest_slice_ms, 1),
        )
        for case in cases
    ]
    return [
        table(
            f"Compaction of {COMPACTED_BYTES >> 20} MiB ({rounds} runs)",
            rows,
            ("Records", "MiB/s", "MiB/s of CPU", "longest slice, CPU ms"),
        )
    ]


async def _open(directory: str) -> LogDirectory:
    # A busy machine may stop us for longer than a slow disk would: stay on the loop.
    lanes.SLOW_CALL_NS = 1 << 60
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    return await LogDirectory.open(
        _TimedLane(directory, loop, clock),
        cluster_id="bench",
        broker_id=1,
        clock=clock,
        tracer=_Silent(),
        default_config=_CONFIG,
        config_of=lambda _: _CONFIG,
    )


async def _run(directory: str) -> None:
    opened = await _open(directory)
    cases: list[tuple[str, list[bytes], bool]] = [
        ("1 record of 1 KiB", [bytes(1024)], False),
        ("1 record of 1 KiB, idempotent", [bytes(1024)], True),
        ("16 records of 1 KiB", [bytes(1024)] * 16, False),
        ("1,000 records of 1 KiB", [bytes(1024)] * 1000, False),
    ]
    logs = []
    for number, (what, values, idempotent) in enumerate(cases):
        log = await opened.create(TopicPartition("bench", number), bytes([1] * 16), _CONFIG)
        log.assign_epoch(0, 0)
        logs.append(log)
        _append_case(log, what, values, idempotent)
    log = await opened.create(TopicPartition("plan", 0), bytes([1] * 16), _CONFIG)
    _plan_case(log, 1024)
    _plan_case(log, 1 << 20)
    for size_bytes in (1100, 16_900, 1_030_000):
        _bare_case(directory, size_bytes)
    for log, (what, _, _) in zip(logs, cases, strict=True):
        _read_case(log, f"1 MiB of {what}", 1 << 20)
    _read_case(logs[0], "16 KiB of 1 record of 1 KiB", 16 << 10)


def main() -> None:
    """Run all cases in a directory of their own, removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", default=None, help="where to write; default: a new one")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="bench-log-", dir=options.directory)
    try:
        asyncio.run(_run(directory))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
