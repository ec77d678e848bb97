"""Protobuf: messages by class or descriptor set, message indexes, columns, bad records."""

from __future__ import annotations

import datetime
import decimal
import pickle
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tidelog.records.confluent_format import BadRecordError, split_message_path
from tidelog.spark.option_values import OptionError
from tidelog.spark.schemas.bad_records import decode_column
from tidelog.spark.schemas.protobuf_column import protobuf_decoder

TYPES = descriptor_pb2.FieldDescriptorProto


def add_field(message: Any, name: str, number: int, kind: int, **more: Any) -> None:
    values = {"label": TYPES.LABEL_OPTIONAL, **more}
    message.field.add(name=name, number=number, type=kind, **values)


def make_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="flights.proto",
        package="flights",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    file.message_type.add(name="Other")
    flight = file.message_type.add(name="Flight")
    add_field(flight, "carrier", 1, TYPES.TYPE_STRING)
    add_field(flight, "delay", 2, TYPES.TYPE_SINT32, proto3_optional=True, oneof_index=0)
    flight.oneof_decl.add(name="_delay")
    add_field(flight, "bytes", 3, TYPES.TYPE_UINT64)
    add_field(flight, "stops", 4, TYPES.TYPE_STRING, label=TYPES.LABEL_REPEATED)
    add_field(flight, "status", 5, TYPES.TYPE_ENUM, type_name=".flights.Status")
    add_field(flight, "left_at", 6, TYPES.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    add_field(
        flight,
        "seats",
        7,
        TYPES.TYPE_MESSAGE,
        type_name=".flights.Flight.SeatsEntry",
        label=TYPES.LABEL_REPEATED,
    )
    add_field(flight, "gate", 8, TYPES.TYPE_MESSAGE, type_name=".flights.Flight.Gate")
    add_field(flight, "raw", 9, TYPES.TYPE_BYTES)
    entry = flight.nested_type.add(name="SeatsEntry")
    entry.options.map_entry = True
    add_field(entry, "key", 1, TYPES.TYPE_STRING)
    add_field(entry, "value", 2, TYPES.TYPE_UINT32)
    gate = flight.nested_type.add(name="Gate")
    add_field(gate, "number", 1, TYPES.TYPE_INT64)
    node = file.message_type.add(name="Node")
    add_field(node, "next", 1, TYPES.TYPE_MESSAGE, type_name=".flights.Node")
    status = file.enum_type.add(name="Status")
    status.value.add(name="UNKNOWN", number=0)
    status.value.add(name="LANDED", number=1)
    return file


FILE = make_file()
DESCRIPTORS: bytes = descriptor_pb2.FileDescriptorSet(
    file=[
        _timestamp := descriptor_pb2.FileDescriptorProto.FromString(
            timestamp_pb2.DESCRIPTOR.serialized_pb
        ),
        FILE,
    ]
).SerializeToString()


def message_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_timestamp)
    pool.Add(FILE)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


FLIGHT = message_class("flights.Flight")
#: Schema 7; two indexes would be a nested message, one is a message of the file: Flight is second.
HEAD = b"\0\0\0\0\x07" + b"\x02\x02"


def full() -> Any:
    flight = FLIGHT(
        carrier="AA", delay=-5, bytes=2**64 - 1, stops=["JFK", "SFO"], status=1, raw=b"\xff"
    )
    flight.left_at.FromDatetime(datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC))
    flight.seats["1A"] = 2**32 - 1
    flight.gate.number = 12
    return flight


def test_every_type_has_a_column_and_absent_fields_are_null() -> None:
    decoder = protobuf_decoder("flights.Flight", descriptors=DESCRIPTORS)
    values = pa.array([HEAD + full().SerializeToString(), HEAD, None], pa.binary())
    column = decode_column(values, decoder, strict=True)
    assert column.type == pa.struct(
        [
            ("carrier", pa.string()),
            ("delay", pa.int32()),
            ("bytes", pa.decimal128(20, 0)),
            ("stops", pa.list_(pa.string())),
            ("status", pa.string()),
            ("left_at", pa.timestamp("us", tz="UTC")),
            ("seats", pa.map_(pa.string(), pa.int64())),
            ("gate", pa.struct([("number", pa.int64())])),
            ("raw", pa.binary()),
        ]
    )
    whole, empty, absent = column.to_pylist(maps_as_pydicts="strict")
    assert whole == {
        "carrier": "AA",
        "delay": -5,
        "bytes": decimal.Decimal(2**64 - 1),
        "stops": ["JFK", "SFO"],
        "status": "LANDED",
        "left_at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC),
        "seats": {"1A": 2**32 - 1},
        "gate": {"number": 12},
        "raw": b"\xff",
    }
    assert (empty["carrier"], empty["delay"], empty["gate"]) == ("", None, None)
    assert (empty["status"], empty["left_at"], empty["stops"]) == ("UNKNOWN", None, [])
    assert absent is None


def test_a_generated_class_brings_its_files_and_travels_to_tasks() -> None:
    decoder = pickle.loads(pickle.dumps(protobuf_decoder(FLIGHT, framed=False)))
    assert decoder.decode(full().SerializeToString())["gate"] == {"number": 12}


@pytest.mark.parametrize(
    ("head", "path"),
    [(b"\0", (0,)), (b"\x02\x02", (1,)), (b"\x04\x02\x00", (1, 0)), (b"\x02\x80\x02", (128,))],
)
def test_message_indexes_are_zigzag_varints(head: bytes, path: tuple[int, ...]) -> None:
    assert split_message_path(b"12345" + head + b"rest", 5) == (path, 5 + len(head))


def test_a_nested_message_has_the_indexes_of_its_outer_ones() -> None:
    decoder = protobuf_decoder("flights.Flight.Gate", descriptors=DESCRIPTORS)
    assert decoder.decode(b"\0\0\0\0\x07\x04\x02\x02\x08\x05") == {"number": 5}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0", "a record of 3 bytes is too short"),
        (b"\x08\x01\x02\x03\x04", "begins with byte 8"),
        (b"\0\0\0\0\x07", "ends within its message indexes"),
        (b"\0\0\0\0\x07" + b"\xff" * 11, "longer than 64 bits"),
        (b"\0\0\0\0\x07\x01", "has -1 message indexes"),
        (b"\0\0\0\0\x07\0", r"indexes \[0\] in its schema; message flights.Flight has \[1\]"),
        (HEAD + b"\x0a\x7f", "is not of the Protobuf message flights.Flight"),
    ],
)
def test_a_bad_record_is_null_with_a_reason_or_an_error(data: bytes, message: str) -> None:
    decoder = protobuf_decoder("flights.Flight", descriptors=DESCRIPTORS)
    values = pa.array([data], pa.binary())
    (bad,) = decode_column(values, decoder, strict=False).to_pylist()
    assert bad["record"] is None
    with pytest.raises(BadRecordError, match=message) as raised:
        decode_column(values, decoder, strict=True)
    assert str(raised.value) == bad["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("flights.Flight", None), "give descriptors, the bytes of a descriptor set, too"),
        (("flights.Flight", b"\xff\xff"), "descriptors are not a descriptor set"),
        (("flights.Train", DESCRIPTORS), "'flights.Train' is not in the descriptors.*flights.Fli"),
        (("flights.Node", DESCRIPTORS), "flights.Node.next: flights.Node contains itself"),
        ((FLIGHT, DESCRIPTORS), "a class has its own"),
    ],
)
def test_a_message_without_columns_is_named(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        protobuf_decoder(arguments[0], descriptors=arguments[1])
