"""Logs of a real broker: Kafka's streams, through a queue and a thread.

A blocked log disk must not stop the loop, so lines are queued and written by a thread. Loggers are
named as Kafka's operators expect (`tidelog.server`, `.controller`, `.state_change`, `.request`);
control characters are escaped, since names in lines may come from peers.
"""

from __future__ import annotations

import atexit
import logging
import logging.handlers
import queue
import sys
from typing import Any

_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
#: Lines that may wait for a blocked disk; later ones are dropped and counted.
_QUEUE_LINES = 100_000


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    """Never blocks: what does not fit is counted instead."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


def start_logging(level: int = logging.INFO) -> logging.handlers.QueueListener:
    """Send the `tidelog` loggers to standard error through a thread; stop it with `.stop()`."""
    lines: queue.Queue[Any] = queue.Queue(_QUEUE_LINES)
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger("tidelog")
    root.setLevel(level)
    root.propagate = False
    root.handlers = [_DroppingQueueHandler(lines)]
    listener = logging.handlers.QueueListener(lines, output)
    listener.start()
    atexit.register(_stop_quietly, listener)
    return listener


def _stop_quietly(listener: logging.handlers.QueueListener) -> None:
    if listener._thread is not None:  # stopped already otherwise
        listener.stop()


class LogTracer:
    """Tracer of a real broker: events become lines of the state-change log."""

    def __init__(self, broker_id: int) -> None:
        self._prefix = f"[broker {broker_id}] "
        self._state_change = logging.getLogger("tidelog.state_change")
        self._loggers: dict[str, logging.Logger] = {}
        self.marks: dict[str, int] = {}

    def event(self, name: str, /, **fields: Any) -> None:
        """One line per state change."""
        if self._state_change.isEnabledFor(logging.DEBUG):
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self._state_change.debug("%s%s %s", self._prefix, name, escape(text))

    def mark(self, name: str, /) -> None:
        """Count an interesting state."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def log(self, logger: str, level: int, message: str, /) -> None:
        """A line for people."""
        target = self._loggers.get(logger)
        if target is None:
            target = self._loggers[logger] = logging.getLogger(f"tidelog.{logger}")
        if target.isEnabledFor(level):
            target.log(level, "%s%s", self._prefix, escape(message))


def escape(text: str) -> str:
    """The text with control characters other than newline made visible."""
    if text.isprintable():
        return text
    return "".join(
        character if character == "\n" or character.isprintable() else repr(character)[1:-1]
        for character in text
    )
