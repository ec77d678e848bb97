"""Columns of records with a schema, in a real Spark session."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import timestamp_pb2
from pyspark.errors import PySparkException
from tests.support.schema_registry import FakeRegistry

from tidelog.spark.schemas.avro_column import avro_column
from tidelog.spark.schemas.json_column import json_column
from tidelog.spark.schemas.protobuf_column import protobuf_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT: Any = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


def frame(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(number, value) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, "n int, value binary").repartition(2)


def flight(carrier: str, stops: list[str]) -> bytes:
    stream = io.BytesIO(struct.pack(">bi", 0, 1))
    stream.seek(0, io.SEEK_END)
    record = {"carrier": carrier, "stops": stops}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(FLIGHT), record)
    return stream.getvalue()


def test_json(spark: SparkSession) -> None:
    values = frame(spark, b'{"a": 1, "b": {"c": "x"}}', b'{"a": "one"}', b"no", None, b"", b'{"b"')
    schema = "a int, b struct<c: string>"
    rows = values.select("n", json_column("value", schema).alias("v")).orderBy("n").collect()
    assert [row.v.record and row.v.record.asDict(True) for row in rows] == [
        {"a": 1, "b": {"c": "x"}},
        *[None] * 5,
    ]
    assert [row.v.error is None for row in rows] == [True, False, False, True, False, False]
    assert rows[1].v.error == (
        "a record is not JSON of the schema struct<a:int,b:struct<c:string>>; it begins with"
        ' {"a": "one"}'
    )
    strict = values.select(json_column(values["value"], schema, "failfast").alias("v"))
    assert strict.where("n in (0, 3)").select("v.a", "v.b.c").count() == 2
    with pytest.raises(PySparkException, match="a record is not JSON of the schema struct"):
        strict.collect()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1} garbage',
        '{"a": 1} {"a": 2}',
        '{"a": 1}, {"a": 2}',
        '{"a": 1}, "b": 2',
        '{"a": 1}]',
        '{"a": 1}], "b": [{"a": 2}',
        '{"a": 1}}',
        '{"a": 1},',
        '[{"a": 1}]',
        "null",
        "1",
        "  ",
    ],
)
def test_a_text_that_is_not_just_one_json_object_is_bad(spark: SparkSession, text: str) -> None:
    values = frame(spark, text.encode(), b' {"a": 3, "x": [{}]}\n')
    bad, good = values.select("n", json_column("value", "a int").alias("v")).orderBy("n").collect()
    reason = "a record is not JSON of the schema struct<a:int>; it begins with "
    assert (bad.v.record, bad.v.error) == (None, reason + text)
    assert (good.v.record.asDict(), good.v.error) == ({"a": 3}, None)


def test_avro_with_a_registry(spark: SparkSession, registry: FakeRegistry) -> None:
    registry.register("flights-value", FLIGHT)
    values = frame(spark, flight("AA", ["JFK"]), b"\0\0\0\0\x01\x7f", None, flight("BA", []))
    column = avro_column("value", registry.url, subject="flights-value")
    rows = values.select("n", column.alias("v")).orderBy("n").collect()
    assert [row.v.record and tuple(row.v.record) for row in rows] == [
        ("AA", ["JFK"]),
        None,
        None,
        ("BA", []),
    ]
    assert "a record is not of its Avro schema" in rows[1].v.error
    strict = avro_column("value", registry.url, subject="flights-value", mode="failfast")
    with pytest.raises(PySparkException, match="a record is not of its Avro schema") as raised:
        values.select(strict).collect()
    assert "avro_column.py" not in str(raised.value)


def test_protobuf_by_a_generated_class(spark: SparkSession) -> None:
    message = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=5_000)
    head = b"\0\0\0\0\x05\0"
    values = frame(spark, head + message.SerializeToString(), b"x", None)
    column = protobuf_column("value", timestamp_pb2.Timestamp)
    rows = values.select(
        "n", column["error"].alias("error"), column["record"].cast("double").alias("at")
    )
    first, second, third = rows.orderBy("n").collect()
    assert (first.at, first.error) == (1_700_000_000.000005, None)
    assert second.at is None
    assert "too short for Confluent's wire format" in second.error
    assert (third.at, third.error) == (None, None)
