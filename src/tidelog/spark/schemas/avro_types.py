"""Arrow types of Avro schemas, and preparation of schemas for this package.

Records become structs, and unions with null become nullable fields. Enums and UUIDs become text,
and `fixed` becomes bytes. Timestamps are in UTC with microseconds; `decimal` and `date` keep their
meaning. Times of day, local timestamps and durations keep their underlying numbers or bytes. Unions
of several types and records that contain themselves have no column type, and are errors with the
path of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.option_values import OptionError

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Logical types that are decoded; other logical types are removed from schemas.
_LOGICAL: Final = {
    ("long", "timestamp-millis"): _TIMESTAMP,
    ("long", "timestamp-micros"): _TIMESTAMP,
    ("int", "date"): pa.date32(),
}
_NAMED: Final = ("record", "error", "enum", "fixed")


def without_other_logical_types(schema: Any) -> Any:
    """Return a schema, as parsed JSON, with only the logical types that have a column type."""
    if isinstance(schema, list):
        return [without_other_logical_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = without_other_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [without_other_logical_types(each) for each in kept["fields"]]
    kind, logical = schema.get("type"), schema.get("logicalType")
    if logical == "decimal" or (isinstance(kind, str) and (kind, logical) in _LOGICAL):
        kept["logicalType"] = logical
    return kept


def arrow_type_of(schema: Any, named: Mapping[str, Any]) -> pa.DataType:
    """Return the type of a schema that fastavro parsed; `named` has its named types.

    Raises OptionError for a schema without a column type.
    """
    return _type_of(schema, named, "", ())


def _type_of(schema: Any, named: Mapping[str, Any], path: str, within: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        members = [each for each in schema if each != "null"]
        if len(members) != 1:
            raise OptionError(
                f"Avro schema{_at(path)}: a union of {len(members)} types has no column type; only"
                " unions of null and one type have"
            )
        return _type_of(members[0], named, path, within)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema not in named:
            raise OptionError(f"Avro schema{_at(path)}: type {schema!r} is not known")
        return _type_of(named[schema], named, path, within)
    kind = schema["type"]
    if isinstance(kind, (list, dict)):
        return _type_of(kind, named, path, within)
    if schema.get("logicalType") == "decimal":
        return _decimal(schema, path)
    if (kind, schema.get("logicalType")) in _LOGICAL:
        return _LOGICAL[kind, schema["logicalType"]]
    if kind == "array":
        return pa.list_(_type_of(schema["items"], named, f"{path}[]", within))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(schema["values"], named, f"{path}{{}}", within))
    if kind not in _NAMED:
        return _type_of(kind, named, path, within)
    if kind in ("enum", "fixed"):
        return pa.string() if kind == "enum" else pa.binary()
    name = schema["name"]
    if name in within:
        raise OptionError(
            f"Avro schema{_at(path)}: record {name!r} contains itself, which columns cannot"
        )
    return pa.struct(
        [
            pa.field(
                each["name"],
                _type_of(each["type"], named, f"{path}.{each['name']}", (*within, name)),
            )
            for each in schema["fields"]
        ]
    )


def _decimal(schema: Mapping[str, Any], path: str) -> pa.DataType:
    precision = schema["precision"]
    if precision > 38:
        raise OptionError(
            f"Avro schema{_at(path)}: a decimal of {precision} digits; columns have up to 38"
        )
    return pa.decimal128(precision, schema.get("scale", 0))


def _at(path: str) -> str:
    return f", field {path.lstrip('.')}" if path else ""
