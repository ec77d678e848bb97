"""Readers of the JSON in nodes: each returns a typed value, or raises a LayoutError.

A LayoutError names the path, the key and the fault. Readers ignore unknown keys and check all other
keys, because Kafka's brokers, tools and people write nodes, too. A reader raises only LayoutError,
even for arbitrary bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tidelog.core.errors import TidelogError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_REQUIRED: Any = object()

#: One encoder for all values, because `json.dumps` would create an encoder for each value.
_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class LayoutError(TidelogError):
    """The error of a node whose data does not have the form that its path requires."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def encode_json(value: dict[str, Any]) -> bytes:
    """Return JSON as Kafka writes it: UTF-8, without blanks, with keys in the given order."""
    return encode_value(value)


def encode_value(value: object) -> bytes:
    """Return the JSON of a value that is no object, in the same form as `encode_json`."""
    return _encode(value).encode("utf-8")


def parse_object(path: str, data: bytes) -> Fields:
    """Return the JSON object in a node. Raises LayoutError if the node has no JSON object."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LayoutError(path, f"not JSON: {error}") from None
    return Fields(path, value, "")


def parse_integers(path: str, data: bytes) -> tuple[int, ...]:
    """Return the list of broker ids in a node. Raises LayoutError, also if an id is repeated."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LayoutError(path, f"not JSON: {error}") from None
    return Fields(path, {"the node": value}, "").integers("the node")


def parse_decimal(path: str, data: bytes, maximum: int = INT32_MAX) -> int:
    """Return the decimal number in a node.

    Raises LayoutError if the data is no decimal number or above `maximum`.
    """
    if not data.isdigit() or len(data) > 19 or int(data) > maximum:
        raise LayoutError(path, f"not a decimal number up to {maximum}: {data[:40]!r}")
    return int(data)


def is_number(name: str) -> bool:
    """Whether a text (a key or a node's name) is a number of up to ten digits without leading
    zeros.
    """
    return name.isascii() and name.isdigit() and len(name) <= 10 and (name == "0" or name[0] != "0")


def _is_encodable(text: str) -> bool:
    """Whether a JSON string can be written to a node as UTF-8; a string with a lone surrogate
    cannot.
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


class Fields:
    """One JSON object; its methods return the value of a key after checking its type."""

    __slots__ = ("_values", "_where", "path")

    def __init__(self, path: str, value: object, where: str) -> None:
        self.path = path
        self._where = where
        if not isinstance(value, dict):
            raise LayoutError(path, f"{where or 'the node'} is not a JSON object")
        self._values: dict[str, Any] = value

    @property
    def values(self) -> Mapping[str, Any]:
        """All keys and values of the JSON object, without checks."""
        return self._values

    def has(self, key: str) -> bool:
        """Whether the object has the key, and its value is not null."""
        return self._values.get(key) is not None

    def names(self) -> list[str]:
        """Return all keys in their written order."""
        return list(self._values)

    def fault(self, key: str, expected: str) -> LayoutError:
        """Return a LayoutError that names a key, its value, and the `expected` kind of value."""
        where = f"{self._where}.{key}" if self._where else key
        if key not in self._values:
            return LayoutError(self.path, f"{where} is missing ({expected} expected)")
        return LayoutError(
            self.path, f"{where} is {_shown(self._values[key])} ({expected} expected)"
        )

    def integer(
        self,
        key: str,
        default: int = _REQUIRED,
        *,
        minimum: int = -1,
        maximum: int = INT32_MAX,
    ) -> int:
        """Return an integer within bounds; `default` if the key is absent or null."""
        value = self._values.get(key)
        if value is None and default is not _REQUIRED:
            return default
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.fault(key, f"an integer from {minimum} to {maximum}")
        return value

    def decimal_text(self, key: str, *, minimum: int = 0, maximum: int = INT64_MAX) -> int:
        """Return an integer that is written as a string, as Kafka writes 64-bit values."""
        value = self._values.get(key)
        digits = value.removeprefix("-") if isinstance(value, str) else ""
        if not isinstance(value, str) or not (
            digits.isascii()
            and digits.isdigit()
            and len(digits) <= 19
            and minimum <= int(value) <= maximum
        ):
            raise self.fault(key, f"a decimal number from {minimum} to {maximum} as a string")
        return int(value)

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """Return a string; `default` if the key is absent or null."""
        value = self._values.get(key)
        if value is None and default is not _REQUIRED:
            return default
        if not isinstance(value, str) or not _is_encodable(value):
            raise self.fault(key, "a string")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """Return true or false; `default` if the key is absent or null."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def integers(
        self, key: str, *, maximum: int = INT32_MAX, minimum: int = 0, distinct: bool = True
    ) -> tuple[int, ...]:
        """Return a list of integers within bounds; `distinct` rejects a repeated integer."""
        value = self._values.get(key)
        if not isinstance(value, list):
            raise self.fault(key, "a list of integers")
        for element in value:
            if type(element) is not int or not minimum <= element <= maximum:
                raise self.fault(key, f"a list of integers from {minimum} to {maximum}")
        if distinct and len(dict.fromkeys(value)) != len(value):
            raise self.fault(key, "a list without repetition")
        return tuple(value)

    def texts(self, key: str) -> list[str]:
        """Return the value of a key, a list of strings."""
        value = self._values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fault(key, "a list of strings")
        return list(value)

    def object(self, key: str) -> Fields:
        """Return a nested object; an empty object if the key is absent or null."""
        value = self._values.get(key)
        where = f"{self._where}.{key}" if self._where else key
        return Fields(self.path, {} if value is None else value, where)

    def objects(self, key: str) -> list[Fields]:
        """Return the value of a key, a list of objects."""
        value = self._values.get(key)
        if not isinstance(value, list):
            raise self.fault(key, "a list of objects")
        where = f"{self._where}.{key}" if self._where else key
        return [Fields(self.path, item, f"{where}[{index}]") for index, item in enumerate(value)]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
