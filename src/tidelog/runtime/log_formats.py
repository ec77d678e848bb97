"""The two forms of a log line: text in Kafka's pattern, or JSON with one object in each line.

Levels have the names that Kafka logs (WARN, FATAL, TRACE). JSON has the keys `time` (UTC), `level`,
`logger`, `broker` (its id) and `message`. A message of several lines, such as a traceback, is one
object.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

#: Kafka's pattern [%d] %p %m (%c), whose times are local.
_PATTERN: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
#: Level of Kafka's TRACE, below Python's DEBUG.
TRACE: Final = 5
#: Kafka's names of levels, by Python's number.
LEVEL_NAMES: Final = {
    logging.CRITICAL: "FATAL",
    logging.ERROR: "ERROR",
    logging.WARNING: "WARN",
    logging.INFO: "INFO",
    logging.DEBUG: "DEBUG",
    TRACE: "TRACE",
}
_BROKER = re.compile(r"\[broker (\d+)\] ")


class TextFormat(logging.Formatter):
    """The formatter of text lines in the pattern of Kafka's log4j.properties."""

    def __init__(self, broker_id: int | None = None) -> None:
        super().__init__(_PATTERN)  # text lines do not have the broker id

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        record.levelname = LEVEL_NAMES.get(record.levelno, record.levelname)
        return super().format(record)


class JsonFormat(logging.Formatter):
    """The formatter of JSON lines, one object each, for programs that collect logs."""

    def __init__(self, broker_id: int | None = None) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        message = record.getMessage()
        found = _BROKER.match(message)
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps(
            {
                "time": time.replace("+00:00", "Z"),
                "level": LEVEL_NAMES.get(record.levelno, record.levelname),
                "logger": record.name,
                "broker": self._broker_id if found is None else int(found[1]),
                "message": message if found is None else message[found.end() :],
            },
            ensure_ascii=False,
        )


#: Value of tidelog.logging.format -> the class that formats the lines of a broker.
FORMATS: Final[dict[str, type[TextFormat] | type[JsonFormat]]] = {
    "text": TextFormat,
    "json": JsonFormat,
}
