"""What a broker process does about signals, by the part of its life that it is in."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.runtime.log_files import LogFile
from tidelog.runtime.signals import BrokerSignals, Phase, handled, name_of


class Acts:
    """What the handlers did, in order."""

    def __init__(self, signals: BrokerSignals) -> None:
        self.done: list[str] = []
        self._signals = signals

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._signals.attach(
            loop,
            give_up_start=lambda: self.done.append("give up the start"),
            hurry=lambda: self.done.append("hurry"),
            reload=lambda: self.done.append("reload"),
            end_at_once=lambda reason: self.done.append(f"end: {reason}"),
        )


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    before = {number: signal.getsignal(number) for number in handled()}
    made = asyncio.new_event_loop()
    yield made
    made.close()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def signals() -> BrokerSignals:
    return BrokerSignals(7)


def test_every_signal_that_ends_a_process_is_handled() -> None:
    """All others are no signal to end by, or a fault, or cannot be handled."""
    no_end = ["KILL", "STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD", "URG", "WINCH"]
    no_end += ["PIPE", "XFSZ", "QUIT"]
    fault = ["ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP"]
    left = {f"SIG{each}" for each in no_end + fault}
    assert {name_of(number) for number in {*signal.valid_signals()} - {*handled()}} == left


def test_the_second_signal_hurries_and_the_third_ends(
    loop: asyncio.AbstractEventLoop, signals: BrokerSignals, caplog: pytest.LogCaptureFixture
) -> None:
    acts = Acts(signals)
    acts.attach(loop)
    signals.directories_open()
    signals.started()
    with caplog.at_level(logging.INFO, "kafka.server"):
        signals.came(signal.SIGTERM)
        assert signals.stopping.is_set()
        assert acts.done == []
        signals.came(signal.SIGINT)
        assert acts.done == ["hurry"]
        signals.came(signal.SIGTERM)
    assert acts.done[1:] == [
        "end: SIGTERM, after an earlier signal: it ends before its logs are closed cleanly"
    ]
    assert caplog.messages == [
        "SIGTERM: broker 7 stops",
        "SIGINT: broker 7 stops without waiting",
    ]


def test_a_start_is_completed_once_the_directories_are_open(
    loop: asyncio.AbstractEventLoop, signals: BrokerSignals, caplog: pytest.LogCaptureFixture
) -> None:
    acts = Acts(signals)
    acts.attach(loop)
    signals.directories_open()
    with caplog.at_level(logging.INFO, "kafka.server"):
        signals.came(signal.SIGTERM)
    assert acts.done == []
    assert caplog.messages == [
        "SIGTERM: broker 7 stops when its start is complete; another signal ends it at once"
    ]
    signals.started()
    assert signals.phase is Phase.STOPPING
    signals.came(signal.SIGTERM)
    assert acts.done == ["hurry"]


def test_a_start_is_given_up_before(
    loop: asyncio.AbstractEventLoop, signals: BrokerSignals
) -> None:
    acts = Acts(signals)
    acts.attach(loop)
    signals.came(signal.SIGUSR2)
    assert acts.done == ["give up the start"]


def test_signals_that_came_early_count(
    loop: asyncio.AbstractEventLoop, signals: BrokerSignals
) -> None:
    signals.install()
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGHUP)
    acts = Acts(signals)
    acts.attach(loop)
    assert acts.done == ["give up the start", "reload"]


def test_a_real_signal_reaches_the_loop(
    loop: asyncio.AbstractEventLoop, signals: BrokerSignals
) -> None:
    Acts(signals).attach(loop)
    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    loop.run_until_complete(signals.stopping.wait())


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hangup_of_the_terminal_stops_the_broker(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
    """Not under nohup. A terminal that is gone is no terminal any more for the system."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 2)
    signals = BrokerSignals(7)
    monkeypatch.setattr(os, "isatty", lambda descriptor: False)
    acts = Acts(signals)
    acts.attach(loop)
    signals.came(signal.SIGHUP)
    assert acts.done == ["reload" if ignored else "give up the start"]


class TestLogFiles:
    def test_a_rotated_file_is_opened_again_by_its_name(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
        other = os.dup(descriptor)
        try:
            file = LogFile.of(descriptor, other, 10_000)
            assert file == LogFile(str(path), (descriptor, other))
            os.write(descriptor, b"before\n")
            path.rename(tmp_path / "log.1")
            file.reopen()
            os.write(descriptor, b"after\n")
            os.write(other, b"both\n")
        finally:
            os.close(descriptor)
            os.close(other)
        assert (tmp_path / "log.1").read_text() == "before\n"
        assert path.read_text() == "after\nboth\n"
        assert path.stat().st_mode & 0o777 == 0o640

    def test_the_log_goes_on_where_the_name_cannot_be_opened(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        path = tmp_path / "d" / "log"
        with open(path, "ab", buffering=0) as stream:
            file = LogFile.of(stream.fileno())
            assert file is not None
            (tmp_path / "d").rename(tmp_path / "gone")
            with pytest.raises(FileNotFoundError):
                file.reopen()
            stream.write(b"still\n")
        assert (tmp_path / "gone" / "log").read_text() == "still\n"

    def test_a_pipe_and_a_removed_file_are_no_log_files(self, tmp_path: Path) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        try:
            assert LogFile.of(writing) is None
        finally:
            os.close(writing)
        with open(tmp_path / "log", "ab") as stream:
            (tmp_path / "log").unlink()
            assert LogFile.of(stream.fileno()) is None
