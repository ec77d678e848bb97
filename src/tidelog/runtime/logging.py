"""Logging of a real broker in Kafka's streams, through a queue and a thread.

A blocked log disk must not block the loop, so a thread writes queued lines. Loggers have the names
that Kafka's operators expect (`tidelog.server`, `.controller`, `.state_change`, `.request`).
Control characters are escaped, because names in lines may come from peers. A flood of similar
warnings is counted instead of written (log_floods.py). Log lines go to standard error. If standard
error is a file, the thread reopens it by name on request, because another program may have rotated
the file.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import logging.handlers
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.runtime.log_floods import Floods

_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
#: Name of the parent of all brokers' loggers.
_ROOT = "tidelog"
#: Kafka's log streams, which clients can list before the first line of a stream is logged.
_STREAMS = ("controller", "request", "server", "state_change", "store")
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


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log file of this process: its path at the start, and its open descriptors."""

    path: str
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, *descriptors: int) -> LogFile | None:
        """Return the file of `descriptors[0]`, or None for a terminal, pipe or removed file.

        The LogFile keeps all `descriptors` that refer to the file of `descriptors[0]`.
        """
        link = f"/proc/self/fd/{descriptors[0]}"
        try:
            found, path = os.fstat(descriptors[0]), os.readlink(link)
            if not (stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.stat(path))):
                return None
        except OSError:
            return None
        return cls(path, tuple(each for each in descriptors if _leads_to(each, found)))

    def reopen(self) -> None:
        """Reopen the log file by name for all descriptors; an OSError leaves them unchanged."""
        mode = stat.S_IMODE(os.fstat(self.descriptors[0]).st_mode)
        opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            for each in self.descriptors:
                os.dup2(opened, each)
        finally:
            os.close(opened)


def _leads_to(descriptor: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False


class LogThread(logging.handlers.QueueListener):
    """The thread that writes log lines and, periodically, summaries of floods."""

    def __init__(
        self, lines: queue.Queue[Any], output: logging.Handler, file: LogFile | None
    ) -> None:
        super().__init__(lines, output)
        self._lines = lines
        self._floods = Floods(time.monotonic)
        self._file = file
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
            super().handle(record)

    def stop(self) -> None:
        """Write the waiting lines while standard error accepts them, and end the thread."""
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

    def _write(self, level: int, message: str) -> None:
        line = logging.LogRecord("tidelog.server", level, __file__, 0, escape(message), None, None)
        super().handle(line)


def start_logging(level: int = logging.INFO) -> LogThread:
    """Send the `tidelog` loggers to standard error through a thread; stop it with `.stop()`."""
    lines: queue.Queue[Any] = queue.Queue(_QUEUE_LINES)
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger(_ROOT)
    for stream in _STREAMS:
        logging.getLogger(f"{_ROOT}.{stream}")
    root.setLevel(level)
    root.propagate = False
    root.handlers = [_DroppingQueueHandler(lines)]
    listener = LogThread(lines, output, LogFile.of(2, 1))
    listener.start()
    atexit.register(listener.stop)
    return listener


class LogLevels:
    """Levels of this process's `tidelog` loggers; `root` is their parent."""

    def levels(self) -> dict[str, int]:
        """Return the effective level of each logger."""
        below = f"{_ROOT}."
        names = [each for each in logging.root.manager.loggerDict if each.startswith(below)]
        found = {name: logging.getLogger(name).getEffectiveLevel() for name in names}
        return {"root": logging.getLogger(_ROOT).level, **found}

    def set_level(self, name: str, level: int | None) -> None:
        """Set a logger's level; None takes the parent's level."""
        logger = logging.getLogger(_ROOT if name == "root" else name)
        logger.setLevel(logging.NOTSET if level is None else level)


class LogTracer:
    """The tracer of a real broker, which writes events to the state-change log."""

    def __init__(self, broker_id: int) -> None:
        self._prefix = f"[broker {broker_id}] "
        self._state_change = logging.getLogger("tidelog.state_change")
        self._loggers: dict[str, logging.Logger] = {}
        self.marks: dict[str, int] = {}

    def event(self, name: str, /, **fields: Any) -> None:
        """Log one line per state change."""
        if self._state_change.isEnabledFor(logging.DEBUG):
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self._state_change.debug("%s%s %s", self._prefix, name, escape(text))

    def mark(self, name: str, /) -> None:
        """Count a `sometimes` mark."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Log a line for operators."""
        target = self._loggers.get(logger)
        if target is None:
            target = self._loggers[logger] = logging.getLogger(f"tidelog.{logger}")
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
