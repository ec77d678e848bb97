"""Deaths during an ingest: of the driver at its steps, of a worker, and an end by Ctrl-C."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.spark import dying_ingest
from tests.spark.killing import run_until_killed
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.ingest import ingest, prove_table, read_landed
from tidelog.spark.pipelines.landing import TasksFailedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = TopicPartition("t", 0)
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def numbers(first: int, count: int) -> bytes:
    return batch([Row(b"k", str(n).encode()) for n in range(first, first + count)], first)


def values_of(spark: SparkSession, table: str) -> list[int]:
    return sorted(int(row.value) for row in read_landed(spark, table).collect())


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 1)
    logs.append(T0, numbers(0, 50))
    return logs


def kill_a_driver(
    spark: SparkSession, logs: FakeLogs, table: Path, step: str, *, is_new: bool
) -> None:
    """Ingest unless the table is to be new, let an ingest die at a step, and let another go on."""
    if not is_new:
        assert ingest(spark, logs.bootstrap, "t", str(table)).proof.rows == 50
    logs.append(T0, numbers(50, 50))
    run_until_killed(dying_ingest.__name__, logs.bootstrap, "t", str(table), step, f"{table}.log")
    ingest(spark, logs.bootstrap, "t", str(table))
    assert values_of(spark, str(table)) == list(range(100))
    proof = prove_table(spark, str(table))
    assert (proof.holds, proof.offsets.rows) == (True, 100)


def test_a_driver_killed_before_its_commit_leaves_nothing_half(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    kill_a_driver(spark, filled, tmp_path / "table", "before commit", is_new=False)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("step", "is_new"),
    [
        (step, is_new)
        for step in dying_ingest.STEPS
        for is_new in (True, False)
        if is_new or "create" not in step
    ],
)
def test_a_driver_killed_at_any_step(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, step: str, is_new: bool
) -> None:
    kill_a_driver(spark, filled, tmp_path / "table", step, is_new=is_new)


@pytest.mark.soak
@pytest.mark.parametrize("step", dying_ingest.COLUMN_STEPS)
def test_a_driver_killed_at_the_commit_of_new_columns(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, step: str
) -> None:
    table = str(tmp_path / "table")
    kill_a_driver(spark, filled, Path(table), step, is_new=False)
    filled.append(T0, numbers(100, 50))
    ingest(spark, filled.bootstrap, "t", table, transform=dying_ingest.with_column)
    rows = read_landed(spark, table).where("extra = offset + 1").count()
    assert (rows, prove_table(spark, table).offsets.rows) == (50, 150)


def kill_a_worker(spark: SparkSession, logs: FakeLogs, table: Path, row: int) -> None:
    """Let the worker that sees a row die, once; then ingest again."""
    mark = str(table.with_name("died"))

    def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            if row in each.column("offset").to_pylist() and not os.path.exists(mark):
                os.close(os.open(mark, os.O_CREAT))
                os.kill(os.getpid(), signal.SIGKILL)
            yield each

    def transform(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(deadly, frame.schema)

    with pytest.raises(TasksFailedError, match="tasks failed: Python worker exited"):
        ingest(spark, logs.bootstrap, "t", str(table), transform=transform)
    assert list(table.rglob("*.parquet")) == []
    report = ingest(spark, logs.bootstrap, "t", str(table), transform=transform)
    assert (report.version, report.proof.rows) == (1, 50)
    assert values_of(spark, str(table)) == list(range(50))


def test_a_killed_worker_leaves_nothing_and_a_rerun_takes_all(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    kill_a_worker(spark, filled, tmp_path / "table", row=17)


@pytest.mark.soak
@pytest.mark.parametrize("run", range(20))
def test_a_worker_killed_at_any_row(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, run: int
) -> None:
    kill_a_worker(spark, filled, tmp_path / "table", row=random.Random(run).randrange(50))


def test_a_follower_ends_after_its_batch_when_it_is_interrupted(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    table, page = tmp_path / "table", tmp_path / "page.html"
    words = ["pipeline", "ingest", "--bootstrap-server", filled.bootstrap, "--topic", "t"]
    words += ["--to", str(table), "--follow", "--interval", "0.1", "--html", str(page)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words],
        env={**os.environ, "JAVA_TOOL_OPTIONS": _QUICK_JAVA},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("version 1:"):
            filled.append(T0, numbers(50, 50))
        if line.startswith("version 2:"):
            process.send_signal(signal.SIGINT)
    assert process.wait() == 0, "".join(lines)
    assert "ending after this batch\n" in lines
    assert lines[-1].startswith("100 records in 2 files, 0 lost, 0 doubled")
    assert values_of(spark, str(table)) == list(range(100))
    assert "<svg" in page.read_text() or "data:image" in page.read_text()
