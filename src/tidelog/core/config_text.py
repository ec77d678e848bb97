"""Parsers of configuration files, environment variables and overrides, which return `{key: value}`.

Java's properties format is read as `java.util.Properties` reads it (comments, separators, line
continuation, escapes), so that Kafka's server.properties needs no change. A TOML file may contain
the same keys, written as quoted keys or as nested tables. The environment variable of a key is
`TIDELOG_` and the key in upper case with underscores. This module opens no file and validates no
value; `core.config` validates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tidelog.core.errors import ConfigError

ENVIRONMENT_PREFIX = "TIDELOG_"
#: Environment variable with the bootstrap address for commands whose arguments name no cluster. The
#: variable sets no broker key.
BOOTSTRAP_VARIABLE = "TIDELOG_BOOTSTRAP"

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
#: The line ends of Java's properties format; no other character ends a line.
_LINE_ENDS = re.compile("\r\n|\n|\r")


def decode_properties(data: bytes) -> str:
    """Decode a properties file as UTF-8, else as ISO-8859-1, which Kafka always uses."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def parse_properties(text: str) -> dict[str, str]:
    """Read Java's properties format; the last value of a repeated key counts, as in Kafka.

    Raises ConfigError for a malformed `\\uXXXX` escape; every other text is valid.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _key_end(line)
        value_start = end
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
            while value_start < len(line) and line[value_start] in _BLANKS:
                value_start += 1
        try:
            properties[_unescape(line[:end])] = _unescape(line[value_start:])
        except ConfigError as error:
            raise ConfigError(f"line {number}: {error}") from error
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines with their numbers, without comments and blank lines.

    A line that ends in a backslash continues on the next line; the joined line has the last line's
    number. If the last line of the file ends in a backslash, an empty line is joined to it. A file
    that ends in a line of only a backslash thus sets the key "" (an empty name).
    """
    joined: str | None = None
    number = 0
    for number, raw in enumerate(_LINE_ENDS.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue  # a blank line or a comment, perhaps after a line of only a backslash
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined = (joined or "") + line[:-1]
            continue
        yield number, (joined or "") + line
        joined = None
    if joined is not None:
        yield number, joined


def _key_end(line: str) -> int:
    """Return the index of the key's end: the first blank, `=` or `:` that is not escaped."""
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
            continue
        if line[position] in "=:" or line[position] in _BLANKS:
            return position
        position += 1
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position >= len(text):
            parts.append(char)
            continue
        escaped = text[position]
        position += 1
        if escaped != "u":
            parts.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise ConfigError(f"malformed escape \\u{digits} in {text!r}: four hex digits expected")
        parts.append(chr(int(digits, 16)))
        position += 4
    # Java's characters are UTF-16 units, so two escapes may make one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_toml(text: str) -> dict[str, str]:
    """Read TOML with Kafka's keys; `"log.dirs" = [...]`, `log.dirs = [...]` and tables are equal.

    A TOML list becomes a comma-separated list, and a boolean becomes `true` or `false`. Raises
    ConfigError for invalid TOML and for values that have no text form (dates, tables in lists).
    """
    import tomllib  # `tomllib` takes 500 KiB, and only brokers with a TOML file need it

    try:
        document = tomllib.loads(text)
        return dict(_flatten("", document))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f'not valid TOML: {error}; lines like "log.dirs" = "/data" expected'
        ) from error
    except RecursionError:
        raise ConfigError("not valid TOML: it is nested too deeply; flat keys expected") from None


def _flatten(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict):
            yield from _flatten(key + ".", value)
        elif isinstance(value, list):
            yield key, ",".join(_toml_scalar(key, item) for item in value)
        else:
            yield key, _toml_scalar(key, value)


def _toml_scalar(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(
        f"{key}: {value!r} cannot be a configuration value: text or a number expected"
    )


def from_environment(environment: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Return the configuration from environment variables: `TIDELOG_LOG_DIRS` sets `log.dirs`.

    `keys` are all known keys. A variable that matches no known key becomes a key with dots for
    underscores, so that the validation reports an unknown key.
    """
    by_variable = {environment_name(key): key for key in keys}
    found: dict[str, str] = {}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable != BOOTSTRAP_VARIABLE:
            guess = variable[len(ENVIRONMENT_PREFIX) :].lower().replace("_", ".")
            found[by_variable.get(variable, guess)] = environment[variable]
    return found


def environment_name(key: str) -> str:
    """Return the name of the environment variable of a key."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` words of `--override`; raise ConfigError for a word without `=`."""
    found: dict[str, str] = {}
    for word in overrides:
        key, separator, value = word.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"override {word!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found
