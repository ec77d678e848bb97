"""The request log is there while its level asks for it, and has Kafka's keys."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.request_log import REQUEST_LOGGER, RequestLog
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.broker.server.served import Served
from tidelog.core.authorization import ANONYMOUS
from tidelog.wire.codec import RequestHeader
from tidelog.wire.registry import METADATA

ANSWER = object()


class Levels:
    """The level of the request log, as a test sets it."""

    def __init__(self) -> None:
        self.level = logging.WARNING
        self.watchers: list[Any] = []

    def levels(self) -> dict[str, int]:
        return {"root": logging.INFO, REQUEST_LOGGER: self.level}

    def set_level(self, name: str, level: int | None) -> None:
        self.level = level or logging.INFO
        for changed in self.watchers:
            changed()

    def watch(self, changed: Any) -> None:
        self.watchers.append(changed)


class Harness:
    """A dispatcher of one API with a request log."""

    def __init__(self, answer: Any = ANSWER) -> None:
        nothing: Any = None
        self.lines: list[tuple[str, int, str]] = []
        self.now_ms = 1_000
        self.levels = Levels()
        self.dispatcher = Dispatcher(nothing, nothing, nothing)
        self.dispatcher.serve({METADATA: Served(Card(METADATA, 0, 12), lambda _: answer)})
        tracer: Any = SimpleNamespace(log=lambda *line: self.lines.append(line))
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        RequestLog(self.dispatcher, self.levels, tracer, clock)

    def ask(self) -> Any:
        handle = self.dispatcher.handler(METADATA, 9)
        assert handle is not None
        connection: Any = SimpleNamespace(peer="h:5", listener="PLAINTEXT", principal=ANONYMOUS)
        return handle(Request(RequestHeader(METADATA, 9, 70, "me"), "topics", connection, 990))


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_no_step_stands_around_handlers_until_the_level_asks_for_it(harness: Harness) -> None:
    before = harness.dispatcher.handler(METADATA, 9)
    assert harness.ask() is ANSWER and harness.lines == []
    harness.levels.set_level(REQUEST_LOGGER, logging.DEBUG)
    assert harness.ask() is ANSWER and len(harness.lines) == 1
    harness.levels.set_level(REQUEST_LOGGER, logging.INFO)
    assert harness.dispatcher.handler(METADATA, 9) is before
    assert harness.ask() is ANSWER and len(harness.lines) == 1


def test_a_line_has_kafkas_keys(harness: Harness) -> None:
    harness.levels.set_level(REQUEST_LOGGER, logging.DEBUG)
    harness.ask()
    [(stream, level, text)] = harness.lines
    assert (stream, level) == ("request_log", logging.DEBUG)
    assert text.startswith("Completed request:")
    assert json.loads(text.removeprefix("Completed request:")) == {
        "requestHeader": {
            "requestApiKey": 3,
            "requestApiVersion": 9,
            "correlationId": 70,
            "clientId": "me",
            "requestApiKeyName": "Metadata",
        },
        "connection": "h:5",
        "totalTimeMs": 10,
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
    }


def test_at_trace_the_line_has_the_request(harness: Harness) -> None:
    harness.levels.set_level(REQUEST_LOGGER, 5)
    harness.ask()
    assert '"request":"\'topics\'"' in harness.lines[0][2]


def test_a_request_that_waits_is_logged_when_it_is_answered() -> None:
    pending = Pending()
    harness = Harness(pending)
    harness.levels.set_level(REQUEST_LOGGER, logging.DEBUG)
    got: list[Any] = []
    outer = harness.ask()
    outer.deliver_to(got.append)
    assert harness.lines == []
    harness.now_ms = 3_000
    harness.levels.set_level(REQUEST_LOGGER, logging.WARNING)
    pending.complete(ANSWER)
    assert got == [ANSWER]
    assert '"totalTimeMs":2010' in harness.lines[0][2], "it keeps the step it began with"
