"""The sink through kills in mid-write: driver, Python workers, a leader; nothing lost or doubled.

A fault holds a write at a chosen request, so that the kill always finds it half done: the request
took effect and its response is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark import sink_program

from tidelog.testing import Cluster, Fault

_PROGRAM = Path(__file__).parent / "sink_program.py"
_FILES = 3
_LINES = 15_000
_LIMIT_S = 240
_SOAK_ROUNDS = 20


@contextmanager
def program(cluster: Cluster, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process group of its own, which ends with the block."""
    running = subprocess.Popen(
        [sys.executable, str(_PROGRAM), cluster.bootstrap, str(scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        kill_all(running)


def kill_all(running: subprocess.Popen[str]) -> None:
    """Kill the driver, Java and the workers at once."""
    family = [running.pid, *descendants(running.pid)]
    for pid in family:
        kill(pid)
    running.wait(_LIMIT_S)
    for pipe in (running.stdin, running.stdout):
        assert pipe is not None
        pipe.close()


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """The processes below a process, parents first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    for each in children.get(pid, []):
        found += [each, *descendants(each)]
    return found


def kill_workers(running: subprocess.Popen[str]) -> int:
    """Kill the forked workers of Spark's Python daemons; the daemons stay."""
    daemons = [pid for pid in descendants(running.pid) if is_daemon(pid)]
    workers = [pid for daemon in daemons for pid in descendants(daemon)]
    for pid in workers:
        kill(pid)
    return len(workers)


def is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def held(cluster: Cluster, client_id: str, nth: int) -> Fault:
    """Lose the response of a client's nth Produce request at some broker, and all behind it."""
    requests = cluster.on_request("Produce").where(client_id=client_id)
    return requests.nth(nth).after().drop()


def play(cluster: Cluster, scratch: Path) -> None:
    """One round: a stream whose driver dies, then a batch whose workers and leader die."""
    for topic in ("streamed", "written"):
        cluster.create_topic(topic, 3, 3)
    (scratch / "in").mkdir(parents=True)
    for number in range(_FILES):
        lines = range(number * _LINES, (number + 1) * _LINES)
        text = "".join(f"{line}\n" for line in lines)
        (scratch / "in" / f"{number}.txt").write_text(text, encoding="utf-8")

    with program(cluster, scratch) as first, held(cluster, "stream", 40) as fault:
        fault.wait(timeout=_LIMIT_S)
        kill_all(first)
    with program(cluster, scratch) as second:
        assert second.stdout is not None and second.stdin is not None
        assert second.stdout.readline() == "stream done\n"
        with held(cluster, "batch", 30) as fault:
            second.stdin.write("go on\n")
            second.stdin.flush()
            fault.wait(timeout=_LIMIT_S)
            assert kill_workers(second) > 0
        with held(cluster, "batch", 30) as fault:
            fault.wait(timeout=_LIMIT_S)
            leader = cluster.leader("written")
            cluster.kill(leader)
        assert second.wait(_LIMIT_S) == 0
        cluster.start(leader)
    found = json.loads((scratch / "found.json").read_text(encoding="utf-8"))
    for topic, rows in (("streamed", _FILES * _LINES), ("written", sink_program.ROWS)):
        assert found[topic]["stored"] > rows, "the kills came before anything was stored"
        assert (found[topic]["once"], found[topic]["keys"]) == (rows, rows), topic
        cluster.delete_topic(topic)


def test_nothing_is_lost_or_doubled_through_kills(
    tidelog_cluster_module: Cluster, tmp_path: Path
) -> None:
    play(tidelog_cluster_module, tmp_path)


@pytest.mark.soak
def test_nothing_is_lost_or_doubled_through_many_kills(
    tidelog_cluster_module: Cluster, tmp_path: Path
) -> None:
    for number in range(_SOAK_ROUNDS):
        play(tidelog_cluster_module, tmp_path / str(number))
