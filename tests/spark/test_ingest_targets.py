"""Where an ingest lands: dead letters, followed topics, compaction, several runs at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.state import LakeState, TableChange, TableError
from tidelog.spark.lake.vacuum import DEAD_AFTER_MS
from tidelog.spark.options import OptionError
from tidelog.spark.pipelines import ingest as ingest_module
from tidelog.spark.pipelines import landing
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.ingest import (
    BadRecordsError,
    IngestReport,
    ProofError,
    follow,
    ingest,
    prove_table,
    read_landed,
    topic_ingest,
)
from tidelog.spark.pipelines.landing import Landing, LandingOptions
from tidelog.spark.pipelines.parsing import json_columns
from tidelog.spark.planning import DataLossError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    BAD = ("no json", '{"n": "x"}', None, '{"n": 7} {"n": 8}')

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
        landed = read_landed(spark, table)
        assert landed.columns == ["topic", "partition", "offset", "timestamp", "n"]
        assert sorted(row.n for row in landed.collect()) == list(range(136))
        whole = prove_table(spark, table)
        assert (whole.holds, whole.offsets.rows, whole.offsets.dead) == (True, 136, 4)
        Path(second.dead_letters[0]).unlink()
        [fault] = prove_table(spark, table).faults
        assert (fault.path, fault.reason) == (second.dead_letters[0], "is missing")

    def test_without_a_path_the_first_bad_record_is_named(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        self.spoil(filled)
        parse = json_columns(spark, COLUMNS)
        with pytest.raises(BadRecordsError, match="t-1 at offset 30 does not fit: the value is no"):
            ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=parse)
        assert list(tmp_path.rglob("*.parquet")) == []

    def test_letters_of_a_run_that_died_are_deleted_a_day_later(
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
            patch.setattr(ingest_module, "commit_run", crash)
            with pytest.raises(Crash):
                run()
        [left] = letters.rglob("*.parquet")
        day_old(table)
        day_old(letters)
        report = run()
        assert (report.proof.rows, report.proof.dead) == (136, 4)
        assert not left.exists()
        assert [str(path) for path in letters.rglob("*.parquet")] == list(report.dead_letters)
        named = {file.path for file in DeltaLake(str(table)).files()}
        assert {str(path.relative_to(table)) for path in table.rglob("*.parquet")} == named

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

    def test_columns_of_json_may_have_dots(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 1)
        logs.append(T0, values(0, '{"a.b": 7}'))
        parse = json_columns(spark, "`a.b` long")
        ingest(spark, logs.bootstrap, "t", str(tmp_path), transform=parse)
        assert read_landed(spark, str(tmp_path)).select("`a.b`").collect()[0][0] == 7

    @pytest.mark.parametrize("ddl", ["", "n", "n nothing", "offset long", "n long, N long"])
    def test_columns_that_are_none(self, spark: SparkSession, ddl: str) -> None:
        with pytest.raises(OptionError, match=rf"columns {ddl!r}.*\S$"):
            json_columns(spark, ddl)


class Crash(BaseException):
    """The program ends here."""


def crash(*_: object) -> None:
    raise Crash


def day_old(directory: Path) -> None:
    """Date all files below a directory as those of a run that counts as dead."""
    then_s = time.time() - DEAD_AFTER_MS / 1000 - 60
    for path in directory.rglob("*.parquet"):
        os.utime(path, (then_s, then_s))


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
    assert prove_table(spark, str(tmp_path)).offsets.rows == 130


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
    assert [report.version for report in reports] == [1, 2, 3]
    assert sum(report.proof.rows for report in reports) == 140
    assert all(sum(p.wanted.size for p in report.proof.partitions) <= 100 for report in reports)
    old = read_landed(spark, to)
    report = compact(spark, to)
    assert (report.version, report.deleted) == (4, 0)
    assert sorted((f.partition, f.start, f.end) for f in report.after) == [(0, 0, 100), (1, 0, 40)]
    assert old.count() == 140, "a reader of before keeps its files"
    assert sorted(row.n for row in read_landed(spark, to).collect()) == list(range(140))
    assert read_landed(spark, to, version=2).count() == 135, "as does one of an earlier version"
    proof = prove_table(spark, to)
    assert (proof.holds, proof.offsets.rows) == (True, 140)
    assert compact(spark, to, keep_hours=0).deleted == len(report.before)
    filled.append(T1, numbers(140, 1, 40))
    (last,) = followed(spark, filled, to, [], compact_after=2)
    files = [(f.partition, f.start, f.end) for f in DeltaLake(to).files()]
    assert sorted(files) == [(0, 0, 100), (1, 0, 41)], "merged between the batches"
    assert last.version is not None
    proof = prove_table(spark, to)
    assert (proof.holds, proof.offsets.rows) == (True, 141)


def test_a_merged_file_has_its_rows_in_order_of_offset(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = str(tmp_path / "table")
    for number in range(3):
        ingest(spark, filled.bootstrap, "t", to)
        filled.append(T1, numbers(130 + 5 * number, 5, 30 + 5 * number))
    compact(spark, to)
    for file in DeltaLake(to).files():
        offsets = pq.read_table(tmp_path / "table" / file.path).column("offset").to_pylist()
        assert offsets == list(range(file.start, file.end))


def test_files_of_dead_runs_are_deleted_by_a_compaction_a_day_later(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "table"
    with monkeypatch.context() as patch:
        patch.setattr(ingest_module, "commit_run", crash)
        with pytest.raises(Crash):
            ingest(spark, filled.bootstrap, "t", str(to))
    left = sorted(to.rglob("*.parquet"))
    assert len(left) == 2
    assert ingest(spark, filled.bootstrap, "t", str(to)).proof.rows == 130
    assert compact(spark, str(to)).abandoned == 0, "it may still be running"
    day_old(to)
    assert compact(spark, str(to)).abandoned == 2
    assert not any(path.exists() for path in left)
    assert read_landed(spark, str(to)).count() == 130


def test_a_compaction_refuses_files_that_are_not_what_the_log_says(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = str(tmp_path / "table")
    ingest(spark, filled.bootstrap, "t", to)
    filled.append(T1, numbers(130, 5, 30))
    ingest(spark, filled.bootstrap, "t", to)
    gone = next(file for file in DeltaLake(to).files() if file.start == 30)
    path = tmp_path / "table" / gone.path
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(ProofError, match="nothing was changed.*has 4 rows; the table's log says 5"):
        compact(spark, to)
    path.unlink()
    with pytest.raises(TableError, match="lacks a file of its log.*pipeline prove"):
        compact(spark, to)
    assert DeltaLake(to).read().version == 2


def test_an_empty_partition_is_known_so_that_its_loss_is_found(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path
) -> None:
    logs.create("t", 2)
    to = str(tmp_path / "table")
    assert ingest(spark, logs.bootstrap, "t", to).version is None
    assert DeltaLake(to).read().following() == {0: 0, 1: 0}
    version = DeltaLake(to).read().version
    ingest(spark, logs.bootstrap, "t", to)
    assert DeltaLake(to).read().version == version, "it is committed once"
    logs.append(T1, numbers(0, 10, 0), numbers(10, 10, 10))
    logs.log_starts[T1] = 10
    with pytest.raises(
        DataLossError,
        match="t-1 was ingested up to 0, .*holds 10 to 20: the records from",
    ):
        ingest(spark, logs.bootstrap, "t", to)


def test_a_follower_looks_at_the_table_before_offsets_are_lost(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    """Another run landed what retention has taken since."""
    to = str(tmp_path / "table")
    with topic_ingest(spark, filled.bootstrap, "t", to, LandingOptions()) as follower:
        assert follower.run().proof.rows == 130
        filled.append(T0, numbers(130, 10, 100), numbers(140, 10, 110))
        assert ingest(spark, filled.bootstrap, "t", to).proof.rows == 20
        filled.log_starts[T0] = 110
        assert follower.run().version is None
        filled.append(T0, numbers(150, 10, 120))
        assert follower.run().proof.rows == 10
    proof = prove_table(spark, to)
    assert (proof.holds, proof.offsets.rows) == (True, 160)


def test_a_topic_that_is_recreated_during_a_run_is_not_landed(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = landing.land

    def land(*args: Any, **kwargs: Any) -> Landing:
        landed = real(*args, **kwargs)
        monkeypatch.setattr(filled, "topic_id", lambda name: b"another".ljust(16))
        return landed

    monkeypatch.setattr(ingest_module, "land", land)
    with pytest.raises(TableError, match="recreated"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("topic", ["_schemas", ".hidden", "a.b_c-1"])
@pytest.mark.parametrize("name", ["table", "a[b]", "a b=c", "a{b,c}*"])
def test_any_topic_and_most_paths_can_be_read(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path, topic: str, name: str
) -> None:
    logs.create(topic, 1)
    logs.append(TopicPartition(topic, 0), numbers(0, 5, 0))
    ingest(spark, logs.bootstrap, topic, str(tmp_path / name))
    assert read_landed(spark, str(tmp_path / name)).count() == 5


def test_columns_that_no_table_has_are_named(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = str(tmp_path / "table")

    def refused(*columns: str) -> str:
        with pytest.raises(TableError) as raised:
            ingest(
                spark,
                filled.bootstrap,
                "t",
                to,
                transform=lambda frame: frame.selectExpr("topic", "partition", "offset", *columns),
            )
        return str(raised.value)

    assert "column 'n' is of type void" in refused("null as n")
    assert "column 'n' is of type array<void>" in refused("array() as n")
    assert "column 'n' is of type interval" in refused("interval 1 day as n")
    assert "column 'n' is of type variant" in refused("parse_json('1') as n")
    assert "column 'n' twice" in refused("1 as n", "2 as N")
    assert list(tmp_path.rglob("*.parquet")) == []


def test_columns_with_dots_and_many_columns_land(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = str(tmp_path / "table")
    many = [f"{number} as c{number}" for number in range(40)]

    def transform(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*many, "1 as `a.b`", "topic", "partition", "offset")

    ingest(spark, filled.bootstrap, "t", to, transform=transform)
    assert DeltaLake(to).schema().names[:2] == ["partition", "offset"]
    assert sorted((f.partition, f.start, f.end) for f in DeltaLake(to).files()) == [
        (0, 0, 100),
        (1, 0, 30),
    ]
    assert read_landed(spark, to).select("`a.b`").distinct().collect()[0][0] == 1

    def nested(frame: DataFrame) -> DataFrame:
        fields = ", ".join(f"{number} as c{number}" for number in range(40))
        return frame.selectExpr("topic", f"struct({fields}) as s", "partition", "offset")

    ingest(spark, filled.bootstrap, "t", str(tmp_path / "nested"), transform=nested)
    assert DeltaLake(str(tmp_path / "nested")).schema().names == [
        "partition",
        "offset",
        "topic",
        "s",
    ]
    assert {f.partition for f in DeltaLake(str(tmp_path / "nested")).files()} == {0, 1}


def test_dead_letters_are_no_files_of_the_table(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    parse = json_columns(spark, COLUMNS)
    for place in (tmp_path / "table", tmp_path / "table" / "letters"):
        with pytest.raises(TableError, match="would be files of the table"):
            ingest(
                spark,
                filled.bootstrap,
                "t",
                str(tmp_path / "table"),
                transform=parse,
                dead_letter=str(place),
            )
    with pytest.raises(OptionError, match="dead_letter needs a transform"):
        LandingOptions(dead_letter="letters")
    with pytest.raises(OptionError, match="target_file_bytes is 0; expected 1 or more"):
        LandingOptions(target_file_bytes=0)


def two_at_once(spark: SparkSession, logs: FakeLogs, to: str) -> list[int]:
    """Let two ingests of one topic run at once; return the rows of each."""
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(ingest, spark, logs.bootstrap, "t", to) for _ in range(2)]
        reports = [run.result() for run in runs]
    proof = prove_table(spark, to)
    assert (proof.holds, proof.offsets.rows) == (True, 130)
    named = {file.path for file in DeltaLake(to).files()}
    assert {str(path.relative_to(to)) for path in Path(to).rglob("*.parquet")} == named
    return sorted(report.proof.rows for report in reports)


def test_of_two_ingests_at_once_one_lands(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    assert two_at_once(spark, filled, str(tmp_path / "table")) == [0, 130]


@pytest.mark.soak
@pytest.mark.parametrize("run", range(50))
def test_of_two_ingests_at_once_one_lands_fifty_times(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, run: int
) -> None:
    assert two_at_once(spark, filled, str(tmp_path / f"table-{run}")) == [0, 130]


def test_a_run_that_sleeps_before_its_commit_takes_what_is_left(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run lands the offsets and more come in while this one is about to commit."""
    to = str(tmp_path / "table")
    real = DeltaLake.commit
    slept: list[bool] = []

    def commit(self: DeltaLake, state: LakeState, change: TableChange) -> CommitAnswer:
        if not slept:
            slept.append(True)
            assert ingest(spark, filled.bootstrap, "t", to).proof.rows == 130
            compact(spark, to)
            filled.append(T1, numbers(130, 5, 30))
        return real(self, state, change)

    monkeypatch.setattr(DeltaLake, "commit", commit)
    assert ingest(spark, filled.bootstrap, "t", to).proof.rows == 5
    proof = prove_table(spark, to)
    assert (proof.holds, proof.offsets.rows) == (True, 135)
    assert len(list(Path(to).rglob("*.parquet"))) == 3
