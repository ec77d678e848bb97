"""Levels of loggers as configuration of a broker (KIP-412): errors, operations, levels."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.configs import logger_levels
from tidelog.broker.configs.config_requests import LOGGER_RESOURCE, Resource, alter
from tidelog.core.dynamic_config import Alteration, ConfigOperation
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.runtime.logging import ROOT, LogLevels

SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND


class FakeLoggers:
    """Three loggers, one below root without a level of its own."""

    def __init__(self) -> None:
        self.own: dict[str, int | None] = {"root": 20, "a": 30, "b": None}

    def levels(self) -> dict[str, int]:
        return {name: level or self.own["root"] or 0 for name, level in self.own.items()}

    def set_level(self, name: str, level: int | None) -> None:
        self.own[name] = level

    def watch(self, changed: Any) -> None:
        raise AssertionError("the levels of these loggers are not watched")


def shown(loggers: FakeLoggers) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in logger_levels.entries(loggers)}


def test_levels_are_set_and_unset_and_shown_by_kafkas_names() -> None:
    loggers = FakeLoggers()
    assert shown(loggers) == {"a": "WARN", "b": "INFO", "root": "INFO"}
    wanted = [Alteration("b", SET, "TRACE"), Alteration("a", DELETE, None)]
    logger_levels.alter(loggers, wanted, validate_only=True)
    assert shown(loggers) == {"a": "WARN", "b": "INFO", "root": "INFO"}
    logger_levels.alter(loggers, wanted, validate_only=False)
    assert shown(loggers) == {"a": "INFO", "b": "TRACE", "root": "INFO"}
    assert not any(entry.is_read_only for entry in logger_levels.entries(loggers))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (Alteration("none", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (Alteration("a", SET, "info"), ErrorCode.INVALID_CONFIG),
        (Alteration("a", SET, None), ErrorCode.INVALID_REQUEST),
        (Alteration("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (Alteration("a", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (Alteration("b", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_that_is_wrong_changes_nothing(wrong: Alteration, code: ErrorCode) -> None:
    loggers = FakeLoggers()
    with pytest.raises(KafkaError) as caught:
        wanted = [Alteration("b", SET, "ERROR"), wrong]
        logger_levels.alter(loggers, wanted, validate_only=False)
    assert caught.value.code is code
    assert loggers.own == FakeLoggers().own


@pytest.mark.parametrize(
    ("name", "replace", "error"),
    [("1", False, 0), ("1", True, 42), ("2", False, 42), ("", False, 42)],
)
def test_only_the_broker_itself_changes_them_and_only_one_by_one(
    name: str, replace: bool, error: int
) -> None:
    loggers = FakeLoggers()
    services: Any = SimpleNamespace(ports=SimpleNamespace(loggers=loggers), broker_id=1)
    resource = Resource(LOGGER_RESOURCE, name, [Alteration("a", SET, "DEBUG")])
    nothing: Any = None
    [outcome] = asyncio.run(
        alter(services, nothing, nothing, [resource], replace=replace, validate_only=False)
    )
    assert outcome.error == error
    assert (loggers.own["a"] == 10) is (error == 0)


def test_a_broker_without_loggers_says_so() -> None:
    with pytest.raises(KafkaError, match="has no loggers"):
        logger_levels.check_broker(None, "1", 1)


def test_the_loggers_of_a_process() -> None:
    name, levels = "kafka.test_logger_levels", LogLevels()
    logger = logging.getLogger(name)
    changes: list[str] = []
    levels.watch(lambda: changes.append("changed"))
    levels.set_level(name, logging.ERROR)
    assert (levels.levels()[name], logger.level) == (logging.ERROR, logging.ERROR)
    levels.set_level(name, None)
    assert (logger.level, changes) == (logging.NOTSET, ["changed", "changed"])
    before = ROOT.level
    try:
        levels.set_level("root", logging.DEBUG)
        assert levels.levels()["root"] == logging.DEBUG
    finally:
        levels.set_level("root", before)
    assert not {"asyncio", "pytest"} & levels.levels().keys(), "libraries are not the broker's"
