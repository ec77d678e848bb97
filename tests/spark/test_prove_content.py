"""Content of tables, compared with the log: what differs is named, whatever wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tests.spark.commands import pipeline
from tests.support.client.fake_logs import FakeLogs
from tests.support.client.fake_logs import batch as transactional
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.cli.pipelines.verdicts import Proofs
from tidelog.core.types import TopicPartition
from tidelog.records.control import ABORT, build_end_marker
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.state import TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.content_proof import ContentProof, prove_content
from tidelog.spark.pipelines.counting import OffsetColumns
from tidelog.spark.pipelines.ingest import ingest, prove_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OF_T = OffsetColumns("p", "o", topic="t")


def records(first: int, count: int, base_offset: int) -> bytes:
    rows = [
        Row(None if n % 7 == 0 else b"k%d" % n, b"value %d" % n, 1_000 * n, [("h", b"%d" % n)])
        for n in range(first, first + count)
    ]
    return batch(rows, base_offset)


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    logs.append(T0, records(0, 50, 0), records(50, 50, 50))
    logs.append(T1, records(100, 30, 0))
    return logs


def changed(table: Path, partition: int, row: int, **values: Any) -> str:
    """Change a row of the partition's first file; the footer keeps its bounds. Return the file."""
    file = next(each for each in lake_at(str(table), {}).files() if each.partition == partition)
    rows = pq.read_table(table / file.path)
    for name, value in values.items():
        place = rows.schema.get_field_index(name)
        column = rows.column(place).to_pylist()
        column[row] = value
        rows = rows.set_column(
            place, rows.schema.field(place), pa.array(column, rows.schema.field(place).type)
        )
    pq.write_table(rows, table / file.path)
    return file.path


def found(proof: ContentProof) -> list[tuple[int, int, int, tuple[str, ...]]]:
    return [(each.partition, each.start, each.end, each.columns) for each in proof.faults]


def test_rows_that_were_changed_in_place_are_named_with_their_columns(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path), include_headers=True)
    good = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert good.holds
    assert good.columns == ("key", "value", "timestamp", "timestampType", "headers")
    assert [(each.rows, each.compared) for each in good.partitions] == [(100, 100), (30, 30)]

    changed(tmp_path, 0, 7, key=b"")
    changed(tmp_path, 0, 8, value=b"another")
    changed(tmp_path, 0, 60, value=None, headers=[{"key": "h", "value": None}])
    path = changed(tmp_path, 1, 29, timestampType=1)
    offsets = prove_table(spark, str(tmp_path)).offsets
    assert offsets.holds, "no offset is missing"
    proof = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert found(proof) == [
        (0, 7, 8, ("key",)),
        (0, 8, 9, ("value",)),
        (0, 60, 61, ("value", "headers")),
        (1, 29, 30, ("timestampType",)),
    ]
    assert proof.faults[-1].file == path
    assert [each.differing for each in proof.partitions] == [3, 1]
    some = prove_content(spark, str(tmp_path), filled.bootstrap, compare=["key", "timestamp"])
    assert (some.columns, found(some)) == (("key", "timestamp"), [(0, 7, 8, ("key",))])


def test_blocks_of_any_size_and_merged_files_give_the_same(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    filled.append(T1, records(130, 20, 30))
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    assert len(compact(spark, str(tmp_path)).after) == 2
    changed(tmp_path, 0, 3, value=b"x")
    changed(tmp_path, 0, 4, value=b"x")
    proof = prove_content(spark, str(tmp_path), filled.bootstrap, block_rows=7)
    assert found(proof) == [(0, 3, 5, ("value",))]
    assert sum(each.compared for each in proof.partitions) == 150


def test_files_that_lack_a_later_column_are_compared_in_the_others(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    filled.append(T1, records(130, 20, 30))
    ingest(spark, filled.bootstrap, "t", str(tmp_path), include_headers=True)
    changed(tmp_path, 0, 3, value=b"x")
    proof = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert "headers" in proof.columns
    assert found(proof) == [(0, 3, 4, ("value",))]


def test_columns_that_partition_a_table_are_not_compared(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path), partition_by=("partition", "timestampType"))
    assert prove_table(spark, str(tmp_path)).holds
    changed(tmp_path, 1, 3, value=b"x")
    proof = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert proof.columns == ("key", "value", "timestamp")
    assert found(proof) == [(1, 3, 4, ("value",))]
    assert sum(each.compared for each in proof.partitions) == 130


def test_the_log_says_nothing_below_its_start_and_of_what_compaction_removed(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    filled.log_starts[T0] = 60
    filled.batches[T1] = [rewritten(records(110, 20, 10), base_offset=10)]
    changed(tmp_path, 0, 59, value=b"not seen")
    proof = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert not proof.holds, "a log that is not compacted has each record"
    assert found(proof) == [(1, 0, 10, ())]
    [first, second] = proof.partitions
    assert (first.unreached, first.compared, first.log_start) == (60, 40, 60)
    assert (second.unknown, second.compared) == (10, 20)
    filled.configs[(2, "t")] = {"cleanup.policy": ("compact", 1)}
    proof = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert (proof.holds, proof.faults) == (True, ())
    assert [(each.unreached, each.removed) for each in proof.partitions] == [(60, 0), (0, 10)]
    lines = Proofs(spark, str(tmp_path), {}, None, filled.bootstrap).of_content(()).lines
    assert lines[:2] == [
        "partition 0: 60 rows at offsets 0 to 60 lie below the log's start",
        "partition 1: compaction removed the records of 10 rows from the log",
    ]
    filled.batches[T1].insert(0, transactional(4, b"x", b"y", producer=7))
    filled.aborted[T1] = [(7, 4)]
    proof = prove_content(spark, str(tmp_path), filled.bootstrap)
    assert found(proof) == [(1, 4, 6, ())], "compaction removes offsets, and these are aborted"
    assert (proof.partitions[1].unknown, proof.partitions[1].removed) == (2, 8)


def test_rows_of_aborted_records_and_beyond_the_log_have_no_record(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    """What another tool lands that reads uncommitted records."""
    filled.append(
        T1,
        transactional(30, b"no", b"no", producer=7),
        rewritten(bytes(build_end_marker(ABORT, 7, 0, 0, 1)), base_offset=32),
        rewritten(batch([Row()], 33), attributes=CONTROL),
    )
    filled.aborted[T1] = [(7, 30)]
    offsets = [28, 29, 30, 31, 40]
    values = [b"value 128", b"value 129", b"no", b"no", b"later"]
    rows = pa.table({"p": [1] * 5, "o": offsets, "value": values, "key": ["text"] * 5})
    write_deltalake(str(tmp_path), rows)
    proof = prove_content(spark, str(tmp_path), filled.bootstrap, offsets=OF_T)
    assert proof.columns == ("value",), "a column of another type is not compared"
    assert found(proof) == [(1, 30, 32, ()), (1, 40, 41, ())]
    [only] = proof.partitions
    assert (only.compared, only.differing, only.unknown, only.beyond) == (2, 0, 2, 1)


def test_foreign_tables_in_any_order_and_partitioned(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    values = [b"value %d" % n for n in range(30)]
    values[11] = b"value 12"
    rows = pa.table({"p": [0] * 30, "o": [*range(29, -1, -1)], "value": values[::-1]})
    other = pa.table({"p": [1, 1, 1], "o": [2, 0, 2], "value": [b"value 102", b"value 100", b""]})
    write_deltalake(str(tmp_path), rows, partition_by=["p"])
    write_deltalake(str(tmp_path), other, mode="append", partition_by=["p"])
    proof = prove_content(spark, str(tmp_path), filled.bootstrap, offsets=OF_T)
    assert found(proof) == [(0, 11, 12, ("value",)), (1, 2, 3, ("value",))]
    assert [each.differing for each in proof.partitions] == [1, 1]


def test_what_cannot_be_compared_is_refused(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path / "t"))
    with pytest.raises(OptionError, match="column 'headers' cannot be compared .* has key, value"):
        prove_content(spark, str(tmp_path / "t"), filled.bootstrap, compare=["headers"])
    with pytest.raises(TableError, match="nowhere holds no table"):
        prove_content(spark, str(tmp_path / "nowhere"), filled.bootstrap)
    write_deltalake(str(tmp_path / "n"), pa.table({"p": [0], "o": [1], "value": ["text"]}))
    with pytest.raises(TableError, match="has neither the key nor the value of the records"):
        prove_content(spark, str(tmp_path / "n"), filled.bootstrap, offsets=OF_T)
    with pytest.raises(OptionError, match="needs the topic"):
        columns = OffsetColumns("key", "offset")
        prove_content(spark, str(tmp_path / "t"), filled.bootstrap, offsets=columns)


def test_the_log_of_another_topic_or_cluster_is_not_compared(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    ingest(spark, filled.bootstrap, "t", str(tmp_path))
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    before = log.read_text()
    log.write_text(before.replace('\\"fake\\"', '\\"other\\"'))
    with pytest.raises(TableError, match="in cluster other; these brokers are of cluster fake"):
        prove_content(spark, str(tmp_path), filled.bootstrap)
    log.write_text(before)
    filled.topic_id = lambda name: bytes(range(16))  # type: ignore[method-assign]  # recreated
    with pytest.raises(TableError, match="was deleted: the topic of this name now has id AAEC"):
        prove_content(spark, str(tmp_path), filled.bootstrap)


def test_the_command_compares_after_it_counted(
    filled: FakeLogs, spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    ingest(spark, filled.bootstrap, "t", table)
    path = changed(tmp_path / "table", 0, 8, value=b"another")
    ran = pipeline("prove", table, "--deep", "-b", filled.bootstrap)
    assert ran.returncode == 1, ran.stderr
    lines = ran.stdout.splitlines()
    assert f"partition 0: offsets 8 to 9 differ from the log in value, in {path}" in lines
    assert lines[-1] == (
        "130 rows compared with the log in key, value, timestamp, timestampType: 1 differ,"
        " 0 beyond the log's reach"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--deep",), "--deep needs --bootstrap-server"),
        (("--compare", "key"), "--compare belongs to --deep"),
    ],
)
def test_options_that_need_others_are_refused_before_spark_starts(
    words: tuple[str, ...], sentence: str
) -> None:
    ran = pipeline("prove", "nowhere", *words)
    assert ran.returncode == 2
    assert sentence in " ".join(ran.stderr.replace("│", " ").split())
