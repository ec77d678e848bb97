"""Avro in Confluent's wire format: schemas by id, resolution, columns, bad records."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.support.schema_registry import FakeRegistry

from tidelog.core.errors import ConfigError
from tidelog.records.confluent_format import BadRecordError
from tidelog.runtime import schema_registry as registry_client
from tidelog.runtime.schema_registry import RegistryError, SchemaRegistry, UnknownSchemaError
from tidelog.spark.option_values import OptionError
from tidelog.spark.schemas.avro_column import AvroDecoder, avro_decoder
from tidelog.spark.schemas.bad_records import decode_column

FLIGHT: Any = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
LATER: Any = {
    **FLIGHT,
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "long"], "default": None},
        {"name": "gate", "type": "string", "default": "?"},
    ],
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(registry_client, "_cache", {})  # an earlier test may have had the port
    fake = FakeRegistry()
    yield fake
    fake.close()


def body(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def framed(schema_id: int, schema: Any, record: Any) -> bytes:
    return struct.pack(">bi", 0, schema_id) + body(schema, record)


def typed(schema: Any) -> pa.DataType:
    return avro_decoder(None, schema=json.dumps(schema)).arrow_type


def one_field(field: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": field}]}


def test_records_of_old_and_new_schemas_have_the_readers_columns(registry: FakeRegistry) -> None:
    old = registry.register("flights-value", FLIGHT)
    new = registry.register("flights-value", LATER)
    decoder = avro_decoder(registry.url, subject="flights-value")
    assert decoder.arrow_type == pa.struct(
        [("carrier", pa.string()), ("delay", pa.int64()), ("gate", pa.string())]
    )
    values = [
        framed(old, FLIGHT, {"carrier": "AA", "delay": 3}),
        None,
        framed(new, LATER, {"carrier": "BA", "delay": None, "gate": "B2"}),
    ]
    column = decode_column(pa.array(values, pa.binary()), decoder, strict=True)
    assert column.to_pylist() == [
        {"carrier": "AA", "delay": 3, "gate": "?"},
        None,
        {"carrier": "BA", "delay": None, "gate": "B2"},
    ]


def test_a_schema_is_asked_for_once(registry: FakeRegistry) -> None:
    schema_id = registry.register("s", FLIGHT)
    data = framed(schema_id, FLIGHT, {"carrier": "AA", "delay": 3})
    decoder = avro_decoder(registry.url, schema=json.dumps(FLIGHT))
    for each in (decoder, decoder, pickle.loads(pickle.dumps(decoder))):
        assert each.decode(data) == {"carrier": "AA", "delay": 3}
    assert registry.asked == [f"/schemas/ids/{schema_id}"]


def test_a_schema_may_refer_to_others(registry: FakeRegistry) -> None:
    place = {"type": "record", "name": "Place", "fields": [{"name": "code", "type": "string"}]}
    trip = {
        "type": "record",
        "name": "Trip",
        "fields": [{"name": "origin", "type": "Place"}, {"name": "target", "type": "Place"}],
    }
    registry.register("place", place)
    schema_id = registry.register("trip", trip, references=[("Place", "place", 1)])
    decoder = avro_decoder(registry.url, subject="trip")
    data = struct.pack(">bi", 0, schema_id) + b"\x06JFK\x06SFO"
    assert decoder.decode(data) == {"origin": {"code": "JFK"}, "target": {"code": "SFO"}}


@pytest.mark.parametrize(
    ("avro", "arrow", "value"),
    [
        ("boolean", pa.bool_(), True),
        ("float", pa.float32(), 0.5),
        ("bytes", pa.binary(), b"\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab"),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None]),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), {"a": 1}),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.timestamp("us", tz="UTC"),
            datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, datetime.UTC),
        ),
        ({"type": "int", "logicalType": "date"}, pa.date32(), datetime.date(2026, 1, 2)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            pa.decimal128(5, 2),
            decimal.Decimal("12.50"),
        ),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32(), 1500),
        (
            {"type": "string", "logicalType": "uuid"},
            pa.string(),
            "123e4567-e89b-12d3-a456-426614174000",
        ),
        (one_field("int") | {"name": "Inner"}, pa.struct([("f", pa.int32())]), {"f": 7}),
    ],
)
def test_every_type_has_a_column(avro: Any, arrow: pa.DataType, value: Any) -> None:
    schema = one_field(avro)
    assert typed(schema) == pa.struct([("f", arrow)])
    stored = value
    if isinstance(avro, dict) and avro.get("logicalType") in ("uuid", "time-millis"):
        schema = one_field(avro["type"])
    decoder = avro_decoder(None, schema=json.dumps(schema))
    values = pa.array([body(schema, {"f": stored})], pa.binary())
    (row,) = decode_column(values, decoder, strict=True).to_pylist(maps_as_pydicts="strict")
    assert row == {"f": value}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (one_field(["int", "string"]), "field f: a union of 2 types has no column type"),
        (
            one_field({"type": "array", "items": ["null", "int", "long"]}),
            r"field f\[\]: a union of 2 types",
        ),
        (one_field(["null", "R"]), "field f: record 'R' contains itself"),
        (
            one_field({"type": "bytes", "logicalType": "decimal", "precision": 40}),
            "field f: a decimal of 40 digits",
        ),
        (one_field("nothing"), "an Avro schema cannot be read.*nothing"),
        ({"type": "record"}, "an Avro schema cannot be read"),
    ],
)
def test_a_schema_without_columns_is_named(schema: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        typed(schema)


def test_text_that_is_no_schema_is_an_error() -> None:
    with pytest.raises(OptionError, match="an Avro schema cannot be read: JSONDecodeError"):
        avro_decoder(None, schema="record Flight")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of subject and schema"),
        ({"subject": "s", "schema": "{}"}, "exactly one of subject and schema"),
        ({"subject": "s"}, "subject 's' needs a registry"),
    ],
)
def test_a_decoder_needs_one_schema(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        avro_decoder(None, **arguments)


class TestBadRecords:
    @pytest.fixture
    def decoder(self, registry: FakeRegistry) -> AvroDecoder:
        registry.register("s", FLIGHT)
        registry.register("other", {**FLIGHT, "name": "Else", "fields": []})
        registry.register("proto", 'syntax = "proto3";', "PROTOBUF")
        return avro_decoder(registry.url, subject="s")

    GOOD = framed(1, FLIGHT, {"carrier": "AA", "delay": 3})

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "a record of 0 bytes is too short for Confluent's wire format"),
            (b'{"carrier": 1}', "begins with byte 123; Confluent's wire format begins with 0"),
            (GOOD[:-1], "a record is not of its Avro schema"),
            (GOOD + b"xy", "2 bytes follow a record of its Avro schema"),
            (b"\0\0\0\0\x09" + GOOD[5:], "schemas/ids/9 answered 404"),
            (b"\0\0\0\0\x02", "the schema of a record does not fit the reader's"),
            (b"\0\0\0\0\x03", "schema 3 at http.* is of type PROTOBUF, not AVRO"),
        ],
    )
    def test_a_bad_record_is_null_with_a_reason_or_an_error(
        self, decoder: AvroDecoder, data: bytes, message: str
    ) -> None:
        values = pa.array([self.GOOD, data, None], pa.binary())
        good, bad, absent = decode_column(values, decoder, strict=False).to_pylist()
        assert good == {"record": {"carrier": "AA", "delay": 3}, "error": None}
        assert absent == {"record": None, "error": None}
        assert bad["record"] is None
        with pytest.raises(BadRecordError, match=message) as raised:
            decode_column(values, decoder, strict=True)
        assert str(raised.value) == bad["error"]
        assert f"its {len(data)} bytes begin with {data[:16].hex(' ')}" in bad["error"]

    def test_an_unknown_id_is_asked_for_once(
        self, decoder: AvroDecoder, registry: FakeRegistry
    ) -> None:
        asked = len(registry.asked)
        for _ in range(3):
            with pytest.raises(BadRecordError):
                decoder.decode(b"\0\0\0\0\x0c")
        assert registry.asked[asked:] == ["/schemas/ids/12"]


class TestRegistry:
    def test_user_and_password_are_sent_and_not_shown(self, registry: FakeRegistry) -> None:
        registry.register("a/b", FLIGHT)
        secret = SchemaRegistry(registry.url.replace("http://", "http://me:p%40ss@"))
        assert secret.latest("a/b").schema_type == "AVRO"
        assert registry.asked == ["/subjects/a%2Fb/versions/latest"]
        assert registry.authorizations == ["Basic bWU6cEBzcw=="]
        with pytest.raises(UnknownSchemaError) as raised:
            secret.latest("nope")
        assert str(raised.value).startswith(f"schema registry {registry.url}/subjects/nope")

    def test_a_registry_in_trouble_is_no_bad_record(self, registry: FakeRegistry) -> None:
        decoder = avro_decoder(registry.url, schema=json.dumps(FLIGHT))
        data = framed(77, FLIGHT, {"carrier": "AA", "delay": 3})
        for answer, message in [
            ((503, b"busy"), "schemas/ids/77 answered 503"),
            ((200, b"<html>"), "schemas/ids/77 cannot be read"),
            ((200, b"[]"), "something else than a JSON object"),
            ((200, b"{}"), "answered without a schema"),
        ]:
            registry.answer = answer
            with pytest.raises(RegistryError, match=message):
                decode_column(pa.array([data]), decoder, strict=False)
        registry.close()
        with pytest.raises(RegistryError, match="cannot be read: .*refused"):
            decoder.decode(data)

    @pytest.mark.parametrize("url", ["registry:8081", "ftp://h", "http://"])
    def test_an_address_must_be_one(self, url: str) -> None:
        sentence = "expected an address such as http://127.0.0.1:8081"
        with pytest.raises(ConfigError, match=sentence):
            SchemaRegistry(url)
        with pytest.raises(OptionError, match=sentence):
            avro_decoder(url, subject="s")

    def test_a_subject_of_another_type_is_named(self, registry: FakeRegistry) -> None:
        registry.register("p", "message M {}", "PROTOBUF")
        with pytest.raises(OptionError, match="subject 'p' at http.* type PROTOBUF, expected AVRO"):
            avro_decoder(registry.url, subject="p")
