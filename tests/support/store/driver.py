"""Drives processes of `store_process` over pipes, with a deadline on every wait."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0


class Refused(Exception):
    """The store answered with an error; its name is the first argument."""


class Driven:
    """One process with a store."""

    def __init__(self, directory: Path, timeout_ms: int, traced: bool = False) -> None:
        words = [
            sys.executable,
            "-m",
            "tests.support.store.store_process",
            str(directory),
            str(timeout_ms),
        ]
        self.process = subprocess.Popen(
            words + (["--traced"] if traced else []),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self.process.pid
        #: What it said without being asked.
        self.heard: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked = 0
        self._rest = b""

    def start(self, **command: Any) -> int:
        """Send a command; returns its number."""
        self._asked += 1
        assert self.process.stdin is not None
        line = json.dumps({"number": self._asked, **command}).encode() + b"\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self._asked

    def finish(self, number: int) -> Any:
        """The answer to a command; Refused."""
        self.read_until(lambda: number in self._answers)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Refused(answer["error"], answer["text"])
        return answer["value"]

    def ask(self, **command: Any) -> Any:
        """Send a command and wait for its answer."""
        return self.finish(self.start(**command))

    def hears(self, **message: Any) -> None:
        """Wait until it has said this, and take it from what was heard."""
        self.read_until(lambda: message in self.heard)
        self.heard.remove(message)

    def logged(self, *words: str) -> bool:
        """Whether it has logged a line with all of these words."""
        return any(all(word in str(said.get("log", "")) for word in words) for said in self.heard)

    def read_until(self, holds: Callable[[], bool]) -> None:
        """Read what it says until a condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        poller = select.poll()  # select() takes no descriptor above 1023
        poller.register(descriptor, select.POLLIN)
        while not holds():
            left = deadline - time.monotonic()
            assert left > 0, f"process {self.pid} does not answer; it said {self.heard}"
            if not poller.poll(min(left, 1.0) * 1000):
                continue
            data = os.read(descriptor, 65536)
            assert data, f"process {self.pid} has ended; it said {self.heard}"
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "number" in message:
            self._answers[message["number"]] = message
        else:
            self.heard.append(message)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait_stopped(self) -> None:
        """Wait until it is stopped."""
        poll(lambda: self.state() in ("T", "t"))

    def state(self) -> str:
        """The letter of its state in /proc."""
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0]

    def wait_ended(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        return self.process.wait(DEADLINE_S)

    def end(self) -> None:
        """Whatever it does, it ends."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Drivers:
    """Starts processes, and ends them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._all: list[Driven] = []

    def start(self, timeout_ms: int, traced: bool = False) -> Driven:
        """A process whose store is open."""
        driven = Driven(self.directory, timeout_ms, traced)
        self._all.append(driven)
        driven.ask(do="open")
        driven.hears(session="CONNECTED")
        return driven

    def start_many(self, count: int, timeout_ms: int) -> list[Driven]:
        """Several at once."""
        started = [Driven(self.directory, timeout_ms) for _ in range(count)]
        self._all.extend(started)
        for driven, number in [(driven, driven.start(do="open")) for driven in started]:
            driven.finish(number)
            driven.hears(session="CONNECTED")
        return started

    def end(self) -> None:
        for driven in self._all:
            driven.end()


@contextlib.contextmanager
def drivers(directory: Path) -> Iterator[Drivers]:
    """Processes that do not outlive the test."""
    made = Drivers(directory)
    try:
        yield made
    finally:
        made.end()


def poll(holds: Callable[[], bool]) -> None:
    """Wait for a condition that nothing announces."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.005)
