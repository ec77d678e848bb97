"""Ingest to Parquet: reruns go on, nothing comes twice, what is not proved is not committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.core.types import TopicPartition
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.ingest import ProofError, ingest, prove_table
from tidelog.spark.pipelines.manifests import TableError
from tidelog.spark.pipelines.sequence import prove_sequence
from tidelog.spark.pipelines.table import BOOK
from tidelog.spark.planning import DataLossError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def numbered(first: int, count: int, base_offset: int) -> bytes:
    return batch([Row(b"k", str(n).encode()) for n in range(first, first + count)], base_offset)


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    logs.append(T0, numbered(0, 50, 0), numbered(50, 50, 50))
    logs.append(T1, numbered(100, 30, 0))
    return logs


def with_number(frame: DataFrame) -> DataFrame:
    return frame.withColumn("n", F.col("value").cast("string").cast("long"))


def files_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))


def test_a_rerun_takes_only_what_is_new(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = tmp_path / "table"
    first = ingest(spark, filled.bootstrap, "t", str(to))
    assert (first.proof.rows, first.manifest, len(first.files)) == (130, 1, 2)
    again = ingest(spark, filled.bootstrap, "t", str(to))
    assert (again.proof.rows, again.manifest) == (0, None)
    filled.append(T1, numbered(130, 20, 30))
    second = ingest(spark, filled.bootstrap, "t", str(to))
    assert [(f.partition, f.start, f.end) for f in second.files] == [(1, 30, 50)]
    assert second.manifest == 2
    assert sorted(f.name for f in [*first.files, *second.files]) == [
        path.name for path in files_of(to)
    ]
    frame = spark.read.parquet(str(to))
    assert frame.count() == 150
    assert prove_sequence(with_number(frame), "n", 150).holds
    proof = prove_table(spark, str(to))
    assert proof.holds
    assert proof.rows == 150


def test_markers_are_explained_and_noted(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    marker = rewritten(batch([Row()], 30), attributes=CONTROL)
    filled.append(
        T1, marker, numbered(130, 5, 31), rewritten(batch([Row()], 36), attributes=CONTROL)
    )
    report = ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert [each.control for each in report.proof.partitions] == [0, 2]
    manifest = json.loads((tmp_path / BOOK / "000001.json").read_text())
    assert manifest["partitions"][1] == {
        "partition": 1,
        "start": 0,
        "end": 37,
        "rows": 35,
        "control": 2,
        "compacted": 0,
        "dead": 0,
    }


def test_holes_of_compaction_are_loss_unless_the_topic_is_compacted(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    filled.append(T1, rewritten(numbered(130, 5, 30), last_offset_delta=9))
    with pytest.raises(ProofError, match="t-1 from 0 to 40: 5 lost"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path))
    report = ingest(spark, filled.bootstrap, "t", str(tmp_path), compacted=True)
    assert report.proof.partitions[1].compacted == 5
    assert prove_table(spark, str(tmp_path)).holds


@pytest.mark.parametrize(
    ("transform", "failure"),
    [
        (lambda frame: frame.where("not (partition = 0 and offset = 42)"), "1 lost, 0 doubled"),
        (
            lambda frame: frame.unionByName(frame.where("partition = 0 and offset = 42")),
            "0 lost, 1 doubled",
        ),
    ],
)
def test_what_cannot_be_proved_is_not_committed(
    spark: SparkSession,
    filled: FakeLogs,
    tmp_path: Path,
    transform: Callable[[DataFrame], DataFrame],
    failure: str,
) -> None:
    with pytest.raises(ProofError, match=f"t-0 from 0 to 100: {failure}"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=transform)
    assert files_of(tmp_path) == []
    assert ingest(spark, filled.bootstrap, "t", str(tmp_path)).proof.rows == 130


def test_large_ranges_become_several_files(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    report = ingest(
        spark,
        filled.bootstrap,
        "t",
        str(tmp_path),
        rows_per_file=26,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [(f.partition, f.start, f.end) for f in report.files if f.partition == 0] == [
        (0, 0, 25),
        (0, 25, 50),
        (0, 50, 75),
        (0, 75, 100),
    ]
    assert all(done <= total for done, total in seen)


def test_records_deleted_before_they_were_taken_are_an_error(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    filled.append(T0, numbered(130, 10, 100), numbered(140, 10, 110))
    filled.log_starts[T0] = 110
    with pytest.raises(DataLossError, match="t-0 was ingested up to 100.*holds 110 to 120"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path))


def test_a_recreated_topic_is_refused(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    monkeypatch.setattr(filled, "topic_id", lambda name: b"another".ljust(16))
    with pytest.raises(TableError, match="recreated"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path))


def test_one_row_dropped_and_one_doubled_in_the_files_is_seen_by_both_proofs(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=with_number)
    path = files_of(tmp_path)[0]
    table = pq.read_table(path)
    tampered = table.take([*range(7), *range(8, table.num_rows), 20])
    pq.write_table(tampered, path)
    frame = spark.read.parquet(str(tmp_path))
    proof = prove_sequence(frame, "n", 130)
    assert not proof.holds
    assert proof.verdict() == "130 produced, 130 in Parquet, 1 lost, 1 doubled"
    offsets = prove_table(spark, str(tmp_path))
    assert (offsets.holds, offsets.lost, offsets.doubled) == (False, 1, 1)


class TestSequence:
    def frame(self, spark: SparkSession, numbers: list[int | None]) -> DataFrame:
        return spark.createDataFrame([(n,) for n in numbers], "n long")

    def test_a_whole_sequence_holds(self, spark: SparkSession) -> None:
        proof = prove_sequence(self.frame(spark, [2, 0, 1]), "n", 3)
        assert proof.holds
        assert (proof.count, proof.total, proof.smallest, proof.largest, proof.distinct) == (
            3,
            3,
            0,
            2,
            3,
        )
        assert proof.verdict() == "3 produced, 3 in Parquet, 0 lost, 0 doubled"

    @pytest.mark.parametrize(
        ("numbers", "verdict"),
        [
            ([0, 1, 1], "3 produced, 3 in Parquet, 1 lost, 1 doubled"),
            ([], "3 produced, 0 in Parquet, 3 lost, 0 doubled"),
            ([0, 1, 2, 3], "3 produced, 4 in Parquet, 0 lost, 0 doubled, 1 foreign"),
            ([0, 1, 2, None], "3 produced, 4 in Parquet, 0 lost, 0 doubled, 1 foreign"),
            ([0, 1, 2, 2, 2], "3 produced, 5 in Parquet, 0 lost, 2 doubled"),
        ],
    )
    def test_what_is_wrong_is_counted(
        self, spark: SparkSession, numbers: list[int | None], verdict: str
    ) -> None:
        proof = prove_sequence(self.frame(spark, numbers), "n", 3)
        assert not proof.holds
        assert proof.verdict() == verdict

    @pytest.mark.parametrize("column", ["nope", "text"])
    def test_a_column_that_holds_no_numbers_is_named(
        self, spark: SparkSession, column: str
    ) -> None:
        frame = self.frame(spark, [0]).selectExpr("n", "'x' as text")
        with pytest.raises(OptionError, match=f"sequence is '{column}'; .* which has n$"):
            prove_sequence(frame, column, 3)


def test_a_range_of_markers_only_is_a_run_without_files(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path
) -> None:
    logs.create("t", 1)
    logs.append(T0, rewritten(batch([Row()], 0), attributes=CONTROL))
    report = ingest(spark, logs.bootstrap, "t", str(tmp_path))
    assert (report.proof.rows, report.proof.holds, report.files) == (0, True, ())
    assert ingest(spark, logs.bootstrap, "t", str(tmp_path)).manifest is None
    assert prove_table(spark, str(tmp_path)).holds


def test_tasks_write_what_spark_would_write(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    """Files that skip Java have the columns, types and rows of those that Spark writes."""
    rows = [
        Row(None, None),
        Row(b"", b"\xff\x00", headers=(("h", b"1"), ("h", None))),
        Row(b"k", b"v"),
    ]
    filled.append(T1, batch(rows, 30))
    direct, through_spark = str(tmp_path / "direct"), str(tmp_path / "through")
    for directory, transform in ((direct, None), (through_spark, lambda frame: frame)):
        ingest(spark, filled.bootstrap, "t", directory, include_headers=True, transform=transform)
    ours, theirs = spark.read.parquet(direct), spark.read.parquet(through_spark)
    assert ours.schema == theirs.schema
    assert ours.count() == 133
    assert ours.exceptAll(theirs).isEmpty() and theirs.exceptAll(ours).isEmpty()
    first, second = (files_of(Path(directory))[0] for directory in (direct, through_spark))
    assert types_of(first) == types_of(second)


def types_of(path: Path) -> list[tuple[str, str, str]]:
    """The columns of a Parquet file with their physical and logical types."""
    schema = pq.read_metadata(path).schema
    columns = [schema.column(number) for number in range(len(schema))]
    return [(each.path, each.physical_type, str(each.logical_type)) for each in columns]
