"""Reading of configuration files, for brokers and for commands that use the same files.

A file whose name ends in `.toml` is TOML; any other file is a Java properties file. Every error is
a ConfigError that names the file, environment variable or option at fault. `core.config` validates
the values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from tidelog.core.config import BrokerConfig, known_keys
from tidelog.core.config_text import (
    decode_properties,
    environment_name,
    from_environment,
    parse_overrides,
    parse_properties,
    parse_toml,
)
from tidelog.core.errors import ConfigError

_ID_KEYS = frozenset({"broker.id", "node.id"})


def load_config(
    path: str, overrides: Sequence[str], *, named: str = "--config ", needs_id: bool = True
) -> BrokerConfig:
    """Read a properties or TOML file, the environment and overrides.

    Error messages have the text `named` before the path of the file. If `needs_id` is false, the
    broker id may be missing, because brokers often get it as an override. The message of a
    ConfigError names the source of the value.
    """
    environment: dict[str, str] = {}
    given: dict[str, str] = {}
    content = _read(path, named)
    try:
        properties = parse_toml(content) if path.endswith(".toml") else parse_properties(content)
        environment = from_environment(os.environ, known_keys())
        given = parse_overrides(overrides)
        if not needs_id and not _ID_KEYS & {*properties, *environment, *given}:
            properties["broker.id"] = "0"
        return BrokerConfig.from_properties(properties, given, environment=environment)
    except ConfigError as error:
        raise ConfigError(f"{_source_of(error, path, environment, given)}: {error}") from error


def read_properties(path: str) -> dict[str, str]:
    """Return the unvalidated keys of a properties file; a ConfigError names the file."""
    content = _read(path, "")
    try:
        return parse_properties(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _read(path: str, named: str) -> str:
    """Return a file's text, decoding properties by Kafka's rules."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        return data.decode() if path.endswith(".toml") else decode_properties(data)
    except OSError as error:
        raise ConfigError(
            f"{named}{path}: {error.strerror}; a readable server.properties or .toml file expected"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{named}{path}: byte {error.start} is not UTF-8, which TOML files are in"
        ) from error


def _source_of(
    error: ConfigError, path: str, environment: Mapping[str, str], overrides: Mapping[str, str]
) -> str:
    """Return the source (option, environment or file) of the key whose value an error rejects."""
    key = re.match(r"[\w.-]+(?==)", str(error))
    if key is not None and key[0] in overrides:
        return f"--override {key[0]}"
    if key is not None and key[0] in environment:
        return f"{environment_name(key[0])} in the environment"
    return path
