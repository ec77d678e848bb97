"""The request log: a line for each completed request, while an operator asks for it.

`kafka.request.logger` is Kafka's name, and DEBUG the level at which Kafka logs each completed
request. The line is `Completed request:` and JSON with Kafka's keys. At TRACE the request itself is
in it, shortened. While the level is higher, no step stands around the handlers, so requests cost
nothing. Levels change at run time by IncrementalAlterConfigs of the resource `broker-loggers`
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

#: Kafka's name of the request log, and the name of its stream here.
REQUEST_LOGGER: Final = "kafka.request.logger"
_STREAM: Final = "request_log"
#: Kafka's level TRACE, with which the line has the request.
_TRACE: Final = 5
#: Characters of a request in its line.
_REQUEST_CHARS: Final = 2_000


class RequestLog:
    """The step around the handlers of a broker, put there and removed as the level changes."""

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
        """Begin or end to log requests, if the level of the request log has changed."""
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
