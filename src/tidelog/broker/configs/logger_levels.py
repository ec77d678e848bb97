"""Levels of this broker's loggers, as configuration of resource type BROKER_LOGGER (KIP-412).

A changed level holds until the process ends, because the store does not keep levels. Invalid
requests get the same errors as from Kafka. Simulated brokers have no loggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.core.config_entries import ConfigEntry, ConfigSource
from tidelog.core.config_keys import ConfigType
from tidelog.core.dynamic_config import Alteration, ConfigOperation
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Loggers

#: Name of the root logger.
ROOT: Final = "root"
#: Kafka's level names, with the numbers of Python's levels.
_LEVELS: Final = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}


def check_broker(loggers: Loggers | None, name: str, broker_id: int) -> Loggers:
    """Return this broker's loggers; raise INVALID_REQUEST if `name` is not this broker's id."""
    if loggers is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this broker has no loggers")
    if name != str(broker_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"loggers of broker {name!r} were asked for, this is broker {broker_id}: ask that one",
        )
    return loggers


def entries(loggers: Loggers) -> list[ConfigEntry]:
    """Return the current level of each logger."""
    return [
        ConfigEntry(name, _text(level), ConfigSource.DYNAMIC_LOGGER, ConfigType.STRING, "")
        for name, level in sorted(loggers.levels().items())
    ]


def alter(loggers: Loggers, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """Set and unset the levels of loggers; if one change is invalid, raise KafkaError and change
    nothing.
    """
    known = loggers.levels()
    wanted: dict[str, int | None] = {}
    for name, operation, value in alterations:
        if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name}: operation {operation} is not possible for a level; 0 (set) or 1 (delete)"
                " expected",
            )
        if name in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"named more than once: {name}")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
        if operation == ConfigOperation.DELETE:
            if name == ROOT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"the level of {ROOT} cannot be removed; set it"
                )
            wanted[name] = None
        elif value not in _LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG if value is not None else ErrorCode.INVALID_REQUEST,
                f"{name}={value!r} is no level: {', '.join(_LEVELS)} expected",
            )
        else:
            wanted[name] = _LEVELS[value]
    if not validate_only:
        for name, level in wanted.items():
            loggers.set_level(name, level)


def _text(level: int) -> str:
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
