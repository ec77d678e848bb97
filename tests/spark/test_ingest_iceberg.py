"""Ingest to Iceberg: runs go on, proofs hold, and readers of Iceberg read the rows."""

from __future__ import annotations

import functools
import importlib.resources
import threading
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
from tests.spark import dying_ingest
from tests.spark.killing import run_until_killed
from tests.support.client.fake_logs import FakeLogs
from tests.support.s3_server import BUCKET, S3Fault, S3Server, s3_server
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.local.ports import free_ports
from tidelog.spark.lake.iceberg_library import CATALOG_FILE
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.state import TableError
from tidelog.spark.pipelines.column_proof import prove_columns
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.counting import OffsetColumns
from tidelog.spark.pipelines.ingest import IngestReport, follow, ingest, prove_table, read_landed
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


@pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
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


def kill_a_driver(
    spark: SparkSession, logs: FakeLogs, options: dict[str, str], step: str, log: Path
) -> None:
    """Let an ingest die at a step of the first run or of the second, and let another go on."""
    place = f"iceberg:landed.{step.replace(' ', '_').replace('-', '_')}"
    is_first = step.endswith("create")
    if not is_first:
        assert ingest(spark, logs.bootstrap, "t", place, storage_options=options).proof.rows == 80
        logs.append(T1, numbers(80, 20, 30))
    prefix = "PYICEBERG_CATALOG__DEFAULT__"
    warehouse = options["warehouse"]
    uri = f"sqlite:///{warehouse}/{CATALOG_FILE}"
    configured = {"TYPE": "sql", "URI": uri, "WAREHOUSE": warehouse}
    run_until_killed(
        dying_ingest.__name__,
        logs.bootstrap,
        "t",
        place,
        step,
        str(log),
        environment={prefix + name: value for name, value in configured.items()},
    )
    ingest(spark, logs.bootstrap, "t", place, storage_options=options)
    proof = prove_table(spark, place, storage_options=options)
    assert (proof.holds, proof.offsets.rows) == (True, 80 if is_first else 100)


def test_a_driver_killed_before_the_catalogs_commit_leaves_nothing_half(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], tmp_path: Path
) -> None:
    kill_a_driver(spark, filled, options, "before catalog", tmp_path / "log")


@pytest.mark.soak
@pytest.mark.parametrize("step", dying_ingest.ICEBERG_STEPS)
def test_a_driver_killed_at_any_step(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], step: str, tmp_path: Path
) -> None:
    kill_a_driver(spark, filled, options, step, tmp_path / "log")


@pytest.mark.soak
def test_of_two_ingests_at_once_one_lands(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str]
) -> None:
    land = functools.partial(ingest, spark, filled.bootstrap, "t", PLACE, storage_options=options)
    rows = 80
    for number in range(20):
        with ThreadPoolExecutor(2) as pool:
            reports = [future.result() for future in [pool.submit(land) for _ in range(2)]]
        assert sorted(report.proof.rows for report in reports) == [0, rows]
        filled.append(T1, numbers(80 + 10 * number, 10, 30 + 10 * number))
        rows = 10
    assert prove_table(spark, PLACE, storage_options=options).holds


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    [port] = free_ports(1)
    with s3_server(port, tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture
def remote(s3: S3Server, tmp_path: Path) -> dict[str, str]:
    """Options of a table in the object store, with a catalog of its own."""
    assert s3.inject() == [], "a fault of the test before was not used up"
    return {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/{tmp_path.name}",
        "s3.endpoint": s3.options["AWS_ENDPOINT_URL"],
        "s3.access-key-id": s3.options["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": s3.options["AWS_SECRET_ACCESS_KEY"],
        "s3.region": s3.options["AWS_REGION"],
    }


def test_an_object_store(spark: SparkSession, filled: FakeLogs, remote: dict[str, str]) -> None:
    land = functools.partial(ingest, spark, filled.bootstrap, "t", PLACE, storage_options=remote)
    assert land().proof.rows == 80
    filled.append(T1, numbers(80, 20, 30))
    with ThreadPoolExecutor(2) as pool:
        reports = [future.result() for future in [pool.submit(land) for _ in range(2)]]
    assert sorted(report.proof.rows for report in reports) == [0, 20]
    assert read_landed(spark, PLACE, storage_options=remote).count() == 100
    assert len(compact(spark, PLACE, storage_options=remote).after) == 2
    assert prove_table(spark, PLACE, storage_options=remote).holds


@pytest.mark.parametrize(
    "fault",
    [
        S3Fault("PUT", ".parquet", times=2),
        S3Fault("PUT", ".avro", 500, times=2),
        S3Fault("PUT", ".metadata.json", 500, is_late=True),
        S3Fault("GET", ".metadata.json", 503, times=2),
    ],
    ids=str,
)
def test_failed_requests_and_lost_answers(
    spark: SparkSession, filled: FakeLogs, remote: dict[str, str], s3: S3Server, fault: S3Fault
) -> None:
    land = functools.partial(ingest, spark, filled.bootstrap, "t", PLACE, storage_options=remote)
    assert land().proof.rows == 80
    filled.append(T1, numbers(80, 20, 30))
    s3.inject(fault)
    assert land().proof.rows == 20
    assert s3.inject() == [], "the fault came"
    proof = prove_table(spark, PLACE, storage_options=remote)
    assert (proof.holds, proof.offsets.rows) == (True, 100)


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


def test_a_followed_table_is_merged_beside_its_batches(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str]
) -> None:
    lake, counts = lake_at(PLACE, options), list[int]()
    stop = threading.Event()

    def on_batch(report: IngestReport) -> None:
        counts.append(len(lake.files()))
        if len(counts) == 12:
            stop.set()
        filled.append(T0, numbers(0, 5, filled.end(T0)))

    follow(
        spark,
        filled.bootstrap,
        "t",
        PLACE,
        stop=stop,
        interval_s=0.05,
        compact_after=3,
        keep_hours=0,
        on_batch=on_batch,
        storage_options=options,
    )
    assert len(lake.files()) <= 8
    proof = prove_table(spark, PLACE, storage_options=options)
    assert (proof.holds, proof.offsets.rows) == (True, 80 + 11 * 5)
