"""Logging of a real broker in Kafka's streams, through a queue and a thread.

A blocked log disk must not block the loop, so a thread writes queued lines. Loggers have Kafka's
names (`kafka.controller`, `state.change.logger`, `kafka.request.logger`), so that levels and
filters set for Kafka also work here. The name of a logger that Kafka does not have begins with
`tidelog`. As in Kafka's log4j.properties, the request log is at WARN, so that it logs requests on
demand only. Control characters are escaped, because names in lines may come from peers. A flood of
similar warnings is counted instead of written (log_floods.py). Log lines go to standard error. If
standard error is a file, the thread reopens it by name on request, because another program may have
rotated the file.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import logging.handlers
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tidelog.broker.server.request_log import REQUEST_LOGGER
from tidelog.runtime.log_files import NEVER, LogFile, Rotation
from tidelog.runtime.log_floods import Floods
from tidelog.runtime.log_formats import FORMATS

#: Name of a stream in this project -> name of its logger, which is Kafka's name if Kafka has the
#: stream.
STREAMS = {
    "server": "kafka.server",
    "controller": "kafka.controller",
    "request": "kafka.network.SocketServer",
    "request_log": REQUEST_LOGGER,
    "state_change": "state.change.logger",
    "log": "kafka.log",
    "cleaner": "kafka.log.LogCleaner",
    "store": "tidelog.store",
}
#: The top loggers of a broker, whose parent is ROOT.
_TOPS = ("kafka", "state", "tidelog")
#: The parent of a broker's loggers, which Kafka's tools call root. Loggers of other libraries in
#: this process do not have this parent.
ROOT = logging.Logger("root", logging.INFO)
#: Number of lines that may wait for a blocked disk; later lines are dropped and counted.
_QUEUE_LINES = 100_000
#: Time without a written line after which an ending process does not wait for the log thread,
#: because the reader of standard error has stopped.
_BLOCKED_AFTER_S = 3.0
#: Interval at which the idle log thread looks for floods of warnings that have ended.
_SUMMARIZE_EVERY_S = 1.0


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    """A handler that never blocks, and counts the lines that do not fit the queue."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class LogThread(logging.handlers.QueueListener):
    """The thread that writes log lines and, periodically, summaries of floods."""

    def __init__(
        self,
        lines: queue.Queue[Any],
        output: logging.Handler,
        file: LogFile | None,
        rotation: Rotation = NEVER,
    ) -> None:
        super().__init__(lines, output)
        self._lines = lines
        self._floods = Floods(time.monotonic)
        self._file = file
        self._rotation = rotation
        self._reopening = threading.Event()
        #: Whether standard error is blocked, so that waiting lines are lost.
        self.is_blocked = False

    def reopen(self) -> None:
        """Make the thread reopen the log file by name, and log the outcome there."""
        self._reopening.set()

    def dequeue(self, block: bool) -> logging.LogRecord:
        while True:
            if self._reopening.is_set():
                self._reopening.clear()
                self._reopen()
            self._write_summaries(self._floods.ended())
            try:
                line: logging.LogRecord = self._lines.get(
                    block, _SUMMARIZE_EVERY_S if block else None
                )
            except queue.Empty:
                if not block:
                    raise
            else:
                return line

    def handle(self, record: logging.LogRecord) -> None:
        if self._floods.admits(record):
            if self._rotation.is_wanted and self._file is not None:
                self._rotate(self._file, record.created)
            super().handle(record)

    def stop(self) -> None:
        """Write the waiting lines while standard error accepts them, and end the thread.

        Afterwards, the broker's loggers log through Python's root logger.
        """
        thread = self._thread
        if thread is None or self.is_blocked:
            return
        while thread.is_alive():
            left = self._lines.qsize()
            with contextlib.suppress(queue.Full):
                self.enqueue_sentinel()
            thread.join(_BLOCKED_AFTER_S)
            if thread.is_alive() and self._lines.qsize() >= left:
                self.is_blocked = True
                return
        self._thread = None
        self._write_summaries(self._floods.ended(everything=True))
        ROOT.handlers = []
        _set_parent(logging.root)

    def _write_summaries(self, summaries: Iterable[logging.LogRecord]) -> None:
        for summary in summaries:
            super().handle(summary)

    def _reopen(self) -> None:
        if self._file is None:
            self._write(logging.INFO, "the log is not a file, so it was not reopened")
            return
        try:
            self._file.reopen()
        except OSError as error:
            self._write(logging.ERROR, f"cannot reopen the log {self._file.path}: {error}")
        else:
            self._write(logging.INFO, f"log reopened: {self._file.path}")

    def _rotate(self, file: LogFile, now_s: float) -> None:
        """Rotate the log if the next line belongs to a new file; an error is logged once."""
        try:
            if not self._rotation.is_due(*file.state(), now_s):
                return
            file.rotate(self._rotation.files)
        except OSError as error:
            self._rotation = NEVER
            self._write(
                logging.ERROR, f"cannot rotate the log {file.path}, not tried again: {error}"
            )
        else:
            self._write(logging.INFO, f"log rotated: earlier lines are in {file.path}.1")

    def _write(self, level: int, message: str) -> None:
        line = logging.LogRecord(STREAMS["server"], level, __file__, 0, escape(message), None, None)
        super().handle(line)


def start_logging(
    form: str = "text", rotation: Rotation = NEVER, broker_id: int | None = None
) -> LogThread:
    """Send a broker's loggers to standard error through a thread; stop it with `.stop()`.

    `form` is a key of FORMATS. The log is rotated only if standard error is a file.
    """
    lines: queue.Queue[Any] = queue.Queue(_QUEUE_LINES)
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(FORMATS[form](broker_id))
    _set_parent(ROOT)
    for name in STREAMS.values():
        logging.getLogger(name)
    logging.getLogger(REQUEST_LOGGER).setLevel(logging.WARNING)
    ROOT.handlers = [_DroppingQueueHandler(lines)]
    listener = LogThread(lines, output, LogFile.of(2, 1), rotation)
    listener.start()
    atexit.register(listener.stop)
    return listener


def _set_parent(parent: logging.Logger) -> None:
    """Make the broker's top loggers pass their lines to `parent`."""
    for name in _TOPS:
        logging.getLogger(name).parent = parent


class LogLevels:
    """Levels of the broker's loggers in this process; `root` is their parent."""

    def __init__(self) -> None:
        self._watchers: list[Callable[[], None]] = []

    def levels(self) -> dict[str, int]:
        """Return the effective level of each logger."""
        names = [
            name
            for name, each in logging.root.manager.loggerDict.items()
            if name.partition(".")[0] in _TOPS
            and isinstance(each, logging.Logger)
            and each.propagate
        ]
        found = {name: logging.getLogger(name).getEffectiveLevel() for name in names}
        return {"root": ROOT.level, **found}

    def set_level(self, name: str, level: int | None) -> None:
        """Set a logger's level; None takes the parent's level."""
        logger = ROOT if name == "root" else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else level)
        for changed in self._watchers:
            changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of a level."""
        self._watchers.append(changed)


class LogTracer:
    """The tracer of a real broker, which writes events to the state-change log."""

    def __init__(self, broker_id: int) -> None:
        self._prefix = f"[broker {broker_id}] "
        self._state_change = logging.getLogger(STREAMS["state_change"])
        self._loggers: dict[str, logging.Logger] = {}
        self.marks: dict[str, int] = {}

    def event(self, name: str, /, **fields: Any) -> None:
        """Log one line per state change."""
        if self._state_change.isEnabledFor(logging.DEBUG):
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self._state_change.debug("%s%s %s", self._prefix, name, escape(text))

    def mark(self, name: str, /) -> None:
        """Count how often the broker has reached a rare state (`core.sometimes`)."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Log a line for operators."""
        target = self._loggers.get(logger)
        if target is None:
            target = self._loggers[logger] = logging.getLogger(STREAMS[logger])
        if target.isEnabledFor(level):
            target.log(level, "%s%s", self._prefix, escape(message))


def escape(text: str) -> str:
    """Escape control characters other than newline in a text."""
    if text.isprintable():
        return text
    return "".join(
        character if character == "\n" or character.isprintable() else repr(character)[1:-1]
        for character in text
    )
