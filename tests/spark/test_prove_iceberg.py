"""Iceberg tables that other tools have landed, proved by their columns and by their content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from tests.support.client.fake_logs import FakeLogs
from tests.support.iceberg import add_position_deletes
from tests.support.spark import Row, batch

from tidelog.cli.output import OutputFormat
from tidelog.cli.pipelines.verdicts import Proofs
from tidelog.core.types import TopicPartition
from tidelog.spark.lake.iceberg_library import CATALOG_FILE
from tidelog.spark.lake.state import TableError
from tidelog.spark.pipelines.column_proof import PartitionOffsets, prove_columns
from tidelog.spark.pipelines.content_proof import prove_content
from tidelog.spark.pipelines.counting import OffsetColumns
from tidelog.spark.pipelines.ingest import ingest, prove_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = TopicPartition("t", 0)
COLUMNS = OffsetColumns("kafka.partition", "kafka.offset", topic="t")
PLACE = "iceberg:sinks.orders"
PLACES = pa.struct([("partition", pa.int32()), ("offset", pa.int64())])


def rows(partition: int, *offsets: int) -> pa.Table:
    """Rows as a sink of another project writes them."""
    places = [{"partition": partition, "offset": offset} for offset in offsets]
    values = [b"v%d" % offset for offset in offsets]
    return pa.table({"kafka": pa.array(places, PLACES), "value": pa.array(values, pa.binary())})


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"warehouse": str(tmp_path)}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    uri = f"sqlite:///{tmp_path}/{CATALOG_FILE}"
    with load_catalog(None, type="sql", uri=uri, warehouse=str(tmp_path)) as found:
        yield found


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with offsets [0, 10) and [10, 30) of partition 0, in two snapshots."""
    catalog.create_namespace("sinks")
    made = catalog.create_table("sinks.orders", rows(0).schema)
    made.append(rows(0, *range(10)))
    made.append(rows(0, *range(10, 30)))
    return made


def test_a_file_that_was_added_twice_is_named_with_its_snapshots(
    spark: SparkSession, table: Table, options: dict[str, str]
) -> None:
    good = prove_columns(spark, PLACE, COLUMNS, storage_options=options)
    assert good.holds
    assert good.partitions == (PartitionOffsets(0, 0, 30, 30, 0, 0),)
    path = f"{table.location()}/data/again.parquet"
    pq.write_table(rows(0, *range(30, 40)), path.removeprefix("file://"))
    for _ in range(2):
        table.add_files([path], check_duplicate_files=False)
    table.append(rows(0, *range(42, 50)))
    proof = prove_columns(spark, PLACE, COLUMNS, storage_options=options)
    [doubled, missing] = proof.offsets
    assert (doubled.kind, doubled.start, doubled.end) == ("doubled", 30, 40)
    assert doubled.files == ("data/again.parquet",)
    ids = [each.snapshot_id for each in table.refresh().snapshots()]
    assert sorted(proof.added_in["data/again.parquet"]) == sorted(ids[2:4])
    assert (missing.kind, missing.start, missing.end) == ("missing", 40, 42)
    assert proof.added_in[missing.files[1]] == (ids[4],)
    verdict = Proofs(
        spark, PLACE, options, ("kafka.partition", "kafka.offset", None, None)
    ).of_columns()
    assert any("data/again.parquet (snapshot " in line for line in verdict.lines)
    assert verdict.lines[-1].endswith("10 doubled")


def test_a_foreign_expiry_hides_nothing_and_lost_files_are_named(
    spark: SparkSession, catalog: Catalog, options: dict[str, str]
) -> None:
    catalog.create_namespace("sinks")
    schema = pa.schema([("p", pa.int32()), ("o", pa.int64())])
    table = catalog.create_table("sinks.orders", schema)
    for offsets in (range(10), range(10, 30)):
        table.append(pa.table({"p": [0] * len(offsets), "o": offsets}, schema))
    first, _ = table.snapshots()
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    columns = OffsetColumns("p", "o")
    assert prove_columns(spark, PLACE, columns, storage_options=options).holds
    [task] = [each for each in table.scan().plan_files() if each.file.record_count == 20]
    Path(task.file.file_path.removeprefix("file://")).unlink()
    proof = prove_columns(spark, PLACE, columns, storage_options=options)
    assert not proof.holds
    [fault] = proof.files
    assert fault.reason == "is missing, with offsets 10 to 30 of partition 0"


def test_delete_files_are_refused_by_name(
    spark: SparkSession, table: Table, options: dict[str, str]
) -> None:
    add_position_deletes(table)
    with pytest.raises(TableError, match="has delete files: read it with Iceberg's own reader"):
        prove_columns(spark, PLACE, COLUMNS, storage_options=options)


def test_content_is_compared_with_the_log(
    spark: SparkSession, logs: FakeLogs, table: Table, options: dict[str, str]
) -> None:
    logs.create("t", 1)
    values = [Row(b"k", b"v%d" % n) for n in range(30)]
    values[12] = Row(b"k", b"another")
    logs.append(T0, batch(values))
    proof = prove_content(spark, PLACE, logs.bootstrap, offsets=COLUMNS, storage_options=options)
    assert proof.columns == ("value",)
    [fault] = proof.faults
    assert (fault.start, fault.end, fault.columns) == (12, 13, ("value",))
    assert sum(each.compared for each in proof.partitions) == 30

    to = "iceberg:landed.t"
    ingest(spark, logs.bootstrap, "t", to, include_headers=True, storage_options=options)
    assert prove_table(spark, to, storage_options=options).holds
    proof = prove_content(spark, to, logs.bootstrap, storage_options=options)
    assert (proof.holds, proof.columns[-1]) == (True, "headers")
    verdict = Proofs(spark, to, options, None, logs.bootstrap).of_content(())
    verdict.show(OutputFormat.JSON)
