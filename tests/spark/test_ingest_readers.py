"""Landed tables as other readers see them: after batches, a compaction and dead runs' files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest
from deltalake import DeltaTable
from examples.demo.proving import duckdb_with_delta
from tests.spark import delta_jar_program
from tests.support.client.fake_logs import FakeLogs
from tests.support.clients.absent import Absent
from tests.support.clients.jars import jars_of_delta, pyspark
from tests.support.reader_versions import DELTA_JAR, SPARK_OF_DELTA_JAR
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.spark.lake.state import TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.ingest import ingest, read_landed
from tidelog.spark.pipelines.parsing import json_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = TopicPartition("t", 0)
ROWS = 90


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three batches, of which the first two are merged; version 2 has the first two."""
    place = tmp_path_factory.mktemp("landed") / "table"
    logs = FakeLogs()
    logs.create("t", 1)
    for number in range(3):
        first = 30 * number
        rows = [Row(b"k", b'{"n": %d}' % n, 1_000 * n) for n in range(first, first + 30)]
        logs.append(T0, batch(rows, first))
        ingest(spark, logs.bootstrap, "t", str(place), transform=json_columns(spark, "n long"))
        if number == 1:
            compact(spark, str(place))
    (place / "run-9-0123456789abcdef").mkdir()
    (place / "run-9-0123456789abcdef" / "t-0-dead.parquet").write_bytes(b"no parquet")
    logs.close()
    yield str(place)


def test_deltalake_pandas_and_arrow(table: str) -> None:
    frame = DeltaTable(table).to_pandas().sort_values("offset")
    assert list(frame["n"]) == list(range(ROWS))
    assert frame["timestamp"].iloc[-1].timestamp() == ROWS - 1
    assert DeltaTable(table, version=2).to_pyarrow_table().num_rows == 60


def test_polars(table: str) -> None:
    frame = polars.scan_delta(table).filter(polars.col("offset") >= 45).collect()
    assert sorted(frame["n"].to_list()) == list(range(45, ROWS))


def test_duckdb(table: str) -> None:
    with duckdb_with_delta() as connection:
        query = "select count(*), count(distinct n), sum(n), max(timestamp) from delta_scan(?)"
        row = connection.execute(query, [table]).fetchone()
    assert row is not None
    assert row[:3] == (ROWS, ROWS, sum(range(ROWS)))
    assert row[3].timestamp() == ROWS - 1


def test_spark_without_a_jar(spark: SparkSession, table: str) -> None:
    frame = read_landed(spark, table)
    assert sorted(row.n for row in frame.collect()) == list(range(ROWS))
    assert frame.where("offset >= 45").count() == 45
    for version, rows in ((0, 0), (1, 30), (2, 60), (3, 60), (4, 90)):
        assert read_landed(spark, table, version=version).count() == rows
    with pytest.raises(TableError, match="cannot be read at version 5"):
        read_landed(spark, table, version=5)


@pytest.mark.soak
def test_spark_with_deltas_jar(table: str) -> None:
    """No version of Delta's jar fits the newest Spark: the versions of the guide's table do."""
    try:
        jars, older = jars_of_delta(DELTA_JAR), pyspark(SPARK_OF_DELTA_JAR)
    except Absent as absent:
        pytest.skip(str(absent))
    paths = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    ended = subprocess.run(
        [sys.executable, delta_jar_program.__file__, paths, table],
        env={**os.environ, "PYTHONPATH": str(older), "SPARK_HOME": str(older / "pyspark")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {
        "numbers": list(range(ROWS)),
        "skipped": 45,
        "earlier": 60,
        "versions": 5,
    }


def test_time_travel_by_time_and_by_offset(spark: SparkSession, table: str) -> None:
    def rows(**state: Any) -> int:
        return read_landed(spark, table, **state).count()

    history = {each["version"]: each["timestamp"] for each in DeltaTable(table).history()}
    for version, count in ((1, 30), (2, 60), (4, 90)):
        assert rows(timestamp=datetime.fromtimestamp(history[version] / 1000, UTC)) == count
    assert [rows(offset=f"0:{offset}") for offset in (0, 1, 30, 31, 60, 61, 90)] == [
        30,
        30,
        30,
        60,
        60,
        90,
        90,
    ]
    with pytest.raises(TableError, match="has offsets below 90 of partition 0, not .* below 91"):
        rows(offset="0:91")
    with pytest.raises(TableError, match="has nothing of partition 5"):
        rows(offset="5:1")
    with pytest.raises(TableError, match="no version of that time"):
        rows(timestamp=datetime(2001, 1, 1, tzinfo=UTC))
    with pytest.raises(OptionError, match="offset is '7'; expected PARTITION:OFFSET"):
        rows(offset="7")
    with pytest.raises(OptionError, match="exclude each other"):
        rows(offset="0:1", version=1)


def test_tables_of_other_tools_are_read(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = pa.table({"a": [1, 2], "b": [3, 4]})
    write_deltalake(str(tmp_path / "split"), rows, partition_by=["a"])
    split = read_landed(spark, str(tmp_path / "split"))
    assert sorted(map(tuple, split.collect())) == [(1, 3), (2, 4)]
    write_deltalake(str(tmp_path / "plain"), rows)
    assert read_landed(spark, str(tmp_path / "plain")).count() == 2
    with pytest.raises(TableError, match=f"{tmp_path}/none is no Delta table"):
        read_landed(spark, str(tmp_path / "none"))
