"""The layout of landed tables: columns that grow, partition columns, and bounded files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from examples.demo.proving import duckdb_with_delta
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.state import TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines import file_upkeep
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.ingest import IngestReport, follow, ingest, prove_table, read_landed
from tidelog.spark.pipelines.ingest_report import IngestSums
from tidelog.spark.pipelines.landing import LandingOptions

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


def read_by_all(spark: SparkSession, to: str, names: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a table, which all readers must agree on, in order."""

    def ordered(found: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in found), key=str)

    rows = ordered(read_landed(spark, to).select(*names).collect())
    arrow = DeltaTable(to).to_pyarrow_table().select(names).to_pylist()
    assert ordered(row.values() for row in arrow) == rows
    assert ordered(polars.scan_delta(to).select(names).collect().iter_rows()) == rows
    with duckdb_with_delta() as connection:
        columns = ", ".join(f'"{name}"' for name in names)
        query = f"select {columns} from delta_scan(?)"
        assert ordered(connection.execute(query, [to]).fetchall()) == rows
    return rows


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
            rows = [(n, n if n < 20 else None, (None, "x", "y")[n // 10]) for n in range(30)]
            assert read_by_all(spark, to, ["offset", "n", "m"]) == sorted(rows, key=str)
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


DAY_MS = 24 * 3_600_000
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def days(logs: FakeLogs, first: int, *numbers: int) -> None:
    """Append a record for each number of a day, five hours before the next one."""
    start_ms = int(NEW_YEAR.timestamp() * 1000)
    rows = [
        Row(b"k", b"%d" % (first + place), start_ms + number * DAY_MS + 19 * 3_600_000)
        for place, number in enumerate(numbers)
    ]
    logs.append(T0, batch(rows, first))


class TestPartitionColumns:
    def test_by_day_of_the_timestamp(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 2)
        days(logs, 0, 0, 0, 1, 0, 2)
        more(logs, 0, 4, T1)
        to = str(tmp_path / "table")
        first = ingest(spark, logs.bootstrap, "t", to, partition_by="day")
        assert sorted((f.partition, f.values["day"], f.start, f.end) for f in first.files) == [
            (0, "2026-01-01", 0, 4),
            (0, "2026-01-02", 2, 3),
            (0, "2026-01-03", 4, 5),
            (1, "1970-01-01", 0, 4),
        ]
        assert Path(to, first.files[0].path).parent.name == f"day={first.files[0].values['day']}"
        days(logs, 5, 1, 2)
        second = ingest(spark, logs.bootstrap, "t", to, transform=columns("timestamp"))
        assert [f.values["day"] for f in second.files] == ["2026-01-02", "2026-01-03"]

        def holds() -> None:
            found = read_by_all(spark, to, ["partition", "offset", "day"])
            assert found[:2] == [(0, 0, date(2026, 1, 1)), (0, 1, date(2026, 1, 1))]
            assert len(found) == 11
            day = read_landed(spark, to).where("day = '2026-01-02'")
            assert sorted(row.offset for row in day.collect()) == [2, 5]
            assert len(day.inputFiles()) == len(
                [f for f in DeltaLake(to).files() if f.values["day"] == "2026-01-02"]
            )
            proof = prove_table(spark, to)
            assert (proof.holds, proof.offsets.rows) == (True, 11)

        holds()
        assert len(compact(spark, to).after) == 4
        holds()
        with pytest.raises(TableError, match="is partitioned by day, and this run asks for topic"):
            ingest(spark, logs.bootstrap, "t", to, partition_by="topic")
        days(logs, 7, 1)
        for text, has in (
            ("1 as n", "no such column"),
            ("string(timestamp) as timestamp", "string"),
        ):
            with pytest.raises(TableError, match=f"'timestamp' .* has {has} there"):
                ingest(spark, logs.bootstrap, "t", to, transform=columns(text))
        assert ingest(spark, logs.bootstrap, "t", to, without=("timestamp",)).proof.rows == 1

    def test_a_far_day_is_null_and_a_far_date_refused(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 1)
        far_ms = 1_700_000_000_000_000
        times = [0, far_ms, 253_402_300_800_000, -62_135_596_800_001]
        logs.append(T0, batch([Row(b"k", b"v", ms) for ms in times], 0))
        to, other = str(tmp_path / "table"), str(tmp_path / "other")
        ingest(spark, logs.bootstrap, "t", to, partition_by="day")
        want = [(0, date(1970, 1, 1)), *((n, None) for n in (1, 2, 3))]
        assert read_by_all(spark, to, ["offset", "day"]) == want
        assert prove_table(spark, to).holds
        for text in ("make_date(10000, 1, 1)", "date_sub(date'0001-01-01', 1)"):
            transform = columns(f"if(offset = 2, {text}, date'2026-01-01') as d")
            with pytest.raises(TidelogError, match="column 'd' of partition 0, offset 2, is outs"):
                ingest(spark, logs.bootstrap, "t", other, transform=transform, partition_by="d")
        foreign = str(tmp_path / "foreign")
        write_deltalake(
            foreign,
            pa.table({"d": pa.array([-800_000], pa.int32()).cast(pa.date32()), "n": [1]}),
            partition_by=["d"],
        )
        with pytest.raises(TableError, match="a partition value outside the years 1 to 9999"):
            DeltaLake(foreign).files()

    def test_null_and_empty_text_are_one_value_in_order_of_offset(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 1)
        more(logs, 0, 9)
        to = str(tmp_path / "table")
        transform = columns("element_at(array('', null, 'x'), int(offset % 3) + 1) as `c.d`")
        ingest(spark, logs.bootstrap, "t", to, transform=transform, partition_by="c.d")
        found = {
            file.values["c.d"]: pq.read_table(f"{to}/{file.path}")["offset"].to_pylist()
            for file in DeltaLake(to).files()
        }
        assert found == {None: [0, 1, 3, 4, 6, 7], "x": [2, 5, 8]}

    def test_times_without_zone_are_the_same_in_each_zone(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        text = "timestamp_ntz'2025-01-01 00:00:00'"
        ingest(spark, filled.bootstrap, "t", to, transform=columns(f"{text} as l"))
        zone = spark.conf.get("spark.sql.session.timeZone")
        try:
            spark.conf.set("spark.sql.session.timeZone", "America/New_York")
            frame = read_landed(spark, to)
            assert frame.where(f"l = {text}").count() == 10
            assert frame.selectExpr("string(l)").first() == ("2025-01-01 00:00:00",)
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone or "UTC")

    def test_text_in_no_utf_8_is_refused(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 1)
        logs.append(T0, batch([Row(b"k", b"v"), Row(b"k", b"\xff")], 0))
        for by in ((), "p"):
            with pytest.raises(TidelogError, match="column 'p' of partition 0, offset 1, is no te"):
                ingest(
                    spark,
                    logs.bootstrap,
                    "t",
                    str(tmp_path / f"table{len(by)}"),
                    transform=columns("string(value) as p"),
                    partition_by=by,
                )

    def test_by_partition_and_by_a_column(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        more(filled, 0, 6, T1)
        odd = ["a/b %41=ü", "", 'O\'Hare "x"', "2026-01-02", " "]
        text = ", ".join("'" + name.replace("'", "\\'") + "'" for name in odd)
        transform = columns(f"element_at(array({text}, null), int(offset % 6) + 1) as `c d`")
        by = ("partition", "c d")
        report = ingest(spark, filled.bootstrap, "t", to, transform=transform, partition_by=by)
        assert len(report.files) == 10
        want = [(p, o, [*odd, None][o % 6] or None) for p, o in [(1, n) for n in range(6)]]
        want += [(0, o, [*odd, None][o % 6] or None) for o in range(10)]
        assert read_by_all(spark, to, ["partition", "offset", "c d"]) == sorted(want, key=str)
        assert prove_table(spark, to).holds
        more(filled, 10, 2)
        again = ingest(spark, filled.bootstrap, "t", to, transform=columns("1 as n"))
        assert [dict(f.values) for f in again.files] == [{"partition": "0", "c d": None}]
        assert prove_table(spark, to).offsets.rows == 18

    def test_many_values_are_a_file_each(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 1)
        for start in range(0, 300, 100):
            more(logs, start, 100)
        to = str(tmp_path / "table")
        transform = columns("offset % 100 as v")
        report = ingest(spark, logs.bootstrap, "t", to, transform=transform, partition_by="v")
        assert (len(report.files), report.reopened) == (100, 0)
        rows = read_landed(spark, to).selectExpr("count(*)", "sum(v)", "count(distinct v)")
        assert tuple(rows.collect()[0]) == (300, 3 * sum(range(100)), 100)

    def test_days_in_no_order_are_said_to_be_many_files(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        logs.create("t", 1)
        for start in range(0, 100, 25):
            days(logs, start, *range(25))
        to = str(tmp_path / "table")
        report = ingest(spark, logs.bootstrap, "t", to, partition_by="day")
        assert len(report.files) == 25 + report.reopened
        assert report.reopened > 0
        small = f"in {len(report.files)} files ({report.reopened} small, as rows come in no order"
        assert small in IngestSums([report]).verdict
        assert prove_table(spark, to).holds
        assert len(compact(spark, to).after) == 25
        assert prove_table(spark, to).holds

    def test_names_that_are_no_partition_columns(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        for name, reason in (
            ("days", "no column 'days' to partition the table by; its columns are .* 'day' is"),
            ("offset", "each record would be a file"),
            ("value", "column 'value' is binary, and a table is partitioned by text"),
        ):
            with pytest.raises(TableError, match=reason):
                ingest(spark, filled.bootstrap, "t", to, partition_by=name)
        with pytest.raises(OptionError, match="partition_by is day, day; expected columns .* once"):
            LandingOptions(partition_by=("day", "day"))
        with pytest.raises(OptionError, match="partition_by is topic; expected columns that the"):
            LandingOptions(partition_by=("topic",), without=("topic",))
        assert not Path(to).exists()

    def test_upserts_find_keys_in_every_partition_value(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        logs.create("t", 2)

        def put(*changes: tuple[str, int | None]) -> list[tuple[Any, ...]]:
            rows = [
                Row(key.encode(), None if value is None else b"%d" % value)
                for key, value in changes
            ]
            logs.append(T0, batch(rows, logs.end(T0)))
            ingest(
                spark,
                logs.bootstrap,
                "t",
                to,
                transform=columns(
                    "string(key) as k",
                    "int(string(value)) % 2 as odd",
                    "int(string(value)) as n",
                    "value is null as tombstone",
                ),
                upsert_by=("k",),
                partition_by=("partition", "k", "odd"),
            )
            return read_by_all(spark, to, ["k", "odd", "n"])

        assert put(("a", 1), ("b", 2), ("a", 4)) == [("a", 0, 4), ("b", 0, 2)]
        assert put(("b", 3), ("c", 5)) == [("a", 0, 4), ("b", 1, 3), ("c", 1, 5)]
        assert put(("a", None), ("c", 7)) == [("b", 1, 3), ("c", 1, 7)]
        compact(spark, to)
        assert read_by_all(spark, to, ["k", "odd", "n"]) == [("b", 1, 3), ("c", 1, 7)]


class TestFollow:
    def test_files_stay_few_and_each_offset_is_there_once(
        self, spark: SparkSession, logs: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        logs.create("t", 2)
        more(logs, 0, 3)
        lake, counts = DeltaLake(to), list[int]()
        stop = threading.Event()

        def on_batch(report: IngestReport) -> None:
            counts.append(len(lake.files()))
            if len(counts) == 80:
                stop.set()
            for tp in (T0, T1):
                more(logs, logs.end(tp), 3, tp)

        options = LandingOptions(partition_by=("partition",))
        follow(
            spark,
            logs.bootstrap,
            "t",
            to,
            stop=stop,
            interval_s=0.05,
            compact_after=4,
            keep_hours=0,
            on_batch=on_batch,
            options=options,
        )
        assert len(counts) == 80
        # Each of two partitions: four times the four files, those of a batch, and tiers.
        assert max(counts) <= 2 * (16 + 1 + 6), counts
        assert len(lake.files()) <= 2 * (4 + 6)
        for file in lake.files():
            offsets = pq.ParquetFile(f"{to}/{file.path}").read().column("offset").to_pylist()
            assert offsets == list(range(file.start, file.end))
        proof = prove_table(spark, to)
        assert (proof.holds, proof.offsets.rows) == (True, 3 + 79 * 6)
        assert len(list(Path(to).rglob("*.parquet"))) < 80, "replaced files are deleted"

    def test_a_reader_of_before_keeps_its_files(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        for number in range(1, 4):
            ingest(spark, filled.bootstrap, "t", to)
            more(filled, 10 * number, 10)
        frame, opened = read_landed(spark, to), DeltaTable(to)
        batches = opened.to_pyarrow_dataset().to_batches(batch_size=10)
        first = next(batches)
        for _ in range(2):
            assert compact(spark, to, keep_hours=1).deleted == 0
            ingest(spark, filled.bootstrap, "t", to)
        assert first.num_rows + sum(batch.num_rows for batch in batches) == 30
        assert frame.count() == opened.to_pyarrow_table().num_rows == 30
        assert read_landed(spark, to).count() == 40
        assert compact(spark, to, keep_hours=0).deleted > 0
        assert read_landed(spark, to).count() == 40

    def test_files_of_a_shuffling_transform_are_merged_in_order(
        self, spark: SparkSession, filled: FakeLogs, tmp_path: Path
    ) -> None:
        to = str(tmp_path / "table")
        for number in range(1, 3):
            ingest(
                spark,
                filled.bootstrap,
                "t",
                to,
                transform=lambda frame: frame.repartition(3, frame["offset"] % 3),
            )
            more(filled, 10 * number, 10)
        assert len(DeltaLake(to).files()) > 2
        [file] = compact(spark, to).after
        offsets = pq.ParquetFile(f"{to}/{file.path}").read().column("offset").to_pylist()
        assert offsets == list(range(20))
        assert prove_table(spark, to).holds


def test_a_merge_sorts_files_that_another_tool_has_sorted_otherwise(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path
) -> None:
    logs.create("t", 1)
    logs.append(T0, batch([Row(b"%02d" % (59 - n), b"v") for n in range(60)]))
    to = str(tmp_path / "table")
    ingest(spark, logs.bootstrap, "t", to)
    DeltaTable(to).optimize.z_order(["key"])
    (path,) = DeltaTable(to).file_uris()
    assert pq.read_table(path)["offset"][0].as_py() == 59
    more(logs, 60, 1)
    ingest(spark, logs.bootstrap, "t", to)
    (merged,) = compact(spark, to).after
    offsets = pq.read_table(f"{to}/{merged.path}")["offset"].to_pylist()
    assert offsets == list(range(61))


def test_an_error_of_a_merge_ends_a_follower_whose_topic_is_idle(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.create("t", 1)
    more(logs, 0, 1)
    stop = threading.Event()

    def fails(*_: object) -> bool:
        raise TableError("no merge")

    monkeypatch.setattr(file_upkeep, "merge_some", fails)
    timer = threading.Timer(20, stop.set)
    timer.start()
    to = str(tmp_path / "table")
    with pytest.raises(TableError, match="no merge"):
        follow(spark, logs.bootstrap, "t", to, stop=stop, interval_s=0.05, compact_after=1)
    timer.cancel()
    assert not stop.is_set()


def test_a_time_to_keep_files_is_not_negative(spark: SparkSession, tmp_path: Path) -> None:
    to = str(tmp_path / "table")
    with pytest.raises(OptionError, match="keep_hours is -1; expected 0 or more"):
        compact(spark, to, keep_hours=-1)
    with pytest.raises(OptionError, match="keep_hours is -1; expected 0 or more"):
        follow(spark, "none:1", "t", to, stop=threading.Event(), keep_hours=-1)
