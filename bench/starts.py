"""How soon the brokers of a test's cluster take records: first, later and restarted ones.

The test kit's clusters (`tidelog.testing`), up to an acknowledged record on all replicas. A restart
is a SIGKILL, whose end is not counted, and a start up to the broker's answer. CPU times are of the
brokers' processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from bench.rig import spread, table
from tidelog.testing import Cluster

_BROKERS = 3
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Positions in /proc/<pid>/stat, counted from the state, of the time as user and as system.
_USER, _SYSTEM = 11, 12
#: A program whose first cluster is the first of its process.
_FIRST = "import sys; from bench.starts import first; first(sys.argv[1])"


def run(rounds: int) -> list[str]:
    """Return the table."""
    firsts, laters, restarts, cpu = [], [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            words = [sys.executable, "-c", _FIRST, directory]
            told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            figures = list(map(float, told.split()))
            firsts.append(figures[0])
            laters.append(figures[1])
            restarts.append(figures[2])
            cpu += figures[3:]
    rows = [
        ("first cluster of a program takes records, s", spread(firsts, 2)),
        ("next cluster takes records, s", spread(laters, 2)),
        ("start of a killed broker to its answer, s", spread(restarts, 2)),
        ("CPU of a broker of the next cluster until then, s", spread(cpu, 2)),
    ]
    return [table(f"Starts of {_BROKERS} brokers for a test", rows, ("of", "tidelog"))]


def first(directory: str) -> None:
    """Print the figures of one program."""
    took = []
    for name in ("first", "next"):
        begun = time.perf_counter()
        with Cluster(f"{directory}/{name}", _BROKERS) as cluster:
            took.append(time.perf_counter() - begun)
            spent = [_cpu_s(cluster, broker) for broker in cluster.brokers]
            cluster.local.kill(1)
            begun = time.perf_counter()
            cluster.local.start(1)
            restarted = time.perf_counter() - begun
    print(*took, restarted, *spent)


def _cpu_s(cluster: Cluster, broker: int) -> float:
    process = cluster.local.process(broker)
    assert process is not None
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_S
