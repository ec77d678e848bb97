"""Tables in an object store: moto's S3 server, with failed requests and lost answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.spark import dying_ingest
from tests.spark.killing import run_until_killed
from tests.support.client.fake_logs import FakeLogs
from tests.support.s3_server import BUCKET, S3Fault, S3Server, s3_server
from tests.support.spark import Row, batch

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.ports import free_ports
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.state import TableError
from tidelog.spark.lake.stores import LakeStore
from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.ingest import ingest, prove_table, read_landed
from tidelog.spark.pipelines.parsing import json_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    [port] = free_ports(1)
    with s3_server(port, tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture
def place(s3: S3Server, request: pytest.FixtureRequest) -> str:
    """The URI of a table of its own."""
    assert s3.inject() == [], "a fault of the test before was not used up"
    name = "".join(sign if sign.isalnum() else "-" for sign in request.node.name)
    return f"s3://{BUCKET}/{name}"


def numbers(first: int, count: int) -> bytes:
    return batch([Row(b"k", b'{"n": %d}' % n) for n in range(first, first + count)], first)


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 1)
    logs.append(T0, numbers(0, 50))
    return logs


def land(spark: SparkSession, logs: FakeLogs, place: str, s3: S3Server) -> int:
    """Ingest; return the number of rows."""
    return ingest(spark, logs.bootstrap, "t", place, storage_options=s3.options).proof.rows


def check(spark: SparkSession, place: str, s3: S3Server, rows: int) -> None:
    """Check that the table has so many offsets, each once, and no other files of runs."""
    proof = prove_table(spark, place, storage_options=s3.options)
    assert (proof.holds, proof.offsets.rows) == (True, rows)
    frame = read_landed(spark, place, storage_options=s3.options)
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(rows))
    named = {file.path for file in DeltaLake(place, s3.options).files()}
    listed = {file.path for file in LakeStore(place, s3.options).listed()}
    assert {path for path in listed if path.endswith(".parquet")} == named


def test_partition_columns_and_new_columns(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server
) -> None:
    """Names of objects have the values, escaped."""

    def run(*texts: str) -> int:
        report = ingest(
            spark,
            filled.bootstrap,
            "t",
            place,
            transform=lambda frame: frame.selectExpr("topic", "partition", "offset", *texts),
            partition_by="c d",
            storage_options=s3.options,
        )
        return len(report.files)

    odd = "element_at(array('a/b %41=ü', null, 'x y'), int(offset % 3) + 1) as `c d`"
    assert run(odd) == 3
    filled.append(T0, numbers(50, 10))
    assert run(odd, "offset as n") == 3
    check(spark, place, s3, 60)
    for _ in range(2):
        table = DeltaTable(place, storage_options=s3.options).to_pyarrow_table()
        assert table.column("c d").to_pylist().count("a/b %41=ü") == 20
        assert table.column("n").null_count == 50
        frame = read_landed(spark, place, storage_options=s3.options)
        assert frame.where("`c d` = 'x y' and n is null").count() == 16
        assert len(compact(spark, place, keep_hours=0, storage_options=s3.options).after) == 3
    check(spark, place, s3, 60)


def test_runs_a_compaction_and_readers(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server
) -> None:
    assert [land(spark, filled, place, s3) for _ in range(2)] == [50, 0]
    filled.append(T0, numbers(50, 50))
    assert land(spark, filled, place, s3) == 50
    check(spark, place, s3, 100)
    report = compact(spark, place, keep_hours=0, storage_options=s3.options)
    assert [(file.start, file.end) for file in report.after] == [(0, 100)]
    assert report.deleted == 2
    check(spark, place, s3, 100)
    assert DeltaTable(place, storage_options=s3.options).to_pyarrow_table().num_rows == 100


def test_dead_letters_and_rows_of_a_transform(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server
) -> None:
    filled.append(T0, batch([Row(b"k", b"no json")], 50))
    report = ingest(
        spark,
        filled.bootstrap,
        "t",
        f"{place}/table",
        transform=json_columns(spark, "n long"),
        without=("key", "value"),
        dead_letter=f"{place}/letters",
        storage_options=s3.options,
    )
    assert (report.proof.rows, report.proof.dead) == (50, 1)
    [letter] = report.dead_letters
    assert letter.startswith(f"{place}/letters/")
    landed = read_landed(spark, f"{place}/table", storage_options=s3.options)
    assert sorted(row.n for row in landed.collect()) == list(range(50))


@pytest.mark.parametrize(
    "fault",
    [
        S3Fault("PUT", ".parquet", times=2),
        S3Fault("PUT", ".parquet", 500, is_late=True),
        S3Fault("PUT", "/_delta_log/", 500, times=2),
        S3Fault("PUT", "/_delta_log/00000000000000000000.json", 500, is_late=True),
        S3Fault("PUT", "/_delta_log/00000000000000000001.json", 500, is_late=True),
        S3Fault("PUT", "/_delta_log/00000000000000000001.json", 503, times=3),
        S3Fault("GET", "/_delta_log/", times=3),
        S3Fault("GET", ".parquet", 500, times=2),
    ],
    ids=str,
)
def test_failed_requests_and_lost_answers(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server, fault: S3Fault
) -> None:
    s3.inject(fault)
    assert land(spark, filled, place, s3) == 50
    assert s3.inject() == [], "the fault came"
    filled.append(T0, numbers(50, 50))
    assert land(spark, filled, place, s3) == 50
    check(spark, place, s3, 100)


@pytest.mark.parametrize(
    "fault",
    [
        S3Fault("PUT", ".parquet", times=2),
        S3Fault("GET", ".parquet", 500, times=2),
        S3Fault("PUT", "/_delta_log/00000000000000000003.json", 500, is_late=True),
        S3Fault("DELETE", "", 503, times=2),
    ],
    ids=str,
)
def test_failed_requests_of_a_compaction(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server, fault: S3Fault
) -> None:
    land(spark, filled, place, s3)
    filled.append(T0, numbers(50, 50))
    land(spark, filled, place, s3)
    s3.inject(fault)
    report = compact(spark, place, keep_hours=0, storage_options=s3.options)
    s3.inject()
    assert (report.version, len(report.after)) == (3, 1)
    check(spark, place, s3, 100)


def test_of_two_ingests_at_once_one_lands(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server
) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(land, spark, filled, place, s3) for _ in range(2)]
        assert sorted(run.result() for run in runs) == [0, 50]
    check(spark, place, s3, 50)


@pytest.mark.soak
@pytest.mark.parametrize("step", dying_ingest.STEPS)
def test_a_driver_killed_at_any_step(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server, step: str, tmp_path: Path
) -> None:
    """The dying driver has its options from the environment."""
    run_until_killed(
        dying_ingest.__name__,
        filled.bootstrap,
        "t",
        place,
        step,
        str(tmp_path / "log"),
        environment=s3.options,
    )
    land(spark, filled, place, s3)
    proof = prove_table(spark, place, storage_options=s3.options)
    assert (proof.holds, proof.offsets.rows) == (True, 50)


def test_a_bucket_that_does_not_exist_is_named(
    spark: SparkSession, filled: FakeLogs, s3: S3Server
) -> None:
    with pytest.raises(TableError) as raised:
        land(spark, filled, "s3://nowhere/t", s3)
    reason = "NoSuchBucket: The specified bucket does not exist"
    assert str(raised.value) == f"s3://nowhere/t cannot be read: {reason}"


@pytest.mark.parametrize(
    ("part", "refused"),
    [("", "read"), ("run-", "written by a task"), ("_delta_log", "written")],
    ids=["wrong credentials", "no right to write", "no right to commit"],
)
def test_a_store_that_refuses_is_named_and_the_table_stays(
    spark: SparkSession, filled: FakeLogs, place: str, s3: S3Server, part: str, refused: str
) -> None:
    assert land(spark, filled, place, s3) == 50
    filled.append(T0, numbers(50, 50))
    methods = ("GET", "HEAD") if refused == "read" else ("PUT", "POST")
    s3.inject(*(S3Fault(method, part, 403, 1_000) for method in methods))
    try:
        with pytest.raises(TidelogError) as raised:
            land(spark, filled, place, s3)
    finally:
        s3.inject()
    assert re.match(rf"{place} cannot be {refused}: .*403 Forbidden", str(raised.value))
    assert DeltaLake(place, s3.options).newest() == 1
    assert land(spark, filled, place, s3) == 50
    proof = prove_table(spark, place, storage_options=s3.options)
    assert (proof.holds, proof.offsets.rows) == (True, 100)
