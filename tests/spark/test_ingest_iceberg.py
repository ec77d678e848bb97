"""Ingest to Iceberg: runs go on, proofs hold, and readers of Iceberg read the rows."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from tests.spark.s3_server import BUCKET, S3Fault, S3Server, s3_server
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.local.ports import free_ports
from tidelog.spark.lake.iceberg_library import CATALOG_FILE
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.state import TableError
from tidelog.spark.pipelines.column_proof import prove_columns
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.counting import OffsetColumns
from tidelog.spark.pipelines.ingest import IngestReport, ingest, prove_table, read_landed
from tidelog.spark.pipelines.parsing import json_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PLACE = "iceberg:landed.t"


def numbers(first: int, count: int, base: int) -> bytes:
    rows = [
        Row(b"k", b'{"n": %d}' % n, 1_000 * n, (("h", b"v"),)) for n in range(first, first + count)
    ]
    return batch(rows, base)


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    logs.append(T0, numbers(0, 50, 0))
    logs.append(T1, numbers(50, 30, 0))
    return logs


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"warehouse": str(tmp_path)}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """The embedded catalog, as other tools open it."""
    uri = f"sqlite:///{tmp_path}/{CATALOG_FILE}"
    with load_catalog(None, type="sql", uri=uri, warehouse=str(tmp_path)) as opened:
        yield opened


def test_runs_go_on_and_readers_read_them(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], catalog: Catalog
) -> None:
    land = functools.partial(ingest, spark, filled.bootstrap, "t", PLACE, storage_options=options)
    first = land(include_headers=True)
    assert (first.proof.rows, first.version, len(first.files)) == (80, 1, 2)
    assert land(include_headers=True).version is None
    filled.append(T1, numbers(80, 20, 30))
    assert land(include_headers=True).version == 2
    proof = prove_table(spark, PLACE, storage_options=options)
    assert (proof.holds, proof.offsets.rows, proof.version) == (True, 100, 2)
    report = compact(spark, PLACE, storage_options=options)
    assert (len(report.before), len(report.after), report.version) == (3, 2, 3)
    assert prove_table(spark, PLACE, storage_options=options).holds

    table = catalog.load_table("landed.t")
    _check_readers(table)
    frame = read_landed(spark, PLACE, storage_options=options)
    assert frame.count() == 100
    [row] = frame.where("partition = 1 and offset = 3").collect()
    assert row.headers[0].value == b"v"
    read = functools.partial(read_landed, spark, PLACE, storage_options=options)
    assert read(version=1).count() == read(version=_first_id(table)).count() == 80
    assert read(offset="1:30").count() == 80
    assert read(timestamp=datetime.now(UTC)).count() == 100


def _first_id(table: Table) -> int:
    return table.history()[0].snapshot_id


def _check_readers(table: Table) -> None:
    """Count the rows with PyIceberg, pandas, Polars and DuckDB."""
    assert table.scan(row_filter="offset >= 45").count() == 10
    assert len(table.scan(snapshot_id=_first_id(table)).to_pandas()) == 80
    assert polars.scan_iceberg(table).filter(polars.col("partition") == 1).collect().height == 50
    [(rows, last)] = (
        duckdb_with_iceberg()
        .execute(
            "SELECT count(*), max(epoch_ms(timestamp)) FROM iceberg_scan(?)",
            [table.metadata_location],
        )
        .fetchall()
    )
    assert (rows, last) == (100, 99_000)


def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extensions of the packages, which nothing downloads."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        package = importlib.resources.files(f"duckdb_extension_{name}")
        [path] = Path(str(package)).rglob("*.duckdb_extension")
        connection.load_extension(str(path))
    return connection


def test_a_transforms_columns_and_dead_letters(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], catalog: Catalog, tmp_path: Path
) -> None:
    filled.append(T0, batch([Row(b"k", b"no number")], 50))
    transform = json_columns(spark, "n long")
    land = functools.partial(ingest, spark, filled.bootstrap, "t", PLACE, storage_options=options)
    report = land(transform=transform, dead_letter=str(tmp_path / "dead"))
    assert (report.proof.rows, len(report.dead_letters)) == (80, 1)
    rows = catalog.load_table("landed.t").scan(selected_fields=("n",)).to_arrow()
    assert sorted(rows.column("n").to_pylist()) == list(range(80))
    with pytest.raises(TableError, match="column 'n' is long in the table and string in this"):
        filled.append(T0, numbers(80, 1, 51))
        land(transform=json_columns(spark, "n string"), dead_letter=str(tmp_path / "dead"))


def test_damage_is_named(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], catalog: Catalog
) -> None:
    ingest(spark, filled.bootstrap, "t", PLACE, storage_options=options)
    lake = lake_at(PLACE, options)
    [gone] = [file for file in lake.files() if file.partition == 1]
    Path(lake.store.url(gone.path)).unlink()
    proof = prove_table(spark, PLACE, storage_options=options)
    [wrong] = proof.faults
    assert (wrong.path, wrong.reason) == (
        gone.path,
        "is missing, with offsets 0 to 30 of partition 1",
    )
    assert [(fault.partition, fault.start, fault.end) for fault in proof.ranges] == [(1, 0, 30)]
    [kept] = [file for file in lake.files() if file.partition == 0]
    table = catalog.load_table("landed.t")
    table.delete("partition = 1")
    table.refresh().add_files([lake.store.url(kept.path)], check_duplicate_files=False)
    columns = OffsetColumns("partition", "offset", None, None)
    found = prove_columns(spark, PLACE, columns, storage_options=options)
    [fault] = found.offsets
    assert (fault.kind, fault.partition, fault.start, fault.end) == ("doubled", 0, 0, 50)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    [port] = free_ports(1)
    with s3_server(port, tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


def test_an_object_store(
    spark: SparkSession, filled: FakeLogs, s3: S3Server, tmp_path: Path
) -> None:
    options = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/iceberg",
        "s3.endpoint": s3.options["AWS_ENDPOINT_URL"],
        "s3.access-key-id": s3.options["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": s3.options["AWS_SECRET_ACCESS_KEY"],
        "s3.region": s3.options["AWS_REGION"],
    }
    land = functools.partial(ingest, spark, filled.bootstrap, "t", PLACE, storage_options=options)
    assert land().proof.rows == 80
    s3.inject(S3Fault("PUT", ".avro", status=503, times=1))
    filled.append(T1, numbers(80, 20, 30))
    with ThreadPoolExecutor(2) as pool:
        reports = [future.result() for future in [pool.submit(land) for _ in range(2)]]
    assert sum(report.proof.rows for report in reports) == 20
    s3.inject()
    assert read_landed(spark, PLACE, storage_options=options).count() == 100
    assert prove_table(spark, PLACE, storage_options=options).holds
    assert len(compact(spark, PLACE, storage_options=options).after) == 2


def test_a_table_by_day_and_by_a_column(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], catalog: Catalog
) -> None:
    def land() -> IngestReport:
        return ingest(
            spark,
            filled.bootstrap,
            "t",
            PLACE,
            transform=lambda frame: frame.selectExpr(
                "topic",
                "partition",
                "offset",
                "timestamp",
                "element_at(array('a b/%', '', null), int(offset % 3) + 1) as c",
            ),
            partition_by=("day", "c"),
            storage_options=options,
        )

    assert len(land().files) == 6
    filled.append(T0, batch([Row(b"k", b"v", 86_400_000)], 50))
    [file] = land().files
    assert dict(file.values) == {"day": "1970-01-02", "c": None}
    for _ in range(2):
        table = catalog.load_table("landed.t")
        texts = table.scan(row_filter="day = '1970-01-01'").to_arrow()["c"].to_pylist()
        assert sorted(map(str, texts)) == [""] * 27 + ["None"] * 26 + ["a b/%"] * 27
        query = "SELECT c, count(*) FROM iceberg_scan(?) WHERE day = '1970-01-02' GROUP BY c"
        found = duckdb_with_iceberg().execute(query, [table.metadata_location]).fetchall()
        assert found == [(None, 1)]
        frame = read_landed(spark, PLACE, storage_options=options)
        assert frame.where("c = '' and day = '1970-01-01'").count() == 27
        proof = prove_table(spark, PLACE, storage_options=options)
        assert (proof.holds, proof.offsets.rows) == (True, 81)
        compact(spark, PLACE, storage_options=options)
