"""Upserts by ingests: the latest row of each key, whatever batches, keys and races come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.client.configs import TOPIC
from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.iceberg_library import CATALOG_FILE
from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.state import LakeState, TableChange, TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines import upserts
from tidelog.spark.pipelines.compact import CompactionReport, compact
from tidelog.spark.pipelines.ingest import ingest, read_landed
from tidelog.spark.pipelines.landing import BadRecordsError, ProofError
from tidelog.spark.pipelines.latest_rows import UpsertKeyError, superseded
from tidelog.spark.pipelines.parsing import json_columns
from tidelog.spark.pipelines.upsert_proof import prove_upserts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
KEY = ("key",)


@pytest.fixture
def log(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    return logs


def put(logs: FakeLogs, tp: TopicPartition, *changes: tuple[str | None, str | None]) -> None:
    """Append a record for each change: a key and its new value, or None for a tombstone."""
    rows = [
        Row(None if key is None else key.encode(), None if value is None else value.encode())
        for key, value in changes
    ]
    logs.append(tp, batch(rows, logs.end(tp)))


def held(spark: SparkSession, table: Path) -> list[tuple[str, str]]:
    """Keys with their values, in order, each as often as it is in the table."""
    rows = read_landed(spark, str(table)).collect()
    return sorted((bytes(row.key).decode(), bytes(row.value).decode()) for row in rows)


def test_changes_of_a_batch_and_of_later_ones(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1"))
    put(log, T1, ("x", "1"), ("unknown", None))
    report = ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert (report.proof.rows, report.version) == (7, 1)
    assert held(spark, tmp_path) == [("a", "2"), ("c", "1"), ("x", "1")]
    put(log, T0, ("c", None), ("b", "2"), ("a", "3"), ("a", "4"))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert held(spark, tmp_path) == [("a", "4"), ("b", "2"), ("x", "1")]
    assert ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY).version is None
    state = DeltaLake(str(tmp_path)).read()
    assert state.following() == {0: 9, 1: 2}
    named = {tmp_path / file.path for file in DeltaLake(str(tmp_path)).files()}
    older = {tmp_path / file.path for file in DeltaLake(str(tmp_path)).files(1)}
    assert set(tmp_path.rglob("*.parquet")) == named | older, "no staged file is left"
    assert read_landed(spark, str(tmp_path), version=1).count() == 3


def test_an_iceberg_table_and_its_own_reader(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    table, options = "iceberg:landed.t", {"warehouse": str(tmp_path)}
    put(log, T0, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, T1, ("x", "1"))
    ingest(spark, log.bootstrap, "t", table, upsert_by=KEY, storage_options=options)
    put(log, T0, ("b", None), ("a", "3"), ("c", "1"))
    ingest(spark, log.bootstrap, "t", table, upsert_by=KEY, storage_options=options)
    uri = f"sqlite:///{tmp_path / CATALOG_FILE}"
    with load_catalog(None, type="sql", uri=uri, warehouse=str(tmp_path)) as catalog:
        rows = catalog.load_table("landed.t").scan().to_arrow().select(["key", "value"])
    found = sorted(tuple(row.values()) for row in rows.to_pylist())
    assert found == [(b"a", b"3"), (b"c", b"1"), (b"x", b"1")]
    compact(spark, table, storage_options=options)
    proof = prove_upserts(spark, table, log.bootstrap, storage_options=options)
    assert (proof.holds, proof.rows) == (True, 3)
    with pytest.raises(TableError, match="has the latest row of each key"):
        ingest(spark, log.bootstrap, "t", table, storage_options=options)


def test_modes_and_keys_do_not_mix(spark: SparkSession, log: FakeLogs, tmp_path: Path) -> None:
    put(log, T0, ("a", "1"))
    latest, every = str(tmp_path / "latest"), str(tmp_path / "every")
    ingest(spark, log.bootstrap, "t", latest, upsert_by=KEY)
    ingest(spark, log.bootstrap, "t", every)
    put(log, T0, ("a", "2"))
    with pytest.raises(TableError, match=r"has the latest row of each key \(key\), and this run"):
        ingest(spark, log.bootstrap, "t", latest)
    with pytest.raises(TableError, match="has a row for each record, and this run would add the"):
        ingest(spark, log.bootstrap, "t", every, upsert_by=KEY)
    with pytest.raises(TableError, match=r"row of each key \(timestamp\); ingest as before, or"):
        ingest(spark, log.bootstrap, "t", latest, upsert_by=("timestamp",))
    with pytest.raises(TableError, match="the key's column 'no' is no column"):
        ingest(spark, log.bootstrap, "t", str(tmp_path / "new"), upsert_by=("no",))
    with pytest.raises(OptionError, match="upsert_by is 'key', which is no column of the table"):
        ingest(spark, log.bootstrap, "t", latest, upsert_by=KEY, without=("key",))
    with pytest.raises(OptionError, match="without is 'value'; an upsert finds tombstones by it"):
        ingest(spark, log.bootstrap, "t", latest, upsert_by=KEY, without=("value",))


def test_a_null_key_is_refused_and_nothing_stays(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("a", '{"n": 1}'), (None, '{"n": 1}'))
    direct, parsed = str(tmp_path / "direct"), str(tmp_path / "parsed")
    with pytest.raises(UpsertKeyError, match="t-0 at offset 1 has no key"):
        ingest(spark, log.bootstrap, "t", direct, upsert_by=KEY)
    transform = json_columns(spark, "n long", tombstones=True)
    with pytest.raises(BadRecordsError, match="t-0 at offset 1 does not fit: key is null, and an"):
        ingest(spark, log.bootstrap, "t", parsed, upsert_by=KEY, transform=transform)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_json_values_and_tombstones(spark: SparkSession, log: FakeLogs, tmp_path: Path) -> None:
    put(log, T0, ("a", '{"n": 1}'), ("b", '{"n": 1}'), ("a", None))
    transform = json_columns(spark, "n long", tombstones=True)
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY, transform=transform)
    rows = read_landed(spark, str(tmp_path)).select("key", "n").collect()
    assert [(bytes(row.key), row.n) for row in rows] == [(b"b", 1)]


def test_a_tombstone_of_columns_has_them_in_its_json_key(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("?", '{"n": 1}'), ("?", '{"n": 2}'), ('{"n": 1}', None))
    transform = json_columns(spark, "n long", tombstones=True)
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=("n",), transform=transform)
    assert [row.n for row in read_landed(spark, str(tmp_path)).collect()] == [2]
    put(log, T0, ("?", None))
    with pytest.raises(BadRecordsError, match="at offset 3 does not fit: n is null, and an upsert"):
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=("n",), transform=transform)


def test_keys_that_are_no_utf_8_do_not_become_one(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    log.append(T0, batch([Row(b"?", b'{"n": "\xff"}'), Row(b"?", b'{"n": "\xfe"}')], 0))
    transform = json_columns(spark, "n string", tombstones=True)
    with pytest.raises(BadRecordsError, match="at offset 0 does not fit: the value is no UTF-8"):
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by="n", transform=transform)


def test_marks_in_another_case_are_refused(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    for name in ("Tombstone", "ERROR"):
        with pytest.raises(TableError, match=f"column '{name}': the mark is '{name.lower()}'"):
            ingest(
                spark,
                log.bootstrap,
                "t",
                str(tmp_path),
                transform=lambda frame: frame.selectExpr("*", f"null as {name}"),  # noqa: B023
            )


def test_an_empty_text_is_no_key_where_it_is_null_in_the_table(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("k", "1:DE:x"), ("k", "2::x"))
    table, letters = str(tmp_path / "table"), str(tmp_path / "bad")

    def transform(frame: DataFrame) -> DataFrame:
        return numbers(frame).withColumn("place", F.coalesce("place", F.lit("")))

    ingest(
        spark,
        log.bootstrap,
        "t",
        table,
        upsert_by="place",
        partition_by="place",
        transform=transform,
        dead_letter=letters,
    )
    [row] = read_landed(spark, table).collect()
    assert (row.id, row.place) == (1, "DE")
    assert prove_upserts(spark, table, log.bootstrap, transform=transform).holds


def numbers(frame: DataFrame) -> DataFrame:
    """The columns of a row per word: ID:GROUP:VALUE; a value `-` deletes, and has the key alone."""
    text = "cast(value as string)"
    return frame.selectExpr(
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        f"cast(nullif(split({text}, ':')[0], '') as long) as id",
        f"nullif(split({text}, ':')[1], '') as place",
        f"split({text}, ':')[2] as note",
        f"coalesce(split({text}, ':')[2] = '-', true) as tombstone",
    )


def noted(spark: SparkSession, table: Path) -> list[tuple[int, str, str]]:
    frame = read_landed(spark, str(table))
    assert frame.columns == ["topic", "partition", "offset", "id", "place", "note"]
    return sorted((row.id, row.place, row.note) for row in frame.collect())


def ingest_numbers(spark: SparkSession, logs: FakeLogs, table: Path, **more: Any) -> None:
    without = ("key", "value")
    by = ("id",)
    ingest(
        spark,
        logs.bootstrap,
        "t",
        str(table),
        upsert_by=by,
        transform=numbers,
        without=without,
        **more,
    )


@pytest.mark.parametrize(
    "partition_by", [("place",), ("id",), pytest.param((), marks=pytest.mark.soak)], ids=str
)
def test_a_delete_that_has_only_the_key_and_columns_that_change(
    spark: SparkSession, log: FakeLogs, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """Other sinks look for the row where the delete's other columns say, and leave it."""
    put(log, T0, ("k", "1:DE:x"), ("k", "2:FR:x"), ("k", "3:FR:x"))
    ingest_numbers(spark, log, tmp_path, partition_by=partition_by)
    put(log, T0, ("k", "1::-"), ("k", "2:DE:y"))
    ingest_numbers(spark, log, tmp_path)
    assert noted(spark, tmp_path) == [(2, "DE", "y"), (3, "FR", "x")]
    assert prove_upserts(spark, str(tmp_path), log.bootstrap, transform=numbers).holds


def test_rows_without_a_key_are_dead_letters(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("k", "1:DE:x"), ("k", ":DE:x"))
    table = tmp_path / "table"
    with pytest.raises(BadRecordsError, match="offset 1 does not fit: id is null, and an upsert"):
        ingest_numbers(spark, log, table)
    ingest_numbers(spark, log, table, dead_letter=str(tmp_path / "bad"))
    assert noted(spark, table) == [(1, "DE", "x")]
    assert DeltaLake(str(table)).read().partitions[0].dead == 1


def test_a_key_that_moves_to_another_partition_is_refused(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("a", "1"))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    put(log, T1, ("a", None))
    with pytest.raises(UpsertKeyError, match="key b'a' is in partitions 0 .offset 0. and 1"):
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert held(spark, tmp_path) == [("a", "1")]


def test_gaps_of_compaction_are_no_loss_where_the_topic_is_compacted(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    put(log, T0, ("a", "1"), ("b", "1"), ("a", "2"))
    log.append(T0, batch([Row(b"c", b"1")], 5))
    with pytest.raises(ProofError, match="t-0 from 0 to 6: 2 lost"):
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    log.configs[(TOPIC, "t")] = {"cleanup.policy": ("compact", 1)}
    report = ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert report.proof.partitions[0].compacted == 2
    assert held(spark, tmp_path) == [("a", "2"), ("b", "1"), ("c", "1")]


@pytest.fixture(params=["driver", "tasks", pytest.param("keys in tasks", marks=pytest.mark.soak)])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where keys are compared and files are written."""
    if request.param != "driver":
        monkeypatch.setattr(upserts, "DRIVER_ROWS", 0)
        monkeypatch.setattr(upserts, "KEYS_PER_TASK", 3)
    if request.param == "keys in tasks":
        monkeypatch.setattr(upserts, "DRIVER_KEYS", 6)
    if request.param == "tasks":
        monkeypatch.setattr(upserts, "DRIVER_KEYS", 0)
    yield request.param


def test_tasks_and_driver_make_the_same_rows(
    spark: SparkSession, log: FakeLogs, tmp_path: Path, where: str
) -> None:
    put(log, T0, *[(f"a{n}", "1") for n in range(10)])
    put(log, T1, *[(f"b{n}", "1") for n in range(5)])
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY, target_file_bytes=1)
    put(log, T0, ("a3", "2"), ("a3", "3"), ("a9", None), ("a2", "2"), ("a2", None), ("new", "1"))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    kept = [(f"a{n}", "1") for n in (0, 1, 4, 5, 6, 7, 8)] + [(f"b{n}", "1") for n in range(5)]
    assert held(spark, tmp_path) == sorted([*kept, ("a3", "3"), ("new", "1")])
    put(log, T1, ("a1", "1"))
    with pytest.raises(UpsertKeyError, match="key b'a1' is in partitions"):
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)


def test_marked_rows_in_tasks(
    spark: SparkSession, log: FakeLogs, tmp_path: Path, where: str
) -> None:
    put(log, T0, ("k", "1:DE:x"), ("k", "2:FR:x"), ("k", "2:FR:-"), ("k", "4:FR:x"))
    put(log, T1, ("k", "7:DE:x"))
    ingest_numbers(spark, log, tmp_path)
    put(log, T1, ("k", "8:DE:x"))
    ingest_numbers(spark, log, tmp_path)
    assert noted(spark, tmp_path) == [
        (1, "DE", "x"),
        (4, "FR", "x"),
        (7, "DE", "x"),
        (8, "DE", "x"),
    ]


def test_a_compaction_between_upserts(spark: SparkSession, log: FakeLogs, tmp_path: Path) -> None:
    for number in range(3):
        put(log, T0, (f"a{number}", "1"), ("b", str(number)))
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert compact(spark, str(tmp_path)).version is not None
    put(log, T0, ("a1", "2"), ("b", None))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert held(spark, tmp_path) == [("a0", "1"), ("a1", "2"), ("a2", "1")]


def test_files_of_another_tool_that_merges_partitions_and_sorts_by_key(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    """An offset is in several partitions of such a file, and offsets do not ascend."""
    put(log, T0, *[(f"{9 - n}", "1") for n in range(10)])
    put(log, T1, *[(f"b{n}", "1") for n in range(4)])
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    DeltaTable(str(tmp_path)).optimize.z_order(["key"])
    [merged] = DeltaLake(str(tmp_path)).files()
    assert (merged.partition, merged.rows) == (-1, 14)
    put(log, T0, ("8", "2"), ("1", "2"))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    rest = [(f"{n}", "2" if n in (1, 8) else "1") for n in range(10)]
    assert held(spark, tmp_path) == [*rest, *[(f"b{n}", "1") for n in range(4)]]
    assert sorted(each.partition for each in DeltaLake(str(tmp_path)).files()) == [0, 0, 1]
    DeltaTable(str(tmp_path)).delete("partition = 1 and offset = 0")  # its file has views of bytes
    put(log, T1, ("b3", None))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert held(spark, tmp_path) == [*rest, ("b1", "1"), ("b2", "1")]


@pytest.mark.parametrize("comes_in", [True, False])
def test_a_lost_answer_of_a_commit(
    spark: SparkSession,
    log: FakeLogs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    comes_in: bool,
) -> None:
    put(log, T0, ("a", "1"), ("b", "1"))
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    put(log, T0, ("a", "2"), ("b", None))
    commit = DeltaLake.commit
    calls: list[str] = []

    def losing(lake: DeltaLake, state: LakeState, change: TableChange) -> CommitAnswer:
        calls.append(change.run)
        if len(calls) == 1:
            if comes_in:
                commit(lake, state, change)
            return CommitAnswer.LOST
        return commit(lake, state, change)

    monkeypatch.setattr(DeltaLake, "commit", losing)
    report = ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert (report.version, len(calls)) == (2, 1 if comes_in else 2)
    assert held(spark, tmp_path) == [("a", "2")]


@pytest.mark.parametrize("other", ["upsert", "compaction"])
def test_another_commit_between_reading_and_committing(
    spark: SparkSession,
    log: FakeLogs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: str,
) -> None:
    for number in range(2):
        put(log, T0, (f"a{number}", "1"), ("b", str(number)))
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    put(log, T0, ("a0", "2"), ("c", "1"))
    commit = DeltaLake.commit
    calls: list[str] = []

    def overtaken(lake: DeltaLake, state: LakeState, change: TableChange) -> CommitAnswer:
        calls.append(change.run)
        if len(calls) == 1:
            if other == "upsert":
                ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
                put(log, T0, ("a1", None))
            else:
                assert compact(spark, str(tmp_path)).version is not None
        return commit(lake, state, change)

    monkeypatch.setattr(DeltaLake, "commit", overtaken)
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    rest = [] if other == "upsert" else [("a1", "1")]
    assert held(spark, tmp_path) == [("a0", "2"), *rest, ("b", "1"), ("c", "1")]
    assert DeltaLake(str(tmp_path)).read().following()[0] == log.end(T0)


def test_files_that_a_compaction_deletes_while_an_upsert_reads_them(
    spark: SparkSession, log: FakeLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        put(log, T0, (f"a{number}", "1"))
        ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    put(log, T0, ("a0", "2"))
    reports: list[CompactionReport] = []

    def compacted(rows: pa.Table) -> pa.Table:
        if not reports:
            reports.append(compact(spark, str(tmp_path), keep_hours=0))
            assert reports[0].deleted == 2
        return superseded(rows)

    monkeypatch.setattr(upserts, "superseded", compacted)
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    assert held(spark, tmp_path) == [("a0", "2"), ("a1", "1")]
