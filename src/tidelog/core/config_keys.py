"""Declaration and parsing of one configuration key: type, default, range, meaning.

A key is a field of a frozen dataclass; the key's name is the field's name with dots for
underscores. The declaration of a key carries its parser and its meaning, so parsing, validation and
the generated reference have one source. Types and ranges are Kafka's (ConfigDef in 3.9). This
module declares no particular key.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The type of a value, as DescribeConfigs reports it (ConfigEntry.ConfigType of KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key.

    `read` parses a text without surrounding blanks; its ValueError says why the text is invalid.
    `expected` describes the valid values for errors and the reference. `ours` marks keys that Kafka
    does not have. `without_effect` is the reason why a key of Kafka is accepted and does nothing
    here; it is empty for keys with an effect.
    """

    read: Callable[[str], Any]
    expected: str
    meaning: str
    ours: bool = False
    synonyms: tuple[str, ...] = ()
    type: ConfigType = ConfigType.STRING
    without_effect: str = ""

    @property
    def documentation(self) -> str:
        """The documentation of the key in DescribeConfigs."""
        note = f" It has no effect here: {self.without_effect}." if self.without_effect else ""
        return f"{self.meaning} Takes {self.expected}.{note}"


#: Characters that Java's `trim` removes from the ends of a text.
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
#: Characters that `\s` matches in Java's regular expressions.
_BLANKS = " \t\n\v\f\r"


def trim(text: str) -> str:
    """Strip blanks and control characters from both ends of a text, like Java's `trim`."""
    return text.strip(_TRIMMED)


def key_name(attribute: str) -> str:
    """Return the configuration key of an attribute."""
    return attribute.replace("_", ".")


def keys_of(config_class: type[Any]) -> dict[str, tuple[str, Key, Any]]:
    """Return `{key: (attribute, declaration, default)}` of a class, in the order of its fields."""
    return {
        key_name(field.name): (field.name, field.metadata["key"], field.default)
        for field in dataclasses.fields(config_class)
        if "key" in field.metadata
    }


def read_value(name: str, key: Key, text: str) -> Any:
    """Parse a key's value; raise a ConfigError that names key, value and the right form."""
    try:
        return key.read(trim(text))
    except ValueError as error:
        reason = str(error)
        raise ConfigError(
            f"{name}={trim(text)!r} is not valid: {key.expected} expected"
            + (f" ({reason})" if reason else "")
        ) from None


def read_all(config_class: type[Any], properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each key of `config_class` in `properties`, by the key's attribute.

    A key's own name takes precedence over its synonyms, and an earlier synonym over a later
    synonym.
    """
    values: dict[str, Any] = {}
    for name, (attribute, key, _) in keys_of(config_class).items():
        for candidate in (name, *key.synonyms):
            if candidate in properties:
                values[attribute] = read_value(candidate, key, properties[candidate])
                break
    return values


def to_text(value: Any) -> str:
    """Return the text that a configuration file has for a value, and that `Key.read` parses."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(element) for element in value)
    return str(value)


def _declare(default: Any, key: Key) -> Any:
    return dataclasses.field(default=default, metadata={"key": key})


def integer(
    default: int,
    meaning: str,
    *,
    at_least: int = -(2**31),
    at_most: int = INT32_MAX,
    ours: bool = False,
    synonyms: tuple[str, ...] = (),
    also: int | None = None,
) -> Any:
    """Return a key declaration of Kafka's type INT: 32 bits, within a range or equal to `also`."""
    if (at_least, at_most) in ((-(2**31), INT32_MAX), (-(2**63), INT64_MAX)):
        expected = "an integer"
    elif at_most in (INT32_MAX, INT64_MAX):
        expected = f"an integer of at least {at_least}"
    else:
        expected = f"an integer from {at_least} to {at_most}"
    if also is not None:
        expected += f", or {also}"

    def read(text: str) -> int:
        number = whole_number(text)
        if not at_least <= number <= at_most and number != also:
            raise ValueError
        return number

    types = {INT16_MAX: ConfigType.SHORT, INT64_MAX: ConfigType.LONG}
    kind = types.get(at_most, ConfigType.INT)
    return _declare(default, Key(read, expected, meaning, ours, synonyms, kind))


def long(
    default: int,
    meaning: str,
    *,
    at_least: int = -(2**63),
    ours: bool = False,
    synonyms: tuple[str, ...] = (),
) -> Any:
    """Return a key declaration of Kafka's type LONG: 64 bits, with a lower bound."""
    return integer(
        default, meaning, at_least=at_least, at_most=INT64_MAX, ours=ours, synonyms=synonyms
    )


def whole_number(text: str) -> int:
    """Parse an integer like Java: an optional sign, then decimal digits of any script.

    Raises ValueError otherwise.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal():
        raise ValueError("not an integer")
    return int(text)


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?")
_NO_FINITE = re.compile(r"[+-]?(?:Infinity|NaN)")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?"
)


def floating(text: str) -> float:
    """Parse a number like Java's Double.parseDouble; raise ValueError for any other text."""
    if _DECIMAL.fullmatch(text) or _NO_FINITE.fullmatch(text):
        return float(text.rstrip("dDfF"))
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("dDfF"))
        except OverflowError:
            return math.copysign(math.inf, -1 if text.startswith("-") else 1)
    raise ValueError("not a number")


def ratio(default: float, meaning: str) -> Any:
    """Return a key declaration of Kafka's type DOUBLE between 0 and 1."""

    def read(text: str) -> float:
        number = floating(text)
        if not 0 <= number <= 1:
            raise ValueError
        return number

    return _declare(default, Key(read, "a number from 0 to 1", meaning, type=ConfigType.DOUBLE))


def number(default: float, meaning: str, *, above: float = 0) -> Any:
    """Return a key declaration of Kafka's type DOUBLE, whose values must be larger than `above`."""

    def read(text: str) -> float:
        value = floating(text)
        if not value > above:
            raise ValueError
        return value

    expected = f"a number above {above:g}"
    return _declare(default, Key(read, expected, meaning, type=ConfigType.DOUBLE))


def boolean(default: bool, meaning: str, *, ours: bool = False) -> Any:
    """Return a key declaration of Kafka's type BOOLEAN."""

    def read(text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError
        return lowered == "true"

    return _declare(default, Key(read, "true or false", meaning, ours, type=ConfigType.BOOLEAN))


def choice(default: str, meaning: str, *allowed: str, ours: bool = False) -> Any:
    """Return the declaration of a key with a fixed set of values."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return _declare(default, Key(read, " or ".join(allowed), meaning, ours))


def choices(default: tuple[str, ...], meaning: str, *allowed: str) -> Any:
    """Return a key declaration of Kafka's type LIST, whose elements are from a fixed set."""

    def read(text: str) -> tuple[str, ...]:
        values = _elements(text)
        if any(value not in allowed for value in values):
            raise ValueError
        return tuple(dict.fromkeys(values))

    expected = f"a comma list of {', '.join(allowed)}"
    return _declare(default, Key(read, expected, meaning, type=ConfigType.LIST))


def throttled_replicas(meaning: str) -> Any:
    """Return a key declaration of Kafka's type LIST of replicas; `*` means all replicas."""

    def read(text: str) -> tuple[str, ...]:
        values = _elements(text)
        wrong = [value for value in values if not _is_replica(value)]
        if wrong and "".join(values) != "*":
            raise ValueError(f"{wrong[0]!r} names no replica")
        return tuple(values)

    expected = "* or a comma list of partition:broker"
    return _declare((), Key(read, expected, meaning, type=ConfigType.LIST))


def paths_or_all(meaning: str) -> Any:
    """Return a key declaration of Kafka's type LIST of directories; `*` means all directories."""

    def read(text: str) -> tuple[str, ...]:
        values = [each if each == "/" else each.rstrip("/") for each in comma_list(text)]
        if "*" in values and len(values) > 1:
            raise ValueError("* stands for all and must stand alone")
        return tuple(dict.fromkeys(values))

    return _declare((), Key(read, "* or a comma list of paths", meaning, type=ConfigType.LIST))


def paths(meaning: str, *, ours: bool = False) -> Any:
    """Return a key declaration of Kafka's type LIST whose elements are directories."""

    def read(text: str) -> tuple[str, ...]:
        values = [each if each == "/" else each.rstrip("/") for each in comma_list(text)]
        return tuple(dict.fromkeys(values))

    return _declare(
        (), Key(read, "a comma list of paths", meaning, type=ConfigType.LIST, ours=ours)
    )


def _is_replica(element: str) -> bool:
    if not element:
        return True  # Kafka's pattern for lists of replicas accepts an empty element
    return re.fullmatch("[0-9]+:[0-9]+", element, re.ASCII) is not None


def _elements(text: str) -> list[str]:
    """Split a LIST into its elements like Kafka's ConfigDef; an empty text has no elements."""
    return [element.strip(_BLANKS) for element in text.split(",")] if trim(text) else []


def without_effect(field: Any, reason: str) -> Any:
    """Return the declaration `field`, marked as a key that is accepted and has no effect."""
    key = dataclasses.replace(field.metadata["key"], without_effect=reason)
    return _declare(field.default, key)


def only(default: Any, meaning: str, value: str) -> Any:
    """Return the declaration of a key that supports only one value, Kafka's default."""

    def read(text: str) -> Any:
        if text.lower() != value:
            raise ValueError("other values are not supported yet")
        return default

    kind = ConfigType.BOOLEAN if isinstance(default, bool) else ConfigType.LONG
    return _declare(default, Key(read, value, meaning, type=kind))


def text(
    default: str,
    meaning: str,
    *,
    expected: str = "text",
    ours: bool = False,
    synonyms: tuple[str, ...] = (),
    pattern: Callable[[str], bool] = lambda _: True,
) -> Any:
    """Return a key declaration of Kafka's type STRING."""

    def read(value: str) -> str:
        if not pattern(value):
            raise ValueError
        return value

    return _declare(default, Key(read, expected, meaning, ours, synonyms))


def comma_list(value: str) -> list[str]:
    """Return the non-empty elements of a comma-separated list, without surrounding blanks."""
    elements = (element.strip(_BLANKS) for element in trim(value).split(","))
    return [element for element in elements if element]
