"""Arrow types of Protobuf messages, and conversion of messages to plain values of these types.

Messages become structs, repeated fields lists, maps maps, and enums the names of their values.
`google.protobuf.Timestamp` becomes a timestamp. Unsigned 64-bit numbers become decimals of 20
digits, because Spark's columns have no unsigned integers. An absent field is null if the field has
presence; other absent fields have their default, as in Protobuf. A message that contains itself has
no column type: the error names the path of its field.

Descriptors are objects of Google's runtime, which ships no types for mypy, so descriptors are Any
here.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.option_values import OptionError

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNSIGNED_64: Final = pa.decimal128(20, 0)

#: Arrow types by FieldDescriptor.cpp_type: int32, int64, uint32, uint64, double, float, bool. The
#: cpp_type of enums is 8, of strings and bytes 9, of messages 10.
_SCALARS: Final = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),
    4: _UNSIGNED_64,
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
}
_ENUM: Final = 8
_TEXT: Final = 9
_MESSAGE: Final = 10
#: FieldDescriptor.type of bytes; strings and bytes share cpp_type 9.
_BYTES: Final = 12

Getter = Callable[[Any], Any]


def message_type(descriptor: Any) -> pa.DataType:
    """Return the Arrow type of a message.

    Raises OptionError for a message without a column type.
    """
    return _message_type(descriptor, descriptor.full_name, ())


def _message_type(descriptor: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if descriptor.full_name in within:
        raise OptionError(
            f"Protobuf message {path}: {descriptor.full_name} contains itself, which columns cannot"
        )
    inside = (*within, descriptor.full_name)
    return pa.struct(
        [
            pa.field(field.name, _field_type(field, f"{path}.{field.name}", inside))
            for field in descriptor.fields
        ]
    )


def _field_type(field: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(
            _single_type(entry["key"], path, within), _single_type(entry["value"], path, within)
        )
    single = _single_type(field, path, within)
    return pa.list_(single) if field.is_repeated else single


def _single_type(field: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if field.cpp_type == _MESSAGE:
        return _message_type(field.message_type, path, within)
    if field.cpp_type == _ENUM:
        return pa.string()
    if field.cpp_type == _TEXT:
        return pa.binary() if field.type == _BYTES else pa.string()
    return _SCALARS[field.cpp_type]


def message_getter(descriptor: Any) -> Getter:
    """Return a function that converts a message of the given type to plain values."""
    if descriptor.full_name == _TIMESTAMP:
        return _datetime_of
    getters = [(field.name, _field_getter(field)) for field in descriptor.fields]
    return lambda message: {name: getter(message) for name, getter in getters}


def _field_getter(field: Any) -> Getter:
    name = field.name
    if _is_map(field):
        value_of = _single_getter(field.message_type.fields_by_name["value"])
        key_of = _single_getter(field.message_type.fields_by_name["key"])
        return lambda message: [
            (key_of(key), value_of(value)) for key, value in getattr(message, name).items()
        ]
    single = _single_getter(field)
    if field.is_repeated:
        return lambda message: [single(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _single_getter(field: Any) -> Getter:
    if field.cpp_type == _MESSAGE:
        return message_getter(field.message_type)
    if field.cpp_type == _ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if _SCALARS.get(field.cpp_type) == _UNSIGNED_64:
        return decimal.Decimal
    return _itself


def _itself(value: Any) -> Any:
    return value


def _is_map(field: Any) -> bool:
    return bool(
        field.cpp_type == _MESSAGE
        and field.is_repeated
        and field.message_type.GetOptions().map_entry
    )


def _datetime_of(message: Any) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1_000)
