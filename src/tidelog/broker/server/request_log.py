"""The request log: a line for each completed request, if an operator enables it.

The log is on if the level of `kafka.request.logger` (Kafka's name) is DEBUG or TRACE. A line has
the text `Completed request:` and JSON with Kafka's keys; at TRACE the JSON also has the request
itself, shortened. While the log is off, requests do not pass through this module.
IncrementalAlterConfigs for a resource of type BROKER_LOGGER changes the level at run time
(KIP-412). Simulated brokers have no loggers, and so no request log.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.requests import Card, Request
from tidelog.broker.server.steps import after
from tidelog.core.ports import Clock, Loggers, Tracer
from tidelog.wire.registry import API

#: Kafka's logger name of the request log.
REQUEST_LOGGER: Final = "kafka.request.logger"
#: Name under which the broker's tracer writes the request log.
_STREAM: Final = "request_log"
#: Python's number for Kafka's level TRACE, at which a line includes the request.
_TRACE: Final = 5
#: Maximum number of characters of a request in a line.
_REQUEST_CHARS: Final = 2_000


class RequestLog:
    """The request log of one broker: a step around its handlers while the log is on."""

    def __init__(
        self, dispatcher: Dispatcher, loggers: Loggers, tracer: Tracer, clock: Clock
    ) -> None:
        self._dispatcher = dispatcher
        self._loggers = loggers
        self._tracer = tracer
        self._clock = clock
        self._level = logging.WARNING
        loggers.watch(self.look)

    def look(self) -> None:
        """Turn the request log on or off if its logger's level has changed."""
        before, self._level = self._level, self._loggers.levels().get(REQUEST_LOGGER, self._level)
        is_on = self._level <= logging.DEBUG
        if is_on != (before <= logging.DEBUG):
            self._dispatcher.observe(after(self._completed) if is_on else None)

    def _completed(self, card: Card, request: Request[Any], response: Any) -> Any:
        header, connection = request.header, request.connection
        line: dict[str, Any] = {
            "requestHeader": {
                "requestApiKey": card.api_key,
                "requestApiVersion": header.api_version,
                "correlationId": header.correlation_id,
                "clientId": header.client_id,
                "requestApiKeyName": API[card.api_key].name,
            },
            "connection": connection.peer,
            "totalTimeMs": self._clock.monotonic_ms() - request.received_ms,
            "principal": str(request.principal),
            "listener": connection.listener,
        }
        if self._level <= _TRACE:
            line["request"] = repr(request.message)[:_REQUEST_CHARS]
        text = json.dumps(line, separators=(",", ":"))
        self._tracer.log(_STREAM, logging.DEBUG, f"Completed request:{text}")
        return response
