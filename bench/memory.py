"""Memory of three brokers: started, after records went in and out twice, and after a rest.

The second reader finds no record in the page cache: brokers read all of them from the disk.

PSS is the sum over the brokers, as the kernel counts it. Anonymous memory is split by where the
allocator took it from: the heap, arenas of threads (64 MiB of address space each), other mappings.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.rig import CONSUMER_OPTIONS, MIB, PRODUCER_OPTIONS, Driver, pss_bytes, table
from bench.systems import Running, System, started
from tidelog.runtime.blocking import BlockingClient

PARTITIONS = 6
RECORD_BYTES = 1024
#: Produced and consumed one after the other: a run of the client is bounded in time.
CHUNKS = 10
#: Brokers at rest are measured at these times after the last record.
RESTS_S = (10, 30, 60)
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ *(.*)")
_ARENA_BYTES = 64 * MIB


@dataclass(frozen=True)
class Memory:
    """Bytes in memory of some processes."""

    pss: int
    heap: int
    arenas: int
    mapped: int

    @classmethod
    def of(cls, pids: list[int]) -> Memory:
        """What the kernel counts now."""
        found = {"heap": 0, "arenas": 0, "mapped": 0}
        for pid in pids:
            _add_anonymous(pid, found)
        return cls(pss_bytes(pids), **found)

    def cells(self) -> tuple[str, ...]:
        """In MiB."""
        parts = (self.pss, self.heap, self.arenas, self.mapped)
        return tuple(f"{part / MIB:,.0f}" for part in parts)


def _add_anonymous(pid: int, found: dict[str, int]) -> None:
    kind, is_file = "mapped", False
    end = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = _MAPPING.fullmatch(line)
        if mapping is not None:
            begin, name = int(mapping[1], 16), mapping[3]
            is_file = name != "" and not name.startswith("[heap")
            follows_arena = kind == "arenas" and begin == end
            end = int(mapping[2], 16)
            # An arena begins at a multiple of its size; its unused rest is a mapping of its own.
            is_arena = name == "" and (begin % _ARENA_BYTES == 0 or follows_arena)
            kind = "heap" if name else "arenas" if is_arena else "mapped"
        elif line.startswith("Anonymous:") and not is_file:
            found[kind] += int(line.split()[1]) * 1024


def run(systems: Sequence[System], chunk_bytes: int) -> list[str]:
    """The table of memory, of `CHUNKS` times `chunk_bytes` with three replicas."""
    lines: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as work, started(systems) as running:
        driver = Driver(work)
        for one in running:
            lines += [(one.name, *line) for line in _measure(driver, one, chunk_bytes)]
    size = CHUNKS * chunk_bytes // MIB
    return [
        table(
            f"Memory of three brokers, MiB ({size:,} MiB produced with RF 3, acks=all, consumed "
            "from the page cache, then from the disk)",
            lines,
            ("", "when", "sum of PSS", "heaps", "arenas of threads", "other mappings"),
        )
    ]


def _measure(driver: Driver, running: Running, chunk_bytes: int) -> list[tuple[str, ...]]:
    lines = [("started", *Memory.of(running.pids()).cells())]
    topics = [f"t{number}" for number in range(CHUNKS)]
    with BlockingClient(running.bootstrap) as client:
        for topic in topics:
            client.create_topic(topic, PARTITIONS, 3)
            client.await_topic(topic, min_isr=3)
            arguments = (topic, PARTITIONS, RECORD_BYTES, chunk_bytes, -1)
            driver.run("produce", running.bootstrap, *arguments, options=PRODUCER_OPTIONS)
    lines.append(("produced", *Memory.of(running.pids()).cells()))
    for where in ("page cache", "disk"):
        for topic in topics:
            if where == "disk":
                _forget_pages(running.pids(), topic)
            arguments = (topic, PARTITIONS, chunk_bytes)
            driver.run("consume", running.bootstrap, *arguments, options=CONSUMER_OPTIONS)
        lines.append((f"consumed from the {where}", *Memory.of(running.pids()).cells()))
    done = time.monotonic()
    for rest_s in RESTS_S:
        time.sleep(max(0.0, done + rest_s - time.monotonic()))
        lines.append((f"{rest_s} s later", *Memory.of(running.pids()).cells()))
    return lines


def _forget_pages(pids: list[int], topic: str) -> None:
    """Take the segments of a topic out of the page cache."""
    for pid in pids:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            path = ""
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if not path.endswith(".log") or f"/{topic}-" not in path:
                continue
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
