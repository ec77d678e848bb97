"""Where an ingest lands: dead letters, followed topics, compaction, Hadoop's file systems."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch
from tests.support.table_files import Crash, StoppingFiles

from tidelog.core.types import TopicPartition
from tidelog.spark.options import OptionError
from tidelog.spark.pipelines import ingest as ingest_module
from tidelog.spark.pipelines import table_access
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.hadoop_files import HadoopFiles
from tidelog.spark.pipelines.ingest import (
    BadRecordsError,
    IngestReport,
    follow,
    ingest,
    prove_table,
    read_table,
)
from tidelog.spark.pipelines.landing import LandingOptions
from tidelog.spark.pipelines.manifests import TableError
from tidelog.spark.pipelines.parsing import json_columns
from tidelog.spark.pipelines.table import open_table, read_only
from tidelog.spark.pipelines.table_files import LocalFiles, TableFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COLUMNS = "n long"


def values(base_offset: int, *texts: str | None) -> bytes:
    rows = [Row(b"k", None if text is None else text.encode()) for text in texts]
    return batch(rows, base_offset)


def numbers(first: int, count: int, base_offset: int) -> bytes:
    return values(base_offset, *(f'{{"n": {n}}}' for n in range(first, first + count)))


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    logs.append(T0, numbers(0, 50, 0), numbers(50, 50, 50))
    logs.append(T1, numbers(100, 30, 0))
    return logs


class TestDeadLetters:
    BAD = ("no json", '{"n": "x"}', None, "[1]")

    def spoil(self, logs: FakeLogs) -> None:
        logs.append(T1, values(30, *self.BAD), numbers(130, 6, 34))

    def test_bad_records_are_set_aside_with_the_reason_and_counted(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        table, letters = str(tmp_path / "table"), str(tmp_path / "letters")
        parse = json_columns(spark, COLUMNS)
        again = {"transform": parse, "without": ("key", "value"), "dead_letter": letters}
        first = ingest(spark, filled.bootstrap, "t", table, **again)  # type: ignore[arg-type]  # values of several types
        assert (first.proof.rows, first.dead_letters) == (130, ())
        self.spoil(filled)
        second = ingest(spark, filled.bootstrap, "t", table, **again)  # type: ignore[arg-type]  # values of several types
        (proof,) = second.proof.partitions
        assert (proof.rows, proof.dead, proof.lost, proof.wanted.size) == (6, 4, 0, 10)
        frame = spark.read.parquet(*second.dead_letters)
        assert frame.columns == ["topic", "partition", "offset", "key", "value", "error"]
        rows = frame.orderBy("offset").collect()
        assert [(row.topic, row.partition, row.offset) for row in rows] == [
            ("t", 1, offset) for offset in range(30, 34)
        ]
        assert [row.value and row.value.decode() for row in rows] == list(self.BAD)
        assert {bytes(row.key) for row in rows} == {b"k"}
        assert rows[0].error == "the value is no JSON object with n long"
        assert rows[2].error == "the record has no value"
        landed = read_table(spark, table)
        assert landed.columns == ["topic", "partition", "offset", "timestamp", "n"]
        assert sorted(row.n for row in landed.collect()) == list(range(136))
        whole = prove_table(spark, table)
        assert (whole.holds, whole.rows, whole.dead) == (True, 136, 4)

    def test_without_a_path_the_first_bad_record_is_named(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        self.spoil(filled)
        parse = json_columns(spark, COLUMNS)
        with pytest.raises(BadRecordsError, match="t-1 at offset 30 does not fit: the value is no"):
            ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=parse)
        assert list(tmp_path.glob("*.parquet")) == []
        assert list((tmp_path / "_tidelog").rglob("*.parquet")) == []

    def test_letters_of_a_run_that_died_are_deleted(
        self,
        spark: SparkSession,
        filled: FakeLogs,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.spoil(filled)
        table, letters = tmp_path / "table", tmp_path / "letters"
        parse = json_columns(spark, COLUMNS)

        def run() -> IngestReport:
            return ingest(
                spark, filled.bootstrap, "t", str(table), transform=parse, dead_letter=str(letters)
            )

        with monkeypatch.context() as patch:
            crashing(patch, "sync")
            with pytest.raises(Crash):
                run()
        assert len(list(letters.iterdir())) == 1
        report = run()
        assert (report.proof.rows, report.proof.dead) == (136, 4)
        assert [f"file://{path}" for path in letters.iterdir()] == list(report.dead_letters)

    def test_a_transform_without_key_and_value_is_refused(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        with pytest.raises(TableError, match="returns no column 'key': a dead letter holds it"):
            ingest(
                spark,
                filled.bootstrap,
                "t",
                str(tmp_path / "table"),
                transform=lambda frame: frame.selectExpr(
                    "topic", "partition", "offset", "'x' as error"
                ),
                dead_letter=str(tmp_path / "letters"),
            )

    @pytest.mark.parametrize("ddl", ["", "n", "n nothing", "offset long"])
    def test_columns_that_are_none(self, spark: SparkSession, ddl: str) -> None:
        with pytest.raises(OptionError, match=rf"columns {ddl!r}.*\S$"):
            json_columns(spark, ddl)


def crashing(patch: pytest.MonkeyPatch, step: str) -> None:
    """Let the ingest's program end at its first step of this name."""
    real = table_access.files_at

    def files_at(spark: SparkSession, directory: str) -> TableFiles:
        files = StoppingFiles(real(spark, directory))

        def crash(*_: object) -> None:
            raise Crash

        setattr(files, step, crash)
        # The clean-up after an error is not to run: the program is gone.
        files.delete = lambda name: None  # type: ignore[method-assign]  # deletes nothing
        return files

    patch.setattr(ingest_module, "files_at", files_at)


def test_columns_that_do_not_fit_the_table_are_named(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    filled.append(T1, numbers(130, 1, 30))
    with pytest.raises(TableError, match="column 'value' is binary in the table and string in"):
        ingest(
            spark,
            filled.bootstrap,
            "t",
            str(tmp_path),
            transform=lambda frame: frame.withColumn("value", frame.value.cast("string")),
        )
    with pytest.raises(TableError, match="column 'headers' is no such column in the table"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path), include_headers=True)
    assert prove_table(spark, str(tmp_path)).rows == 130


def followed(
    spark: SparkSession,
    logs: FakeLogs,
    to: str,
    batches: list[Callable[[], None]],
    compact_after: int = 0,
) -> list[IngestReport]:
    """Follow the topic; each batch lets the next records be written, the last one stops it."""
    reports: list[IngestReport] = []
    stop = threading.Event()

    def on_batch(report: IngestReport) -> None:
        reports.append(report)
        if batches:
            batches.pop(0)()
        else:
            stop.set()

    options = LandingOptions(transform=json_columns(spark, COLUMNS))
    taken = follow(
        spark,
        logs.bootstrap,
        "t",
        to,
        stop=stop,
        interval_s=0.05,
        offsets_per_batch=100,
        compact_after=compact_after,
        on_batch=on_batch,
        options=options,
    )
    assert taken == len(reports)
    return reports


def test_a_followed_topic_is_compacted_and_stays_proved(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = str(tmp_path / "table")
    more = [
        lambda: filled.append(T1, numbers(130, 5, 30)),
        lambda: filled.append(T1, numbers(135, 5, 35)),
    ]
    reports = followed(spark, filled, to, more)
    assert [report.manifest for report in reports] == [1, 2, 3]
    assert sum(report.proof.rows for report in reports) == 140
    assert all(sum(p.wanted.size for p in report.proof.partitions) <= 100 for report in reports)
    old = read_table(spark, to)
    report = compact(spark, to)
    assert report.manifest == 4
    assert [(f.partition, f.start, f.end) for f in report.after] == [(0, 0, 100), (1, 0, 40)]
    assert old.count() == 140, "a reader of before keeps its files"
    for frame in (read_table(spark, to), spark.read.parquet(to)):
        assert sorted(row.n for row in frame.collect()) == list(range(140))
    assert prove_table(spark, to).rows == 140
    assert compact(spark, to, keep_ms=0).deleted == len(report.before)
    filled.append(T1, numbers(140, 1, 40))
    (last,) = followed(spark, filled, to, [], compact_after=2)
    assert last.manifest == 5
    files = [(f.partition, f.start, f.end) for f in read_only(LocalFiles(to)).state.files.values()]
    assert sorted(files) == [(0, 0, 100), (1, 0, 41)], "merged between the batches"
    assert prove_table(spark, to).rows == 141


class TestHadoop:
    """Hadoop's local file system stands for an object store: no lock, no rename, no view."""

    @pytest.fixture
    def hadoop(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (table_access, ingest_module):
            monkeypatch.setattr(module, "files_at", HadoopFiles)
        from tidelog.spark.pipelines import compact as compact_module

        monkeypatch.setattr(compact_module, "files_at", HadoopFiles)

    @pytest.mark.usefixtures("hadoop")
    def test_an_ingest_a_rerun_and_a_compaction(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = f"file:{tmp_path}/table"
        assert ingest(spark, filled.bootstrap, "t", to).proof.rows == 130
        assert ingest(spark, filled.bootstrap, "t", to).manifest is None
        filled.append(T1, numbers(130, 5, 30))
        second = ingest(spark, filled.bootstrap, "t", to)
        assert [(f.partition, f.start, f.end, f.rows) for f in second.files] == [(1, 30, 35, 5)]
        assert list((tmp_path / "table").glob("*.parquet")) == []
        assert compact(spark, to, keep_ms=0).deleted == 2
        assert read_table(spark, to).count() == 135
        assert (prove_table(spark, to).holds, prove_table(spark, to).rows) == (True, 135)

    @pytest.mark.usefixtures("hadoop")
    def test_of_two_runs_at_once_one_commits(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = f"file:{tmp_path}/table"
        options = LandingOptions()
        with (
            ingest_module.opened(spark, filled.bootstrap, "t", to, options) as one,
            ingest_module.opened(spark, filled.bootstrap, "t", to, options) as other,
        ):
            assert one.run().manifest == 1
            with pytest.raises(TableError, match="another run has committed.*manifest 1"):
                other.run()
        assert len(list((tmp_path / "table").rglob("*.parquet"))) == 2
        assert prove_table(spark, to).rows == 130

    def test_its_errors_are_sentences(self, spark: SparkSession, tmp_path: Path) -> None:
        files = HadoopFiles(spark, f"file:{tmp_path}")
        files.create("a", "text")
        assert files.read("a") == "text"
        with pytest.raises(FileExistsError, match="a"):
            files.create("a", "other")
        with pytest.raises(TableError, match=f"{tmp_path}/b cannot be read: java.*NotFound"):
            files.read("b")
        with pytest.raises(TableError, match="nowhere://x/y cannot be used.*nowhere"):
            HadoopFiles(spark, "nowhere://x/y")
        with pytest.raises(TableError, match="cannot be used"):
            HadoopFiles(spark, f"file:{tmp_path}/a/b").make_folder("c")
        with (
            pytest.raises(TableError),
            open_table(HadoopFiles(spark, f"file:{tmp_path}"), create=True),
        ):
            pass
