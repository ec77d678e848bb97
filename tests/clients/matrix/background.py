"""Members and writers of clients that are Python libraries: a thread each.

The thread alone touches the client's object; what the test wants of it is handed over as a call.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from tests.clients.matrix.driver import PATIENCE_S, MemberState, Received, Refused

#: Sent and not acknowledged yet; a kill strikes some of them.
WINDOW = 200


class Seen:
    """What a member was given and lost, noted by its thread and read by the test."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._assigned: frozenset[int] = frozenset()
        self._received: list[Received] = []
        self._revoked: list[frozenset[int]] = []
        self._rebalances = 0

    def add(self, partitions: Iterable[int], *, whole: bool) -> None:
        """Partitions were handed out: all that it has, or those that are new."""
        with self._lock:
            given = frozenset(partitions)
            self._assigned = given if whole else self._assigned | given
            self._rebalances += 1

    def remove(self, partitions: Iterable[int]) -> None:
        with self._lock:
            taken = frozenset(partitions)
            self._assigned -= taken
            if taken:
                self._revoked.append(taken)

    def end(self) -> None:
        """Note that the client has ended: the next one begins without an assignment."""
        with self._lock:
            self._assigned = frozenset()

    def note(self, partition: int, offset: int) -> None:
        with self._lock:
            self._received.append(Received(partition, offset))

    def state(self) -> MemberState:
        with self._lock:
            return MemberState(
                self._assigned, tuple(self._received), tuple(self._revoked), self._rebalances
            )


class ThreadMember:
    """A member whose client is polled by a thread."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._calls: SimpleQueue[tuple[Callable[[], None], Future[None]]] = SimpleQueue()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    def open(self) -> None:
        """Make the client, in the thread."""

    @abstractmethod
    def poll(self) -> None:
        """One turn of at most some tenths of a second."""

    @abstractmethod
    def commit_now(self) -> None:
        """Commit positions, in the thread."""

    @abstractmethod
    def end(self) -> None:
        """Close the client, in the thread."""

    def state(self) -> MemberState:
        if self._failure is not None:
            raise AssertionError("the member ended") from self._failure
        return self.seen.state()

    def commit(self) -> None:
        done: Future[None] = Future()
        self._calls.put((self.commit_now, done))
        done.result(PATIENCE_S)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the member did not end"

    def _run(self) -> None:
        try:
            self.open()
            try:
                while not self._ended.is_set():
                    self._do_calls()
                    self.poll()
            finally:
                self.end()
        except BaseException as error:  # told by whoever asks for the state
            self._failure = error
        self._do_calls()

    def _do_calls(self) -> None:
        while True:
            try:
                call, done = self._calls.get_nowait()
            except Empty:
                return
            try:
                call()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)


class ThreadWriter:
    """Sends numbers until it is stopped, with some of them in flight."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[object] = []
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    def open(self) -> None:
        """Make the client, in the thread."""

    @abstractmethod
    def send(self, number: int) -> None:
        """Hand one number to the client."""

    @abstractmethod
    def turn(self) -> None:
        """Let acknowledgements come, for some milliseconds at most."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for all acknowledgements and close."""

    def stop(self) -> int:
        self._ended.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.acknowledged} of {self.sent} acknowledged"
        if self._error is not None:
            raise Refused(repr(self._error)) from self._error
        if self.failures or self.acknowledged != self.sent:
            raise Refused(f"{self.acknowledged} of {self.sent} acknowledged: {self.failures[:3]}")
        return self.sent

    def _run(self) -> None:
        try:
            self.open()
            while not self._ended.is_set() and not self.failures:
                for _ in range(20):
                    if self.sent - self.acknowledged >= WINDOW:
                        break
                    self.send(self.sent)
                    self.sent += 1
                self.turn()
            self.finish()
        except BaseException as error:  # told by stop()
            self._error = error
