"""Reads side by side until a deadline."""

from __future__ import annotations

import threading
import time

import pytest

from tidelog.runtime.deadline_reads import DeadlineReads

PATIENCE_S = 30.0


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def test_a_read_that_hangs_leaves_the_others_and_comes_later() -> None:
    reads: DeadlineReads[str, int] = DeadlineReads()
    goes_on = threading.Event()
    assert reads.begin("slow", lambda: int(goes_on.wait(PATIENCE_S)))
    assert reads.begin("fast", lambda: 7)
    reads.wait(["fast"], later(PATIENCE_S))
    reads.wait(["fast", "slow"], later(0.0))
    assert reads.results() == {"fast": 7} and reads.running == {"slow"}
    assert not reads.begin("slow", lambda: 8), "one read of a key at a time"
    goes_on.set()
    reads.wait(["slow"], later(PATIENCE_S))
    assert reads.results() == {"slow": 1} and not reads.running
    assert reads.begin("slow", lambda: 9)


def test_the_error_of_a_read_is_raised_once_in_the_callers_thread() -> None:
    reads: DeadlineReads[str, int] = DeadlineReads()
    reads.begin("broken", lambda: 1 // 0)
    reads.wait(["broken"], later(PATIENCE_S))
    with pytest.raises(ZeroDivisionError):
        reads.results()
    assert reads.results() == {}
