"""A stream whose executor, broker and driver die: its files hold every record exactly once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark import killed_stream
from tests.spark.killing import kill_executors, kill_program
from tests.spark.test_with_brokers import make_topic, produce

from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
BEFORE, AFTER = 2_000, 2_000
_LIMIT_S = 300


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[str], scratch: Path) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        assert process.poll() is None, (scratch / "stderr").read_text()[-4000:]
        assert time.monotonic() < deadline, sorted(path.name for path in scratch.iterdir())
        time.sleep(0.05)


def start(
    cluster: Cluster, topic: str, scratch: Path, records: list[int], *flags: str
) -> subprocess.Popen[str]:
    numbers = ",".join(map(str, records))
    words = [sys.executable, "-m", killed_stream.__name__, cluster.bootstrap, topic]
    words += [str(scratch), numbers, *flags]
    with open(scratch / "stderr", "a", encoding="utf-8") as errors:
        return subprocess.Popen(
            words, cwd=ROOT, stdout=errors, stderr=errors, text=True, start_new_session=True
        )


def stream_through_kills(cluster: Cluster, topic: str, scratch: Path, draws: random.Random) -> None:
    """Kill the executors, a leader and the driver, each once, and count what the files hold."""
    worker_dies = draws.randrange(100, BEFORE)
    driver_dies = BEFORE + draws.randrange(100, AFTER)
    with BlockingClient(cluster.bootstrap) as client:
        make_topic(client, topic, 3)
    produce(cluster, topic, 0, BEFORE, "none")
    process = start(cluster, topic, scratch, [worker_dies, driver_dies])
    try:
        wait_until((scratch / f"at-{worker_dies}").exists, process, scratch)
        assert kill_executors(process) > 0
        leader = cluster.leader(topic, draws.randrange(3))
        cluster.kill(leader)
        produce(cluster, topic, BEFORE, AFTER, "lz4")
        wait_until((scratch / f"at-{driver_dies}").exists, process, scratch)
    finally:
        kill_program(process)
    cluster.start(leader)
    ended = start(cluster, topic, scratch, [driver_dies], "--to-the-end")
    try:
        code = ended.wait(_LIMIT_S)
    finally:
        if ended.poll() is None:
            kill_program(ended)
    assert code == 0, (scratch / "stderr").read_text()[-4000:]
    found = json.loads((scratch / "found.json").read_text())
    assert found == list(range(BEFORE + AFTER))


def test_every_record_is_in_the_files_once(tidelog_cluster_module: Cluster, tmp_path: Path) -> None:
    stream_through_kills(tidelog_cluster_module, "killed", tmp_path, random.Random(0))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_every_record_is_in_the_files_once_twenty_times(
    tidelog_cluster_module: Cluster, tmp_path: Path, seed: int
) -> None:
    topic = f"killed-{seed}"
    stream_through_kills(tidelog_cluster_module, topic, tmp_path, random.Random(seed))
