"""Debezium's envelopes as the rows of a database's table, which a dictionary has, too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.commands import pipeline
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.debezium import debezium_columns
from tidelog.spark.pipelines.ingest import ingest, read_landed
from tidelog.spark.pipelines.landing import BadRecordsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = TopicPartition("t", 0)
DDL = "id long, name string, `a.b` int"
Image = dict[str, Any] | None


def record(
    key: Any, op: str | None, before: Image = None, after: Image = None, *, wrapped: bool = False
) -> Row:
    """A record of Debezium; without an operation its tombstone after a delete."""
    value: Any = {"before": before, "after": after, "source": {"db": "d"}, "op": op, "ts_ms": 1}
    shown_key: Any = key if isinstance(key, dict) else {"id": key}
    if wrapped:
        value = {"schema": {"type": "struct", "fields": []}, "payload": value}
        shown_key = {"schema": {"type": "struct"}, "payload": shown_key}
    text = None if op is None else json.dumps(value).encode()
    return Row(json.dumps(shown_key).encode(), text)


def image(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "a.b": number, "unknown": [1]}


def land(spark: SparkSession, logs: FakeLogs, table: Path, *rows: Row, **more: Any) -> None:
    logs.append(T0, batch(rows, logs.end(T0)))
    options = {
        "transform": debezium_columns(spark, DDL),
        "upsert_by": ("id",),
        "without": ("key", "value"),
        **more,
    }
    ingest(spark, logs.bootstrap, "t", str(table), **options)


def held(spark: SparkSession, table: Path) -> list[tuple[int, str, int]]:
    rows = read_landed(spark, str(table)).collect()
    return sorted((row.id, row.name, row["a.b"]) for row in rows)


@pytest.fixture
def log(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 1)
    return logs


@pytest.mark.parametrize("wrapped", [False, True])
def test_all_operations(spark: SparkSession, log: FakeLogs, tmp_path: Path, wrapped: bool) -> None:
    land(
        spark,
        log,
        tmp_path,
        record(1, "r", None, image(1, "snapshot"), wrapped=wrapped),
        record(1, "r", None, image(1, "snapshot again"), wrapped=wrapped),
        record(2, "c", None, image(2, "created"), wrapped=wrapped),
        record(3, "c", None, image(3, "deleted at once"), wrapped=wrapped),
        record(3, "d", image(3, "deleted at once"), wrapped=wrapped),
        record(3, None, wrapped=wrapped),
        record(4, "c", None, image(4, "of key 4"), wrapped=wrapped),
        record(9, None, wrapped=wrapped),
    )
    assert held(spark, tmp_path) == [
        (1, "snapshot again", 1),
        (2, "created", 2),
        (4, "of key 4", 4),
    ]
    land(
        spark,
        log,
        tmp_path,
        record(1, "u", image(1, "snapshot again"), image(1, "updated"), wrapped=wrapped),
        record(2, "d", {"id": 2, "name": None}, wrapped=wrapped),
        record(2, None, wrapped=wrapped),
        # The key of row 4 becomes 5: a delete, its tombstone, and a create.
        record(4, "d", image(4, "of key 4"), wrapped=wrapped),
        record(4, None, wrapped=wrapped),
        record(5, "c", None, image(5, "of key 5"), wrapped=wrapped),
    )
    assert held(spark, tmp_path) == [(1, "updated", 1), (5, "of key 5", 5)]


def test_a_delete_without_before_or_with_a_key_that_is_no_json(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    rows = [record(number, "c", None, image(number, "x")) for number in (1, 2, 3)]
    land(spark, log, tmp_path, *rows)
    no_json = Row(b"\x00\x07", record(2, "d", {"id": 2}).value)
    land(spark, log, tmp_path, record(1, "d"), no_json)
    assert held(spark, tmp_path) == [(3, "x", 3)]


def test_records_that_are_no_change_of_a_row_are_dead_letters(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    bad = {
        "op t truncates the database's table": record(1, "t"),
        "op m changes no row": record(1, "m"),
        "op u has no after": record(1, "u", image(1, "x")),
        "no envelope of Debezium with id long": Row(b"{}", b'{"id": 1}'),
        "no envelope of Debezium with": Row(b"{}", b"no json"),
        "no envelope of Debezium": record(1, "c", None, {"id": "no number"}),
        "the value is no envelope of": Row(
            b"{}", (record(1, "c", None, {"id": 1}).value or b"") + b"x"
        ),
        "the value is no envelope": Row(b"{}", b'[{"op": "c", "after": {"id": 1}}]'),
        "the value is no UTF-8": Row(b"{}", b'{"op": "c", "after": {"id": 1, "name": "\xff"}}'),
        "id is null, and an upsert": Row(None, None),
    }
    table, letters = tmp_path / "table", str(tmp_path / "letters")
    good = record(1, "c", None, image(1, "x"))
    land(spark, log, table, good, *bad.values(), dead_letter=letters)
    assert held(spark, table) == [(1, "x", 1)]
    assert DeltaLake(str(table)).read().partitions[0].dead == len(bad)
    found = spark.read.option("recursiveFileLookup", True).parquet(letters).orderBy("offset")
    for reason, row in zip(bad, found.collect(), strict=True):
        assert reason in row.error
    with pytest.raises(BadRecordsError, match="t-0 at offset 11 does not fit: op t truncates"):
        land(spark, log, table, record(1, "t"))


def test_an_update_that_changes_the_key_of_an_upsert_by_another_column(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    """Its record has the same key, so that no delete of the former row comes."""
    rows = [
        record(1, "c", None, image(1, "x")),
        record(1, "u", image(1, "x"), {**image(1, "x"), "a.b": 5}),
        record(1, "u", image(1, "x"), image(1, "y")),
    ]
    with pytest.raises(BadRecordsError, match="t-0 at offset 2 does not fit: name changes in an"):
        land(spark, log, tmp_path, *rows, upsert_by=("name",))


def test_an_iceberg_table(spark: SparkSession, log: FakeLogs, tmp_path: Path) -> None:
    """Staged files have the mark of tombstones, which the table has no column id for."""
    changes = [record(number, "c", None, image(number, "x")) for number in (1, 2)]
    changes.append(record(1, "d", image(1, "x")))
    options = {"warehouse": str(tmp_path)}
    land(spark, log, Path("iceberg:landed.t"), *changes, storage_options=options)
    rows = read_landed(spark, "iceberg:landed.t", storage_options=options).collect()
    assert [(row.id, row.name) for row in rows] == [(2, "x")]


def test_names_of_the_table_are_taken(spark: SparkSession) -> None:
    for name in ("offset", "tombstone"):
        with pytest.raises(OptionError, match=f"the table has a column '{name}' of its own"):
            debezium_columns(spark, f"id long, {name} string")


@pytest.mark.soak
def test_the_command_ingests_and_proves(log: FakeLogs, tmp_path: Path) -> None:
    log.append(
        T0, batch([record(1, "c", None, image(1, "x")), record(2, "r", None, image(2, "x"))])
    )
    log.append(T0, batch([record(1, "d", {"id": 1}), record(1, None)], 2))
    table, form = str(tmp_path / "table"), ["--debezium", DDL]
    words = ["--bootstrap-server", log.bootstrap, *form]
    ran = pipeline("ingest", "--topic", "t", "--to", table, "--upsert", "--key", "id", *words)
    assert ran.returncode == 0, ran.stderr
    assert "4 records in 1 files, 0 lost, 0 doubled" in ran.stderr
    proved = pipeline("prove", table, *words)
    assert proved.returncode == 0, proved.stdout + proved.stderr
    assert proved.stdout.splitlines()[-1].startswith("1 rows, 0 missing, 0 stale, 0 extra")


def test_a_history_of_a_database_ends_as_the_database(
    spark: SparkSession, log: FakeLogs, tmp_path: Path
) -> None:
    draws = random.Random(7)
    rows: dict[int, str] = {}
    for _ in range(3):
        changes: list[Row] = []
        for step in range(40):
            number, name = draws.randrange(8), f"{step}"
            if number not in rows:
                rows[number] = name
                changes.append(record(number, draws.choice("rc"), None, image(number, name)))
            elif draws.random() < 0.5:
                before, rows[number] = rows[number], name
                changes.append(record(number, "u", image(number, before), image(number, name)))
            else:
                changes.append(record(number, "d", image(number, rows.pop(number))))
                changes += [record(number, None)] * draws.randrange(2)
        land(spark, log, tmp_path, *changes)
        assert held(spark, tmp_path) == sorted((key, rows[key], key) for key in rows)
