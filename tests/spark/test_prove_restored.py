"""Tables after backups, rollbacks and vacuums too far: each is named with its offsets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.errors import PythonException
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.cli.pipelines.verdicts import Proofs
from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.state import TableError
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.content_proof import prove_content
from tidelog.spark.pipelines.ingest import ingest, prove_table, read_landed
from tidelog.spark.pipelines.landed import TableProof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = TopicPartition("t", 0)
Fault = tuple[str, int, int, int, tuple[int, ...]]


def land(spark: SparkSession, logs: FakeLogs, table: Path, first: int, count: int) -> None:
    logs.append(T0, batch([Row(b"k", b"%d" % n) for n in range(first, first + count)], first))
    ingest(spark, logs.bootstrap, "t", str(table))


@pytest.fixture
def table(spark: SparkSession, logs: FakeLogs, tmp_path: Path) -> Path:
    """Versions 1, 2 and 3 land offsets up to 50, 80 and 100."""
    place = tmp_path / "table"
    logs.create("t", 1)
    for first, count in ((0, 50), (50, 30), (80, 20)):
        land(spark, logs, place, first, count)
    return place


def commit_file(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def named(proof: TableProof) -> list[Fault]:
    assert not proof.holds
    return [
        (each.kind.value, each.partition, each.start, each.end, each.versions)
        for each in proof.ranges
    ]


def test_a_version_rolled_back_is_refused_and_its_offsets_are_named(
    spark: SparkSession, logs: FakeLogs, table: Path
) -> None:
    DeltaTable(str(table)).restore(1)
    with pytest.raises(TableError, match="restored to version 1 .* partition 0 from 50 to 100 are"):
        land(spark, logs, table, 100, 10)
    with pytest.raises(TableError, match="restored to version 1"):
        compact(spark, str(table))
    assert named(prove_table(spark, str(table))) == [("missing", 0, 50, 100, (2, 3))]
    verdict = Proofs(spark, str(table), {}).of_offsets()
    assert not verdict.holds
    assert verdict.lines[0] == (
        "partition 0: offsets 50 to 100 are missing, landed in version 2, 3"
    )
    assert verdict.lines[1].endswith("Restore it to version 3, or ingest to another table")
    DeltaTable(str(table)).restore(3)
    ingest(spark, logs.bootstrap, "t", str(table))
    assert prove_table(spark, str(table)).offsets.rows == 110
    assert prove_table(spark, str(table)).holds


def test_an_older_commit_put_back_is_named_where_it_lies(
    spark: SparkSession, logs: FakeLogs, table: Path
) -> None:
    newest = commit_file(table, 3).read_text()
    between = commit_file(table, 2).read_text()
    shutil.copy(commit_file(table, 1), commit_file(table, 2))
    proof = prove_table(spark, str(table))
    assert named(proof) == [("missing", 0, 50, 80, ())]
    [fault] = proof.faults
    assert (fault.path, fault.reason) == (
        "the commit of version 2",
        "is that of version 1: it was put back from a backup",
    )
    commit_file(table, 2).write_text(between)
    shutil.copy(commit_file(table, 1), commit_file(table, 3))
    proof = prove_table(spark, str(table))
    assert named(proof) == [("stray", 0, 50, 80, ())]
    with pytest.raises(TableError, match="has the commit of version 1 in the place of version 3"):
        ingest(spark, logs.bootstrap, "t", str(table))
    commit_file(table, 3).write_text(newest)
    assert prove_table(spark, str(table)).holds


@pytest.mark.parametrize("what", ["table", "_delta_log"])
def test_a_backup_of_the_table_or_its_log_goes_on_where_it_ends(
    spark: SparkSession, logs: FakeLogs, table: Path, tmp_path: Path, what: str
) -> None:
    source = table if what == "table" else table / what
    shutil.copytree(source, tmp_path / "backup")
    land(spark, logs, table, 100, 10)
    shutil.rmtree(source)
    shutil.copytree(tmp_path / "backup", source)
    land(spark, logs, table, 110, 10)
    assert DeltaLake(str(table)).read().version == 4
    proof = prove_table(spark, str(table))
    assert (proof.holds, proof.offsets.rows) == (True, 120)
    assert prove_content(spark, str(table), logs.bootstrap).holds
    assert read_landed(spark, str(table)).select("value").distinct().count() == 120


def test_a_file_that_goes_before_its_task_is_named_without_a_traceback(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    """Spark reads such a path as a pattern: tasks read it themselves, as in an object store."""
    place = tmp_path / "moved[1]"
    shutil.copytree(table, place)
    frame = read_landed(spark, str(place))
    lost = DeltaLake(str(place)).files()[0].path
    (place / lost).unlink()
    with pytest.raises(PythonException) as raised:
        frame.count()
    text = str(raised.value)
    assert f"TableError: {place} has lost {lost}, a file of the version that is read" in text
    assert "Traceback" not in text


def test_a_vacuum_too_far_is_named_and_time_travel_refuses(
    spark: SparkSession, logs: FakeLogs, table: Path
) -> None:
    first = DeltaLake(str(table)).files(1)[0].path
    compact(spark, str(table), keep_hours=0)
    compact(spark, str(table), keep_hours=0)
    assert not (table / first).exists()
    assert read_landed(spark, str(table)).count() == 100
    sentence = f"has lost {first}, a file of version 1: a vacuum deleted it"
    with pytest.raises(TableError, match=sentence):
        read_landed(spark, str(table), version=1)
    land(spark, logs, table, 100, 10)
    lost = DeltaLake(str(table)).files()[0]
    (table / lost.path).unlink()
    with pytest.raises(TableError, match="a file of the newest version"):
        read_landed(spark, str(table))
    proof = prove_table(spark, str(table))
    [fault] = proof.faults
    assert fault.path == lost.path
    assert fault.reason == (f"is missing, with offsets {lost.start} to {lost.end} of partition 0")
    [(kind, _, start, end, _)] = named(proof)
    assert (kind, start, end) == ("missing", lost.start, lost.end)
