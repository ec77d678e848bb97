"""What every cluster measurement needs: a client driver, CPU and memory of processes, tables.

The client is librdkafka through `driver.c`, compiled once per run; the library is the one inside
the confluent-kafka wheel. Figures are per variant a list of runs, interleaved by the caller.
"""

from __future__ import annotations

import glob
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

MIB = 1024 * 1024
#: Writing into the page cache is this quick once its pages are warm, even on a busy machine.
_WARM_MIB_PER_S = 3000
_MAX_WARM_UPS = 8
#: What the client may queue, beside the records themselves.
CLIENT_BYTES = 256 * MIB

#: Beyond librdkafka's defaults, the same for every broker that is compared.
PRODUCER_OPTIONS = {
    "linger.ms": "5",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1048576",
}
CONSUMER_OPTIONS = {
    "fetch.message.max.bytes": "1048576",
    "fetch.max.bytes": "52428800",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "262144",
}
LATENCY_OPTIONS = {"linger.ms": "0"}


class Driver:
    """The compiled client, and the scratch directory that it lies in."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._binary = str(Path(directory) / "driver")
        source = Path(__file__).with_name("driver.c")
        subprocess.run(["cc", "-O2", "-o", self._binary, str(source), "-ldl"], check=True)
        libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
        found = glob.glob(str(libraries / "librdkafka*.so*"))
        if len(found) != 1:
            sys.exit(f"bench: one librdkafka expected in {libraries}, found {found}")
        self._library = found[0]

    def run(self, *arguments: object, options: Mapping[str, str]) -> dict[str, float]:
        """One run; exits loudly when it fails."""
        command = [self._binary, self._library, *map(str, arguments)]
        command += [f"{key}={value}" for key, value in options.items()]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        if done.returncode:
            sys.exit(f"bench: {' '.join(command[2:6])} failed: {done.stderr.strip()[-400:]}")
        result: dict[str, float] = json.loads(done.stdout)
        return result


def cpu_seconds(pids: list[int]) -> float:
    """Time on a processor of the processes' live threads so far, as the scheduler counts it.

    The kernel's ticks of 10 ms are too coarse: one is 40 µs per MiB of a run of 256 MiB.
    """
    total_ns = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def pss_bytes(pids: list[int]) -> int:
    """Proportional set size of the processes."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def warm_pages(directory: str, size_bytes: int) -> None:
    """Make the page cache warm for a run that writes as much below `directory`.

    A virtual machine gives idle memory back to its host, and the first write to such a page costs
    15 times what later ones do. So a file of that size is written and removed until that is quick,
    or no longer gets quicker; its pages are the next to be used.
    """
    path = Path(directory) / "warm-up"
    block = bytes(MIB)
    best = 0.0
    for _ in range(_MAX_WARM_UPS):
        begin = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(0, size_bytes, MIB):
                file.write(block)
        speed = size_bytes / MIB / (time.perf_counter() - begin)
        path.unlink()
        if speed >= _WARM_MIB_PER_S or speed < best:
            return
        best = speed


def spread(values: list[float], digits: int = 0) -> str:
    """`median (smallest-largest)`."""
    form = f"{{:,.{digits}f}}"
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{form.format(middle)} ({form.format(low)}-{form.format(high)})"


def table(title: str, rows: list[tuple[Any, ...]], head: tuple[str, ...]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
