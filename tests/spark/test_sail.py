"""The source, the sink and the pipelines on Sail, a Spark Connect server without Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark import sail_program
from tests.support.client.fake_leaders import FakeLeaders
from tests.support.client.fake_logs import FakeLogs
from tests.support.clients.absent import Absent
from tests.support.clients.python_packages import packages
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition

_ROOT = Path(__file__).resolve().parents[2]
_RECORDS = 40
_LIMIT_S = 120
_AT = 1_700_000_000_000
Found = dict[str, Any]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """What the program found, and the records that it wrote."""
    try:
        sail = packages("sail")
    except Absent as absent:
        pytest.skip(f"Sail: {absent}")
    scratch = tmp_path_factory.mktemp("sail")
    logs, leaders = FakeLogs(), FakeLeaders(1)
    logs.create("t", 2)
    for partition in range(2):
        rows = [
            Row(b"k", b"%d-%d" % (partition, n), _AT + n, [("h", b"%d" % n), ("g", None)])
            for n in range(_RECORDS)
        ]
        logs.append(TopicPartition("t", partition), batch(rows[:20]), batch(rows[20:], 20))
    leaders.create("written", [1, 1, 1])
    words = [sys.executable, "-m", sail_program.__name__, logs.bootstrap, leaders.bootstrap]
    ended = subprocess.run(
        [*words, str(scratch)],
        cwd=_ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(sail), str(_installed(scratch))]),
            "RUST_LOG": "error",
            "TZ": "Asia/Tokyo",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    read: Found = json.loads((scratch / "found.json").read_text(encoding="utf-8"))
    written = [record for number in range(3) for record in leaders.records("written", number)]
    yield {**read, "written": sorted((each.value or b"").decode() for each in written)}
    leaders.close()
    logs.close()


def _installed(scratch: Path) -> Path:
    """A folder with the project's entry points, as an installation writes them."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = scratch / "installed"
    (folder / "tidelog-0.dist-info").mkdir(parents=True)
    for name, text in {
        "METADATA": "Metadata-Version: 2.1\nName: tidelog\nVersion: 0\n",
        "entry_points.txt": "".join(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
            for group, points in project["entry-points"].items()
        ),
    }.items():
        (folder / "tidelog-0.dist-info" / name).write_text(text, encoding="utf-8")
    return folder


def test_the_format_is_found_and_read_with_all_columns(found: Found) -> None:
    types, rows = found["read"]
    assert types == [
        *("binary", "binary", "string", "int", "bigint", "timestamp", "int"),
        "array<struct<key:string,value:binary>>",
    ]
    assert rows == [
        ["k", value, "t", int(value[2:]), _AT + int(value[2:]), 0, "h", value[2:]]
        for value in sorted(f"1-{n}" for n in range(3, _RECORDS))
    ]
    assert found["pushdown"] == 4
    assert found["columns"] == _RECORDS


def test_the_batch_write_stores_each_row_once(found: Found) -> None:
    assert found["write"] is None
    assert found["written"] == sorted(f"v{n}" for n in range(sail_program.ROWS))


def test_a_topic_lands_and_is_proved_merged_and_read(found: Found) -> None:
    lengths = sum(len(f"0-{n}") for n in range(_RECORDS)) * 2
    assert found["ingest"] == [2, True, 4, 2, True, True, 80, 40, 80, lengths]


def test_an_ingest_after_the_servers_death_lands_all(found: Found) -> None:
    assert found["killed_server"] == ["pyspark", True, 2 * _RECORDS]


def test_avro_records_are_columns(found: Found) -> None:
    first, second = found["avro"]
    assert "a record is not of its Avro schema" in first
    assert "a record is not of its Avro schema" in second


@pytest.mark.parametrize(
    "part, sentence",
    [
        ("wrong_option", "OptionError: option nope is not known to format tidelog"),
        ("unknown_topic", "topic 'nope'"),
        ("marked_write", "SinkError: option tidelog.batch.headers needs the numbers of tasks"),
        ("stream", "SinkError: option checkpointLocation: Sail would run this stream as one batch"),
        ("stream_to_files", "streaming query must write data to a sink"),
        ("json", "from_json of this engine does not report bad records"),
        ("json_ingest", "from_json of this engine does not report bad records"),
    ],
)
def test_limits_and_errors_are_sentences(found: Found, part: str, sentence: str) -> None:
    shown = found[part]["error"]
    assert sentence in shown
    assert "Traceback" not in shown or part == "json_ingest", shown
