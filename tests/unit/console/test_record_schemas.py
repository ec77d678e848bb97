"""Keys and values in Confluent's wire format: decoded by schema, or hex with the reason."""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from tests.support.schema_registry import FakeRegistry

from tidelog.console.record_forms import SHOWN_BYTES, shown_bytes
from tidelog.console.record_schemas import MAX_DECODED_BYTES, SchemaReader, registry_at
from tidelog.runtime import schema_registry

FLIGHT: Any = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "offset", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "raw", "type": "bytes"},
    ],
}
RECORD = {
    "carrier": "<b>AA</b>",
    "offset": 2**53 + 1,
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "price": Decimal("12.50"),
    "raw": b"\xff\x00",
}
TYPES = descriptor_pb2.FieldDescriptorProto


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(schema_registry, "_cache", {})  # an earlier test may have had the port
    fake = FakeRegistry()
    yield fake
    fake.close()


@pytest.fixture
def schemas(registry: FakeRegistry) -> SchemaReader:
    return SchemaReader(registry_at(registry.url))


def head(schema_id: int) -> bytes:
    return struct.pack(">bI", 0, schema_id)


def avro(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def protobuf_files() -> tuple[str, str]:
    """A file with a message, and a file whose second message has a nested one with a field of it.

    The second file imports the first one, and a file of Google's.
    """
    place = descriptor_pb2.FileDescriptorProto(name="place.proto", syntax="proto3")
    place.message_type.add(name="Place").field.add(
        name="code", number=1, type=TYPES.TYPE_STRING, label=TYPES.LABEL_OPTIONAL
    )
    imported = ["place.proto", "google/protobuf/timestamp.proto"]
    flight = descriptor_pb2.FileDescriptorProto(
        name="flight.proto", syntax="proto3", dependency=imported
    )
    flight.message_type.add(name="Other")
    leg = flight.message_type.add(name="Flight").nested_type.add(name="Leg")
    for number, (name, kind, of) in enumerate(
        [
            ("to", TYPES.TYPE_MESSAGE, ".Place"),
            ("at", TYPES.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        ],
        1,
    ):
        leg.field.add(name=name, number=number, type=kind, type_name=of, label=TYPES.LABEL_OPTIONAL)
    return serialized(place), serialized(flight)


def test_avro_is_json_whose_numbers_times_and_bytes_can_be_read(
    registry: FakeRegistry, schemas: SchemaReader
) -> None:
    schema_id = registry.register("flights-value", FLIGHT)
    data = head(schema_id) + avro(FLIGHT, RECORD)
    for _ in range(3):
        found = shown_bytes(data, schemas)
        assert (found["form"], found["schema_id"], found["bytes"]) == ("avro", 1, len(data))
    assert json.loads(found["text"]) == {
        "carrier": "<b>AA</b>",
        "offset": 2**53 + 1,
        "at": "2026-01-31 12:00:00+00:00",
        "price": "12.50",
        "raw": "ff 00",
    }
    assert registry.asked == ["/schemas/ids/1"], "a schema is asked for once"


def test_protobuf_is_decoded_with_the_files_that_its_schema_imports(
    registry: FakeRegistry, schemas: SchemaReader
) -> None:
    texts = protobuf_files()
    for name, text in zip(("place", "flight"), texts, strict=True):
        references = [("place.proto", "place", 1)] if name == "flight" else []
        schema_id = registry.register(name, "the text of a file", "PROTOBUF", references)
        registry.serialized[schema_id] = text
    # Message 1 of the file, nested message 0; to.code is "JFK", and at.seconds is 5.
    data = head(2) + bytes([4, 2, 0]) + b"\x0a\x05\x0a\x03JFK" + b"\x12\x02\x08\x05"
    found = shown_bytes(data, schemas)
    assert found["form"] == "protobuf", found
    assert json.loads(found["text"]) == {"to": {"code": "JFK"}, "at": "1970-01-01T00:00:05Z"}
    wrong = shown_bytes(head(2) + bytes([4, 2, 18]) + b"x", schemas)
    assert wrong["form"] == "hex" and "no message with indexes [1, 9]" in wrong["note"]
    bad = shown_bytes(head(2) + bytes([4, 2, 0]) + b"\xff", schemas)
    assert bad["form"] == "hex" and "not of the Protobuf message Flight.Leg" in bad["note"]


def test_a_registry_that_returns_the_text_of_protobuf_is_named(
    registry: FakeRegistry, schemas: SchemaReader
) -> None:
    registry.register("p", 'syntax = "proto3"; message M {}', "PROTOBUF")
    found = shown_bytes(head(1) + b"\0", schemas)
    assert found["form"] == "hex" and "must return a serialized descriptor" in found["note"]


def test_json_with_a_schema_id_is_json(registry: FakeRegistry, schemas: SchemaReader) -> None:
    registry.register("j", {"type": "object"}, "JSON")
    found = shown_bytes(head(1) + b'{"a": 1}', schemas)
    assert (found["form"], json.loads(found["text"]), found["schema_id"]) == ("json", {"a": 1}, 1)
    assert "it is no JSON" in shown_bytes(head(1) + b"\xff", schemas)["note"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (head(1) + b"\x09", "it is not of its Avro schema"),
        (head(1), "it is not of its Avro schema"),
        (head(1) + avro(FLIGHT, RECORD) + b"x", "1 bytes follow a record"),
        (head(7) + b"abc", "schemas/ids/7 answered 404"),
        (head(2) + b"abc", "its Avro schema cannot be read"),
        (head(1) + bytes(MAX_DECODED_BYTES), "is not decoded"),
    ],
    ids=["no-record", "empty", "more", "unknown", "bad-schema", "large"],
)
def test_what_is_not_decoded_is_hex_with_the_reason(
    registry: FakeRegistry, schemas: SchemaReader, data: bytes, reason: str
) -> None:
    registry.register("flights-value", FLIGHT)
    registry.register("broken", {"type": "no such type"})
    found = shown_bytes(data, schemas)
    assert (found["form"], found["bytes"]) == ("hex", len(data))
    assert found["text"] == data[:SHOWN_BYTES].hex(" ") and reason in found["note"]


def test_without_a_registry_the_option_is_named() -> None:
    found = shown_bytes(head(7) + b"\x02A", SchemaReader(None))
    assert found["form"] == "hex" and "--schema-registry" in found["note"]


@pytest.mark.parametrize(
    "data", [b"text", b"\0\0\0\0", bytes(8), b"\1\0\0\0\7abc", b"\0\xff\xff\xff\xffabc", None]
)
def test_other_values_are_shown_as_without_schemas(data: bytes | None) -> None:
    assert shown_bytes(data, SchemaReader(None)) == shown_bytes(data)


def test_a_registry_in_trouble_is_asked_once_for_all_records_of_a_page(
    registry: FakeRegistry, schemas: SchemaReader
) -> None:
    registry.answer = (503, b"busy")
    notes = [shown_bytes(head(number) + b"x", schemas)["note"] for number in (1, 2, 3)]
    assert all("schemas/ids/1 answered 503" in note for note in notes)
    assert registry.asked == ["/schemas/ids/1"]


def test_a_schema_that_is_registered_later_is_found_by_the_next_page(
    registry: FakeRegistry,
) -> None:
    at = registry_at(registry.url)
    data = head(1) + avro(FLIGHT, RECORD)
    assert "404" in shown_bytes(data, SchemaReader(at))["note"]
    registry.register("flights-value", FLIGHT)
    assert shown_bytes(data, SchemaReader(at))["form"] == "avro"


def test_a_missing_package_is_named_with_its_command(
    registry: FakeRegistry, schemas: SchemaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register("flights-value", FLIGHT)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    found = shown_bytes(head(1) + avro(FLIGHT, RECORD), schemas)
    assert found["form"] == "hex"
    assert "Avro needs the package fastavro: pip install" in found["note"]
