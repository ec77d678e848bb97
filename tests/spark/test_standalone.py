"""A standalone cluster of two workers whose Python has no tidelog: shipped code, and none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.spark import standalone_program
from tests.spark.standalone import Standalone, standalone, zipped_code
from tests.support.client.fake_leaders import FakeLeaders
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.core.types import TopicPartition

_PROGRAM = str(Path(standalone_program.__file__))
_PARTITIONS = 2
_BATCHES = 3
_RECORDS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def leaders() -> Iterator[FakeLeaders]:
    fake = FakeLeaders(1)
    fake.create("written", [1, 1, 1])
    yield fake
    fake.close()


def expected() -> list[list[Any]]:
    """The rows of the topic `read`."""
    return [
        [partition, offset, f"{partition}-{offset}"]
        for partition in range(_PARTITIONS)
        for offset in range(_BATCHES * _RECORDS)
    ]


def fill(logs: FakeLogs) -> None:
    logs.create("read", _PARTITIONS)
    for partition in range(_PARTITIONS):
        for start in range(0, _BATCHES * _RECORDS, _RECORDS):
            values = [b"%d-%d" % (partition, start + number) for number in range(_RECORDS)]
            logs.append(TopicPartition("read", partition), batch(start, *values))


def run(
    cluster: Standalone,
    logs: FakeLogs,
    leaders: FakeLeaders,
    scratch: Path,
    *parts: str,
    words: Sequence[str] = (),
    path: str = "",
) -> dict[str, Any]:
    """What the program found, with `path` as the driver's PYTHONPATH."""
    fill(logs)
    to = (logs.bootstrap, leaders.bootstrap, str(scratch), *parts)
    ran = cluster.submit(*words, _PROGRAM, *to, PYTHONPATH=path)
    assert ran.returncode == 0, ran.stdout
    found: dict[str, Any] = json.loads((scratch / "found.json").read_text(encoding="utf-8"))
    return found


def test_shipped_code_reads_streams_writes_and_runs_functions(
    cluster: Standalone, logs: FakeLogs, leaders: FakeLeaders, tmp_path: Path
) -> None:
    code = zipped_code(tmp_path / "tidelog-code.zip")
    parts = ("modules", "read", "stream", "write", "tasks", "decoded")
    found = run(
        cluster, logs, leaders, tmp_path, *parts, words=("--py-files", str(code)), path=str(code)
    )
    executors = {path for path, _ in found["modules"]}
    assert [is_compiled for _, is_compiled in found["modules"]] == [False, False]
    assert len(executors) == 2, "both executors had a task"
    for path in executors:
        assert path.startswith(str(cluster.work)) and "tidelog-code.zip/" in path
    assert found["read"] == expected()
    assert found["stream"] == expected()
    assert found["write"] is None, found["write"]
    assert (found["tasks"], found["decoded"]) == ([{"square": 4}, {"square": 9}], [0, 1])
    records = [record for number in range(3) for record in leaders.records("written", number)]
    assert sorted((int(each.key or b""), each.value) for each in records) == [
        (number, b"v%d" % number) for number in range(standalone_program.ROWS)
    ]


@pytest.mark.soak
def test_executors_without_the_package_say_what_to_ship(
    cluster: Standalone, logs: FakeLogs, leaders: FakeLeaders, tmp_path: Path
) -> None:
    code = zipped_code(tmp_path / "tidelog-code.zip")
    parts = ("read", "stream", "write", "tasks", "decoded")
    found = run(cluster, logs, leaders, tmp_path, *parts, path=str(code))
    for part in parts:
        message = found[part]["error"]
        assert f"the executor's Python {cluster.python} has no package tidelog" in message
        assert "spark.submit.pyFiles" in message
        assert "Traceback" not in message and 'File "' not in message, message
    assert not any(leaders.records("written", number) for number in range(3))
