"""The source, the sink and an ingest through a Spark Connect server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.spark import connect_program
from tests.support.client.fake_leaders import FakeLeaders
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.core.types import TopicPartition

_ROOT = Path(__file__).resolve().parents[2]
_RECORDS = 40
_LIMIT_S = 240
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def rows(first: int) -> list[list[object]]:
    """The rows of the topic from an offset on."""
    return [
        [partition, offset, f"{partition}-{offset}"]
        for partition in range(2)
        for offset in range(first, _RECORDS)
    ]


def test_everything_works_through_a_connect_server(logs: FakeLogs, tmp_path: Path) -> None:
    logs.create("t", 2)
    for partition in range(2):
        values = [b"%d-%d" % (partition, number) for number in range(_RECORDS)]
        logs.append(TopicPartition("t", partition), batch(0, *values))
    leaders = FakeLeaders(1)
    leaders.create("written", [1, 1, 1])
    words = [sys.executable, "-m", connect_program.__name__, logs.bootstrap, leaders.bootstrap]
    running = subprocess.Popen(
        [*words, str(tmp_path)],
        cwd=_ROOT,
        env={**os.environ, "JAVA_TOOL_OPTIONS": _QUICK_JAVA},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = running.communicate(timeout=_LIMIT_S)
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # the server ends with its client, or here
    assert running.returncode == 0, out
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["read"] == rows(10)
    assert "option nope is not known to format tidelog" in found["wrong_option"]["error"]
    assert (found["write"], found["write_stream"]) == (None, None)
    assert found["stream"] == rows(0)
    assert found["ingest"] == [True, 2 * _RECORDS, 2 * _RECORDS]
    stored = [record for number in range(3) for record in leaders.records("written", number)]
    leaders.close()
    expected = [f"v{number}" for number in range(connect_program.ROWS)]
    expected += [str(text) for _, _, text in rows(0)]
    assert sorted((each.value or b"").decode() for each in stored) == sorted(expected)
