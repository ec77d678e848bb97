"""Values of options as text: booleans, numbers, times, lists, JSON.

Every function takes the options by lower-case name, and the option's name as users write it. Every
function returns the option's value, or a default if the option is not given. For an invalid value a
function raises OptionError with the name, the value and the expected form. This module contains no
name of an option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, TypeVar

from tidelog.core.errors import ConfigError

T = TypeVar("T")

#: Spark's units of time in milliseconds; a time without a unit is in milliseconds.
_UNITS_MS: Final[Mapping[str, float]] = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_TIME: Final = re.compile(r"([0-9]+)\s*([a-z]*)")
#: The largest offset or time that the protocol can hold.
MAX_LONG: Final = 2**63 - 1


class OptionError(ConfigError):
    """The error for an option that is missing, contradictory, or has an unusable value."""


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the value of a boolean option, which is `true` or `false` in upper or lower case."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}; expected true or false")
    return text.strip().lower() == "true"


def positive(options: Mapping[str, str], name: str, default: T) -> int | T:
    """Return the value of an option that must be a whole number above 0."""
    text = options.get(name.lower())
    if text is None:
        return default
    number = whole_number(text)
    if number is None or number <= 0:
        raise OptionError(f"option {name} is {text!r}; expected a number above 0")
    return number


def count(options: Mapping[str, str], name: str, default: T) -> int | T:
    """Return the value of an option that must be a whole number, 0 or above."""
    text = options.get(name.lower())
    if text is None:
        return default
    number = whole_number(text)
    if number is None:
        raise OptionError(f"option {name} is {text!r}; expected a number, 0 or above")
    return number


def choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    """Return the value of an option that must be one of the allowed words, in lower case."""
    text = options.get(name.lower(), default).strip().lower()
    if text not in allowed:
        given = options[name.lower()]
        raise OptionError(f"option {name} is {given!r}; expected {' or '.join(allowed)}")
    return text


def milliseconds(options: Mapping[str, str], name: str, default: str) -> int:
    """Return, in milliseconds, the value of an option that is a time in Spark's form (`15m`,
    `500ms`).
    """
    text = options.get(name.lower(), default)
    match = _TIME.fullmatch(text.strip().lower())
    unit = "" if match is None else match[2] or "ms"
    if match is None or unit not in _UNITS_MS:
        raise OptionError(
            f"option {name} is {text!r}; expected a time such as 15m, with one of the units"
            f" {', '.join(_UNITS_MS)}"
        )
    return int(int(match[1]) * _UNITS_MS[unit])


def names(options: Mapping[str, str], name: str, expected: str) -> tuple[str, ...]:
    """Return the elements of a comma-separated list without repetition; the option is required."""
    text = options[name.lower()]
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not found:
        raise OptionError(f"option {name} is {text!r}; expected {expected} with commas between")
    return found


def json_object(name: str, text: str, expected: str) -> dict[str, object]:
    """Return the JSON object in `text`, the value of option `name`."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} is {text!r}; {expected}") from error
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name} is {text!r}; {expected}")
    return parsed


def whole_number(text: str) -> int | None:
    """Return the number in a text of digits that fits into 64 bits; None for any other text."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or int(digits) > MAX_LONG:
        return None
    return int(digits)


def signed_number(text: str) -> int | None:
    """Return the number in a text of digits, which may begin with a minus; else None."""
    number = whole_number(text.strip().removeprefix("-"))
    return -number if number is not None and text.strip().startswith("-") else number
