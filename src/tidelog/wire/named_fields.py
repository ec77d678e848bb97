"""Changes of message fields by name, for example fields that a person has written in JSON.

Structs are written as dicts of some of their fields, arrays as lists. Bytes, record batches and
UUIDs may be bytes or hexadecimal text, because JSON has no bytes. Fields that are not named keep
their values; in new structs, these fields have their defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from tidelog.wire.schema import FieldSpec, fields_of

T = TypeVar("T")

_BYTES: Final = ("bytes", "records", "uuid")
_TYPES: Final[Mapping[str, type]] = {"bool": bool, "float64": float, "string": str}
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UUID_BYTES: Final = 16


def with_fields(message: T, named: Mapping[str, Any]) -> T:
    """Return a message with the named fields replaced.

    Raises ValueError for an unknown field, with its path, and for a value of another type.
    """
    return _with_fields(message, named, "")


def _with_fields(struct: T, named: Mapping[str, Any], path: str) -> T:
    known = {each.name: each.spec for each in fields_of(type(struct))}
    changed = {}
    for name, value in named.items():
        if name not in known:
            has = ", ".join(known) or "no fields"
            raise ValueError(f"{path}{name}: no field; {type(struct).__name__} has {has}")
        changed[name] = _value(known[name], value, f"{path}{name}")
    return dataclasses.replace(struct, **changed)  # type: ignore[type-var]  # a dataclass


def _value(spec: FieldSpec, value: Any, path: str) -> Any:
    if value is None and spec.nullable.low <= spec.nullable.high:
        return None
    if spec.kind == "array":
        if not isinstance(value, list | tuple):
            raise ValueError(f"{path}: {value!r}: a list expected")
        return [_element(spec.element, each, f"{path}[{at}]") for at, each in enumerate(value)]
    if spec.kind == "struct":
        return _element(spec.element, value, path)
    return _primitive(spec.kind, value, path)


def _element(element: type | str | None, value: Any, path: str) -> Any:
    if not isinstance(element, type):
        return _primitive(str(element), value, path)
    if not isinstance(value, Mapping):
        raise ValueError(f"{path}: {value!r}: the fields of {element.__name__} expected, a dict")
    return _with_fields(element(), value, f"{path}.")


def _primitive(kind: str, value: Any, path: str) -> Any:
    if kind in _BYTES:
        return _bytes(kind, value, path)
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        if type(value) is not int or not -limit <= value < limit:
            raise ValueError(f"{path}: {value!r}: an integer of {_BITS[kind]} bits expected")
        return value
    wanted = _TYPES[kind]
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError(f"{path}: {value!r}: a value of type {wanted.__name__} expected")
    return value


def _bytes(kind: str, value: Any, path: str) -> bytes:
    try:
        found = bytes.fromhex(value) if isinstance(value, str) else bytes(memoryview(value))
    except (TypeError, ValueError):
        raise ValueError(f"{path}: {value!r}: bytes or hexadecimal digits expected") from None
    if kind == "uuid" and len(found) != _UUID_BYTES:
        raise ValueError(f"{path}: {value!r}: {_UUID_BYTES} bytes expected")
    return found
