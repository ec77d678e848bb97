"""`core.ports.Lane`, the queue of a log directory's file operations, without an event loop.

An eager lane finishes each operation before `submit` returns. Otherwise FAST and NOWAIT operations
are finished at once, and other operations wait until the world calls `step`. A SYNC operation may
end before operations that were submitted earlier, as on a device with several threads.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tidelog.core.completion import Completion
from tidelog.core.errors import StorageError
from tidelog.core.operation_times import OperationTimes
from tidelog.core.ports import Files, Work
from tidelog.sim.files import SimFiles

T = TypeVar("T")


class _WaitingOperation(NamedTuple):
    operation: Callable[[Files], Any]
    completion: Completion[Any]
    work: Work


class SteppedLane:
    """All file operations of one process on one log directory."""

    def __init__(self, files: SimFiles, wall_ms: Callable[[], int]) -> None:
        self._files = files
        self._wall_ms = wall_ms
        self.times = OperationTimes()
        self.is_eager = True
        #: Whether FAST operations wait, too, as on a slow device.
        self.is_slow = False
        self._waiting: deque[_WaitingOperation] = deque()
        self._fast_waiting = 0
        self._is_stepping = False
        self._abandoned: StorageError | None = None

    @property
    def directory(self) -> str:
        """The log directory."""
        return self._files.disk.root

    @property
    def is_fast(self) -> bool:
        """Whether a FAST operation submitted now is done when `submit` returns."""
        return not self.is_slow and not self._fast_waiting

    @property
    def waiting(self) -> int:
        """Number of operations that wait for `step`."""
        return len(self._waiting)

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        """Run `operation(files)` now or at a later `step`, as `core.ports.Lane` specifies."""
        if self._abandoned is not None:
            return Completion.failed(self._abandoned)
        if work is Work.NOWAIT or (work is Work.FAST and self.is_fast):
            result, error = self._perform(operation)
            return Completion.of(result) if error is None else Completion.failed(error)
        completion: Completion[T] = Completion()
        if work is Work.FAST:
            self._fast_waiting += 1
        self._waiting.append(_WaitingOperation(operation, completion, work))
        if self.is_eager:
            self.finish()
        return completion

    def step(self, draw: random.Random) -> None:
        """Finish one waiting operation: a SYNC operation, or the oldest of the others."""
        numbers = [n for n, each in enumerate(self._waiting) if each.work is Work.SYNC]
        others = (n for n, each in enumerate(self._waiting) if each.work is not Work.SYNC)
        numbers += list(others)[:1]
        if numbers:
            number = draw.choice(numbers)
            waiting = self._waiting[number]
            del self._waiting[number]
            self._finish(waiting)

    def finish(self) -> None:
        """Finish all waiting operations, and those that they lead to, in order."""
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._waiting:
                self._finish(self._waiting.popleft())
        finally:
            self._is_stepping = False

    def _finish(self, waiting: _WaitingOperation) -> None:
        if waiting.work is Work.FAST:
            self._fast_waiting -= 1
        result, error = self._perform(waiting.operation)
        if error is None:
            waiting.completion.resolve(result)
        else:
            waiting.completion.fail(error)

    def _perform(self, operation: Callable[[Files], Any]) -> tuple[Any, BaseException | None]:
        try:
            return operation(self._files), None
        except OSError as error:
            path = str(error.filename or self._files.last_path)
            call = self._files.last_call
            name = "fsync" if "sync" in call else call
            number = error.errno or 0
            return None, StorageError(self.directory, name, path, number, self._wall_ms())
        except Exception as error:
            return None, error

    def abandon(self, error: StorageError) -> None:
        """Fail all operations, as `core.ports.Lane` specifies."""
        self._abandoned = error
        failed = list(self._waiting)
        self._waiting.clear()
        self._fast_waiting = 0
        for waiting in failed:
            waiting.completion.fail(error)

    async def close(self) -> None:
        """Finish all operations."""
        self.finish()
