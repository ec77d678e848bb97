"""The sink through kills in mid-write: driver, executors, a leader; nothing lost or doubled.

A fault holds a write at a chosen request, so that the kill always finds it half done: the request
took effect and its response is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark import sink_program
from tests.spark.killing import kill_executors, kill_program

from tidelog.testing import Cluster, Fault

_ROOT = Path(__file__).resolve().parents[2]
_FILES = 3
_LINES = 15_000
_LIMIT_S = 240
_SOAK_ROUNDS = 20


@contextmanager
def program(cluster: Cluster, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process group of its own, which ends with the block."""
    running = subprocess.Popen(
        [sys.executable, "-m", sink_program.__name__, cluster.bootstrap, str(scratch)],
        cwd=_ROOT,
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
    """Kill all processes of the program and close its pipes."""
    kill_program(running)
    for pipe in (running.stdin, running.stdout):
        assert pipe is not None
        pipe.close()


def held(cluster: Cluster, client_id: str, nth: int) -> Fault:
    """Lose the response of a client's nth Produce request at some broker, and all behind it."""
    requests = cluster.on_request("Produce").where(client_id=client_id)
    return requests.nth(nth).after().drop()


def play(cluster: Cluster, scratch: Path) -> None:
    """One round: a stream whose driver dies, then a batch whose executors and leader die."""
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
            assert kill_executors(second) > 0
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
