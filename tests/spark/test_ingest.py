"""Ingest to Delta: reruns go on, nothing comes twice, what is not proved is not committed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
from tests.support.client.fake_logs import FakeLogs
from tests.support.client.fake_logs import batch as transactional
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.core.types import TopicPartition, topic_id_to_text
from tidelog.records.control import ABORT, build_end_marker
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.state import PartitionRun, TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.ingest import (
    ProofError,
    ingest,
    prove_table,
    read_landed,
    topic_ingest,
)
from tidelog.spark.pipelines.landing import LandingOptions
from tidelog.spark.pipelines.sequence import prove_sequence
from tidelog.spark.pipelines.task_rows import TaskFailedError
from tidelog.spark.planning import DataLossError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


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


def files_of(table: Path) -> list[Path]:
    """The files of the table's newest version, in order of partition and offset."""
    files = DeltaLake(str(table)).files()
    return [table / f.path for f in sorted(files, key=lambda f: (f.partition, f.start))]


def parquet_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*.parquet"))


def test_a_rerun_takes_only_what_is_new(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    to = tmp_path / "table"
    first = ingest(spark, filled.bootstrap, "t", str(to))
    assert (first.proof.rows, first.version, len(first.files)) == (130, 1, 2)
    again = ingest(spark, filled.bootstrap, "t", str(to))
    assert (again.proof.rows, again.version) == (0, None)
    filled.append(T1, numbered(130, 20, 30))
    second = ingest(spark, filled.bootstrap, "t", str(to))
    assert [(f.partition, f.start, f.end) for f in second.files] == [(1, 30, 50)]
    assert second.version == 2
    assert sorted(to / f.path for f in [*first.files, *second.files]) == sorted(files_of(to))
    frame = read_landed(spark, str(to))
    assert frame.count() == 150
    assert read_landed(spark, str(to), version=1).count() == 130
    assert read_landed(spark, str(to), version=0).count() == 0
    assert prove_sequence(with_number(frame), "n", 150).holds
    proof = prove_table(spark, str(to))
    assert (proof.holds, proof.offsets.rows, proof.version) == (True, 150, 2)


def test_markers_are_explained_and_noted(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    marker = rewritten(batch([Row()], 30), attributes=CONTROL)
    filled.append(
        T1, marker, numbered(130, 5, 31), rewritten(batch([Row()], 36), attributes=CONTROL)
    )
    report = ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert [each.control for each in report.proof.partitions] == [0, 2]
    state = DeltaLake(str(tmp_path)).read()
    assert state.partitions[1] == PartitionRun(1, 0, 37, rows=35, control=2)


def test_records_of_open_and_aborted_transactions_do_not_land(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    filled.append(
        T1,
        transactional(30, b"no", b"no", b"no", producer=7),
        rewritten(bytes(build_end_marker(ABORT, 7, 0, 0, 1)), base_offset=33),
        numbered(130, 5, 34),
        transactional(39, b"open", b"open", producer=8),
    )
    filled.aborted[T1] = [(7, 30)]
    filled.last_stable[T1] = 39
    report = ingest(spark, filled.bootstrap, "t", str(tmp_path))
    [_, proof] = report.proof.partitions
    assert (proof.wanted.end, proof.rows, proof.control, proof.lost) == (39, 35, 4, 0)
    assert prove_table(spark, str(tmp_path)).holds


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
    with pytest.raises(ProofError) as raised:
        ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=transform)
    assert str(raised.value) == (
        f"{tmp_path} stays at version 0: nothing was committed: t-0 from 0 to 100: {failure}, 0"
        " stray. A transform keeps one row for each record, and marks what does not fit in a column"
        " 'error'; offsets that compaction removed need the option compacted"
    )
    assert parquet_in(tmp_path) == []
    assert ingest(spark, filled.bootstrap, "t", str(tmp_path)).proof.rows == 130


def test_large_ranges_become_several_files(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    options = LandingOptions(
        offsets_per_task=26, progress=lambda done, total: seen.append((done, total))
    )
    with topic_ingest(spark, filled.bootstrap, "t", str(tmp_path), options) as runs:
        report = runs.run()
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
    with pytest.raises(DataLossError) as raised:
        ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path} stays at version 1: t-0 was ingested up to 100, but its log now holds 110 to"
        " 120: the records from 100 to 110 were deleted before their ingest. Ingest to another"
        " table, which begins with what is left; run more often, or raise retention.ms"
    )
    assert DeltaLake(str(tmp_path)).newest() == 1


def test_a_log_that_ends_before_the_tables_offsets_is_an_error(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    del filled.batches[T0][1:]
    end = filled.end(T0)
    assert end < 100
    with pytest.raises(DataLossError) as raised:
        ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path} stays at version 1: t-0 was ingested up to 100, but its log now holds 0 to"
        f" {end}: the cluster has lost records from {end} on, as in an unclean leader election, and"
        " would give their offsets to others. Ingest to another table"
    )


def test_partitions_that_were_added_between_runs_land_from_their_start(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    filled.topics["t"] = [1, 1, 1, 1]
    filled.batches |= {T2: [numbered(0, 20, 0)], T3: []}
    assert ingest(spark, filled.bootstrap, "t", str(tmp_path)).proof.rows == 20
    assert DeltaLake(str(tmp_path)).read().following() == {0: 100, 1: 30, 2: 20, 3: 0}
    filled.append(T3, numbered(0, 5, 0))
    assert ingest(spark, filled.bootstrap, "t", str(tmp_path)).proof.rows == 5
    proof = prove_table(spark, str(tmp_path))
    assert (proof.holds, proof.offsets.rows) == (True, 155)


@pytest.mark.parametrize("is_transformed", [False, True])
def test_large_records_nulls_and_equal_header_names_land_as_they_are(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path, is_transformed: bool
) -> None:
    large = random.Random(20).randbytes(20_000_000)
    headers = (("h", b"1"), ("h", None), ("h", b"1"), ("", b""))
    logs.create("t", 1)
    logs.batches_per_answer = 1
    rows = [Row(None, None, headers=headers), Row(b"", b""), Row(b"k", large)]
    for offset, row in enumerate([*rows, *rows]):
        logs.append(T0, batch([row], offset))
    report = ingest(
        spark,
        logs.bootstrap,
        "t",
        str(tmp_path),
        include_headers=True,
        transform=(lambda frame: frame) if is_transformed else None,
    )
    assert (report.proof.rows, report.proof.holds) == (6, True)
    landed = pa.concat_tables(pq.read_table(path) for path in parquet_in(tmp_path))
    landed = landed.sort_by("offset")
    assert landed.column("value").to_pylist() == [None, b"", large] * 2
    assert landed.column("key").to_pylist() == [None, b"", b"k"] * 2
    assert landed.column("headers").to_pylist()[0] == [
        {"key": key, "value": value} for key, value in headers
    ]


def test_a_recreated_topic_is_refused(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    monkeypatch.setattr(filled, "topic_id", lambda name: b"another".ljust(16))
    before = DeltaLake(str(tmp_path)).read()
    assert before.origin is not None
    cluster, now = before.origin.cluster_id, topic_id_to_text(b"another".ljust(16))
    with pytest.raises(TableError) as raised:
        ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path} was filled from a topic 't' with id {before.origin.topic_id} in cluster"
        f" {cluster}; this one has id {now} in cluster {cluster}: it was recreated, or it is"
        " another cluster. Ingest to another table"
    )
    assert DeltaLake(str(tmp_path)).read() == before


def test_rows_that_another_tool_deleted_and_added_are_named(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    table = DeltaTable(str(tmp_path))
    row = table.to_pyarrow_table().filter((pc.field("partition") == 1) & (pc.field("offset") == 7))
    table.delete("partition = 0 and offset = 42")
    write_deltalake(table, row, mode="append")
    filled.append(T1, numbered(130, 5, 30))
    report = ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert (report.version, report.proof.rows) == (4, 5), "the run goes on behind the others"
    proof = prove_table(spark, str(tmp_path))
    assert not proof.holds
    named = [(each.kind.value, each.partition, each.start, each.end) for each in proof.ranges]
    assert named == [("doubled", 1, 7, 8), ("missing", 0, 42, 43)]


def test_one_row_dropped_and_one_doubled_in_the_files_is_seen_by_both_proofs(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=with_number)
    path = files_of(tmp_path)[0]
    table = pq.read_table(path)
    tampered = table.take([*range(7), *range(8, table.num_rows), 20])
    pq.write_table(tampered, path)
    frame = read_landed(spark, str(tmp_path))
    proof = prove_sequence(frame, "n", 130)
    assert not proof.holds
    assert proof.verdict() == "130 produced, 130 in the table, 1 lost, 1 doubled"
    table_proof = prove_table(spark, str(tmp_path))
    offsets = table_proof.offsets
    assert (table_proof.holds, offsets.lost, offsets.doubled) == (False, 1, 1)
    named = [(each.kind.value, each.start, each.end) for each in table_proof.ranges]
    assert named == [("doubled", 20, 21), ("missing", 7, 8)]


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
        assert proof.verdict() == "3 produced, 3 in the table, 0 lost, 0 doubled"

    @pytest.mark.parametrize(
        ("numbers", "verdict"),
        [
            ([0, 1, 1], "3 produced, 3 in the table, 1 lost, 1 doubled"),
            ([], "3 produced, 0 in the table, 3 lost, 0 doubled"),
            ([0, 1, 2, 3], "3 produced, 4 in the table, 0 lost, 0 doubled, 1 foreign"),
            ([0, 1, 2, None], "3 produced, 4 in the table, 0 lost, 0 doubled, 1 foreign"),
            ([0, 1, 2, 2, 2], "3 produced, 5 in the table, 0 lost, 2 doubled"),
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
    assert ingest(spark, logs.bootstrap, "t", str(tmp_path)).version is None
    assert prove_table(spark, str(tmp_path)).holds


def test_rows_of_a_transform_are_written_as_records_are(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    """Files of rows from Java have the columns, types and rows of those that skip Java."""
    rows = [
        Row(None, None),
        Row(b"", b"\xff\x00", headers=(("h", b"1"), ("h", None))),
        Row(b"k", b"v"),
    ]
    filled.append(T1, batch(rows, 30))
    direct, through_spark = str(tmp_path / "direct"), str(tmp_path / "through")
    for directory, transform in ((direct, None), (through_spark, lambda frame: frame)):
        ingest(spark, filled.bootstrap, "t", directory, include_headers=True, transform=transform)
    ours, theirs = read_landed(spark, direct), read_landed(spark, through_spark)
    assert ours.schema == theirs.schema
    assert ours.count() == 133
    assert ours.exceptAll(theirs).isEmpty() and theirs.exceptAll(ours).isEmpty()
    first, second = (files_of(Path(directory))[0] for directory in (direct, through_spark))
    assert types_of(first) == types_of(second)


def spoiled(path: Path, how: str) -> str:
    """Spoil a file by hand, and return what a proof says of it."""
    if how == "removed":
        path.unlink()
        return "is missing"
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-100])
        return "cannot be read: "
    if how == "no parquet":
        path.write_bytes(b"0" * path.stat().st_size)
        return "cannot be read: "
    table = pq.read_table(path)
    if how == "a row less":
        pq.write_table(table.slice(1), path)
        return "has 29 rows; the table's log says 30"
    if how == "of another partition":
        others = pa.array([0] * 30, pa.int32())
        pq.write_table(table.set_column(3, "partition", others), path)
        return "has rows of partitions [0]; the table's log says 1"
    if how == "other offsets":
        offsets = pa.array(range(30, 60), pa.int64())
        pq.write_table(table.set_column(4, "offset", offsets), path)
        return "has offsets 30 to 60; the table's log says 0 to 30"
    values = pa.array([b"another"] * 30, pa.binary())
    pq.write_table(table.set_column(1, "value", values), path)
    return f"has {path.stat().st_size} bytes; the table's log says "


@pytest.mark.parametrize(
    "how",
    [
        "removed",
        "cut",
        "no parquet",
        "a row less",
        "of another partition",
        "other offsets",
        "other values",
    ],
)
def test_a_file_that_was_spoiled_by_hand_is_named(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, how: str
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    last = files_of(tmp_path)[-1]
    reason = spoiled(last, how)
    proof = prove_table(spark, str(tmp_path))
    assert not proof.holds
    [fault] = proof.faults
    assert tmp_path / fault.path == last
    assert fault.reason.startswith(reason), fault.reason


def test_a_copied_file_is_no_part_of_the_table_until_a_commit_names_it(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    [_, last] = DeltaLake(str(tmp_path)).files()
    copy = f"{last.path}-copy.parquet"
    shutil.copy(tmp_path / last.path, tmp_path / copy)
    assert prove_table(spark, str(tmp_path)).holds
    assert read_landed(spark, str(tmp_path)).count() == 130
    table = DeltaTable(str(tmp_path))
    again = AddAction(copy, last.size_bytes, {}, 0, True, '{"numRecords": 30}')
    table.create_write_transaction([again], "append", table.schema())
    proof = prove_table(spark, str(tmp_path))
    assert (proof.holds, proof.offsets.doubled, proof.faults) == (False, 30, ())


@pytest.mark.parametrize("name", ["_tidelog/table.json", "other.parquet"])
def test_a_directory_with_other_files_is_refused(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    reason = "of tidelog 0.9, which that version reads" if "_tidelog" in name else "'other.parquet'"
    with pytest.raises(TableError, match=reason):
        ingest(spark, filled.bootstrap, "t", str(tmp_path))


def test_a_transform_keeps_what_the_proof_counts(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    def as_text(frame: DataFrame) -> DataFrame:
        return frame.withColumn("offset", F.col("offset").cast("string"))

    def as_null(frame: DataFrame) -> DataFrame:
        return frame.withColumn("partition", F.expr("nullif(partition, 1)"))

    with pytest.raises(TableError, match="returns column 'offset' as string"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=as_text)
    with pytest.raises(TaskFailedError, match="returns 30 rows without 'partition'"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path), transform=as_null)
    with pytest.raises(OptionError, match="without is 'offset'; a table keeps it"):
        ingest(spark, filled.bootstrap, "t", str(tmp_path), without=("offset",))
    assert parquet_in(tmp_path) == []


def types_of(path: Path) -> list[tuple[str, str, str]]:
    """The columns of a Parquet file with their physical and logical types."""
    schema = pq.read_metadata(path).schema
    columns = [schema.column(number) for number in range(len(schema))]
    return [(each.path, each.physical_type, str(each.logical_type)) for each in columns]
