"""The proof of latest rows: a replay of the topic names each key that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from tests.spark.test_upserts import KEY, T0, T1, put
from tests.support.client.fake_logs import FakeLogs

from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.state import TableError
from tidelog.spark.pipelines.ingest import ingest, prove_table
from tidelog.spark.pipelines.landing import Transform
from tidelog.spark.pipelines.upsert_proof import KeyFaultKind, UpsertProof, prove_upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def log(logs: FakeLogs) -> FakeLogs:
    """Four keys of one partition, one of another; two of the first were changed or deleted."""
    logs.create("t", 2)
    put(logs, T0, ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("b", "2"), ("d", None))
    put(logs, T1, ("x", "1"))
    return logs


@pytest.fixture
def table(spark: SparkSession, log: FakeLogs, tmp_path: Path) -> Path:
    ingest(spark, log.bootstrap, "t", str(tmp_path), upsert_by=KEY)
    return tmp_path


def rewrite(table: Path, change: Any) -> None:
    """Change the rows of the first partition's file, by a commit of another tool."""
    [file] = [each for each in DeltaLake(str(table)).files() if each.partition == 0]
    rows = change(pq.read_table(table / file.path))
    pq.write_table(rows, table / "foreign.parquet")
    size = (table / "foreign.parquet").stat().st_size
    stats = f'{{"numRecords": {rows.num_rows}}}'
    opened = DeltaTable(str(table))
    opened.create_write_transaction(
        [
            AddAction("foreign.parquet", size, {}, 0, True, stats),
            RemoveAction(file.path, True, 0, file.size_bytes, {}),
        ],
        "append",
        opened.schema(),
    )


def faults(proof: UpsertProof) -> list[tuple[str, str]]:
    named = [(str(each.kind), each.key) for each in proof.faults]
    assert sum(proof.counts.values()) == len(named)
    return named


def test_a_whole_table(spark: SparkSession, log: FakeLogs, table: Path) -> None:
    put(log, T0, ("a", "later"), ("new", "1"))
    proof = prove_upserts(spark, str(table), log.bootstrap)
    assert (proof.holds, proof.version, proof.rows, proof.unreached) == (True, 1, 4, 0)
    assert proof.verdict == (
        "4 rows, 0 missing, 0 stale, 0 extra, 0 doubled, 0 differing, 0 beyond the log's reach"
    )


def test_each_fault_is_named(spark: SparkSession, log: FakeLogs, table: Path) -> None:
    def spoil(rows: pa.Table) -> pa.Table:
        """Rows a, c, b: c is doubled, b of its first record, a missing, d there, e unknown."""
        [a, c, b] = rows.to_pylist()
        stale, deleted = {**b, "offset": 1, "value": b"1"}, {**b, "key": b"d", "offset": 3}
        unknown = {**a, "key": b"e", "offset": 5}
        return pa.Table.from_pylist([c, c, stale, deleted, unknown], schema=rows.schema)

    rewrite(table, spoil)
    proof = prove_upserts(spark, str(table), log.bootstrap)
    assert not proof.holds
    assert faults(proof) == [
        ("missing", "a"),
        ("stale", "b"),
        ("doubled", "c"),
        ("doubled", "c"),
        ("extra", "d"),
        ("extra", "e"),
    ]
    stale = proof.faults[1]
    assert (stale.partition, stale.offset, stale.log_offset) == (0, 1, 4)
    assert proof.verdict.startswith("6 rows, 1 missing, 1 stale, 2 extra, 2 doubled, 0 differing")


def test_a_row_with_another_value(spark: SparkSession, log: FakeLogs, table: Path) -> None:
    def change(rows: pa.Table) -> pa.Table:
        values = pa.array([b"other", *rows.column("value").to_pylist()[1:]])
        return rows.set_column(rows.schema.get_field_index("value"), "value", values)

    rewrite(table, change)
    proof = prove_upserts(spark, str(table), log.bootstrap)
    assert faults(proof) == [(KeyFaultKind.DIFFERING, "a")]


def test_rows_from_before_a_column_empty_texts_and_another_session_zone(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    """None of these is a fault, but another value in a later row is."""

    def transform(*more: str) -> Transform:
        own = ("key", "value", "string(key) as name", "if(key = 'a', '', null) as place")
        local = "timestamp_ntz'2026-01-02 00:00:00' as local"
        return lambda frame: frame.selectExpr("topic", "partition", "offset", *own, local, *more)

    def land(form: Transform) -> None:
        ingest(
            spark,
            log.bootstrap,
            "t",
            str(tmp_path),
            transform=form,
            upsert_by="name",
            partition_by="place",
        )

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        land(transform())
        put(log, T0, ("c", "2"), ("b", "3"))
        land(transform("string(value) as text"))
        later = transform("string(value) as text")
        proof = prove_upserts(spark, str(tmp_path), log.bootstrap, transform=later)
        assert (proof.holds, proof.rows) == (True, 4), proof.verdict
        other = transform("if(key = 'c', 'other', string(value)) as text")
        proof = prove_upserts(spark, str(tmp_path), log.bootstrap, transform=other)
        assert faults(proof) == [(KeyFaultKind.DIFFERING, "c")]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_records_that_compaction_has_removed_since(
    spark: SparkSession, log: FakeLogs, table: Path
) -> None:
    """The log keeps the later records of a and c, which replaces a, and deletes c."""
    put(log, T0, ("a", "2"), ("c", None))
    log.batches[T0] = log.batches[T0][1:]
    put(log, T0, ("b", "2"))
    proof = prove_upserts(spark, str(table), log.bootstrap)
    assert (proof.holds, proof.rows, proof.unreached) == (True, 4, 3)


def test_a_missing_file_and_other_tables(
    spark: SparkSession, log: FakeLogs, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(TableError, match=r"has the latest row of each key \(key\)"):
        prove_table(spark, str(table))
    every = str(tmp_path / "every")
    ingest(spark, log.bootstrap, "t", every)
    with pytest.raises(TableError, match="has a row for each record"):
        prove_upserts(spark, every, log.bootstrap)
    with pytest.raises(TableError, match="holds no table"):
        prove_upserts(spark, str(tmp_path / "none"), log.bootstrap)
    (table / DeltaLake(str(table)).files()[0].path).unlink()
    proof = prove_upserts(spark, str(table), log.bootstrap)
    assert (proof.holds, proof.verdict) == (False, "1 wrong files; the topic was not replayed")
