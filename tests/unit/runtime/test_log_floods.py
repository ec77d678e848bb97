"""A flood of equal warnings is counted, not written."""

from __future__ import annotations

import io
import logging
import queue

import pytest

from tidelog.runtime import logging as broker_logging
from tidelog.runtime.log_floods import LINES, WINDOW_S, Floods


class Clock:
    """Seconds as a test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def warning(text: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("kafka.network.SocketServer", level, __file__, 1, text, None, None)


def refused(port: int) -> logging.LogRecord:
    return warning(f"closing 127.0.0.1:{port}: versions 4 to 17 are spoken")


def test_of_one_kind_so_many_a_window_are_written_and_the_others_counted() -> None:
    clock = Clock()
    floods = Floods(clock)
    assert [floods.admits(refused(port)) for port in range(LINES + 30)] == [True] * LINES + [
        False
    ] * 30
    assert list(floods.ended()) == []
    clock.now = WINDOW_S
    [summary] = floods.ended()
    assert "and 30 more" in summary.getMessage()
    assert summary.getMessage().startswith("closing 127.0.0.1:0: versions")
    assert (summary.name, summary.levelno) == ("kafka.network.SocketServer", logging.WARNING)
    assert floods.admits(refused(1)), "a new window has begun"


def test_other_kinds_and_lower_levels_are_written() -> None:
    floods = Floods(Clock())
    for port in range(LINES + 1):
        floods.admits(refused(port))
    assert not floods.admits(refused(0))
    assert floods.admits(warning("session expired"))
    assert floods.admits(warning("closing 127.0.0.1:0: versions 4 to 17 are spoken", logging.ERROR))
    assert all(floods.admits(warning("leader 1 epoch 2", logging.INFO)) for _ in range(1000))


def test_a_kind_that_was_not_held_back_is_forgotten_without_a_word() -> None:
    clock = Clock()
    floods = Floods(clock)
    floods.admits(refused(1))
    clock.now = WINDOW_S
    assert list(floods.ended()) == []


def test_a_stop_tells_what_was_held_back() -> None:
    lines: queue.Queue[logging.LogRecord] = queue.Queue()
    output = io.StringIO()
    listener = broker_logging.LogThread(lines, logging.StreamHandler(output), None)
    for port in range(LINES + 5):
        lines.put(refused(port))
    listener.start()
    listener.stop()
    told = output.getvalue().splitlines()
    assert len(told) == LINES + 1
    assert "and 5 more" in told[-1]


def test_the_thread_tells_of_an_ended_flood_when_nothing_else_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_logging, "_SUMMARIZE_EVERY_S", 0.01)
    monkeypatch.setattr("tidelog.runtime.log_floods.WINDOW_S", 0.05)
    told: queue.Queue[str] = queue.Queue()

    class Output(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.put(record.getMessage())

    lines: queue.Queue[logging.LogRecord] = queue.Queue()
    listener = broker_logging.LogThread(lines, Output(), None)
    listener.start()
    try:
        for port in range(LINES + 5):
            lines.put(refused(port))
        last = ""
        while "more like" not in last:
            last = told.get(timeout=60)
    finally:
        listener.stop()
    assert last.startswith("closing 127.0.0.1")
