"""The layout of landed tables: columns that grow, partition columns, and bounded files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars
import pytest
from deltalake import DeltaTable
from examples.demo.proving import duckdb_with_delta
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.state import TableError
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.ingest import IngestReport, ingest, prove_table, read_landed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def more(logs: FakeLogs, first: int, count: int, tp: TopicPartition = T0) -> None:
    rows = [Row(b"k", b"%d" % n, 1_000 * n) for n in range(first, first + count)]
    logs.append(tp, batch(rows, first))


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    more(logs, 0, 10)
    return logs


def columns(*texts: str) -> Callable[[DataFrame], DataFrame]:
    def transform(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("topic", "partition", "offset", *texts)

    return transform


class TestEvolution:
    def landed(self, spark: SparkSession, logs: FakeLogs, to: str, *texts: str) -> IngestReport:
        return ingest(spark, logs.bootstrap, "t", to, transform=columns(*texts))

    def test_readers_see_null_where_a_run_lacks_a_column(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        self.landed(spark, filled, to, "offset as n")
        more(filled, 10, 10)
        report = self.landed(spark, filled, to, "offset as n", "'x' as m")
        assert (report.new_columns, report.version) == (("m",), 3)
        more(filled, 20, 10)
        assert self.landed(spark, filled, to, "'y' as m").new_columns == ()

        def holds() -> None:
            rows = sorted((row.offset, row.n, row.m) for row in read_landed(spark, to).collect())
            assert rows == [
                (n, n if n < 20 else None, (None, "x", "y")[n // 10]) for n in range(30)
            ]
            names = ["offset", "n", "m"]
            frame = DeltaTable(to).to_pandas()[names].astype(object)
            read = frame.where(frame.notna(), None).itertuples(index=False, name=None)
            assert sorted(read) == rows
            assert sorted(polars.scan_delta(to).select(names).collect().iter_rows()) == rows
            with duckdb_with_delta() as connection:
                query = 'select "offset", n, m from delta_scan(?) order by 1'
                assert connection.execute(query, [to]).fetchall() == rows
            proof = prove_table(spark, to)
            assert (proof.holds, proof.offsets.rows) == (True, 30)

        holds()
        assert len(compact(spark, to).after) == 1
        holds()

    def test_a_changed_type_is_refused_with_both_types(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        self.landed(spark, filled, to, "offset as n")
        more(filled, 10, 10)
        for text, reason in (
            ("string(offset) as n", "column 'n' is long in the table and string in this run"),
            ("offset as N", "'N' of this run is 'n' in the table; rename it"),
        ):
            with pytest.raises(TableError, match=reason):
                self.landed(spark, filled, to, text)
        assert DeltaLake(to).newest() == 1
        assert self.landed(spark, filled, to, "offset as n").proof.rows == 10
