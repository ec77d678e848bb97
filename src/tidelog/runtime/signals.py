"""Signals of a broker process: the effect and the log line of each.

Every signal that would end a process by default stops the broker cleanly, for example SIGTERM,
SIGINT, SIGUSR1, SIGALRM and real-time signals. The second signal ends the wait for new leaders, and
the third signal ends the process at once. SIGHUP reopens the log file and reloads the
configuration. If standard error is a terminal, SIGHUP means that the terminal is gone, and stops
the broker. SIGQUIT writes the stacks of all threads, as in a JVM. SIGKILL and faults of the process
itself (SIGSEGV) cannot be handled; a fault writes the stacks of all threads to standard error.

The process checks at the start whether standard error is a terminal, because a terminal does not
look like one after a hangup. If SIGHUP was ignored at the start (nohup), it never stops the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
from collections.abc import Callable
from enum import IntEnum
from types import FrameType

#: Signals that end no process by default, that no process can handle, or that report a fault of the
#: process.
_NOT_ENDING = frozenset(
    {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGCONT,
        signal.SIGCHLD,
        signal.SIGURG,
        signal.SIGWINCH,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
        # Python ignores SIGPIPE and SIGXFSZ, because the call that causes the signal reports an
        # error.
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGHUP,
        signal.SIGQUIT,
    }
)
_STANDARD_ERROR = 2


class Phase(IntEnum):
    """The phase of a broker's process, which determines the effect of a signal."""

    #: No log directory is open, so the start can be cancelled at any moment.
    CONNECTING = 0
    #: The broker recovers its logs and registers itself; a stop waits until the start is complete.
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    HURRYING = 4
    STOPPED = 5


class BrokerSignals:
    """The handlers of all signals of a broker process."""

    def __init__(self, broker_id: int | None = None) -> None:
        self.broker_id = broker_id
        self.phase = Phase.CONNECTING
        #: The first signal that stops the broker sets this event on the loop.
        self.stopping = asyncio.Event()
        self._log = logging.getLogger("kafka.server")
        self._early: list[int] = []
        self._give_up_start: Callable[[], object] = _nothing
        self._hurry: Callable[[], None] = _nothing
        self._reload: Callable[[], None] = _nothing
        self._end_at_once: Callable[[str], None] = _nothing_said
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._hangup_stops = os.isatty(_STANDARD_ERROR) and not ignored

    def install(self) -> None:
        """Only record signals until the call of `attach`; their default action would end the
        process.
        """
        for number in handled():
            # The C library reserves a few real-time signals for its threads.
            with contextlib.suppress(OSError):
                signal.signal(number, self._note)

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        give_up_start: Callable[[], object],
        hurry: Callable[[], None],
        reload: Callable[[], None],
        end_at_once: Callable[[str], None],
    ) -> None:
        """Handle signals on the loop from now on, after the signals recorded so far."""
        self._give_up_start, self._hurry = give_up_start, hurry
        self._reload, self._end_at_once = reload, end_at_once
        for number in handled():
            with contextlib.suppress(RuntimeError):
                loop.add_signal_handler(number, self.came, number)
        early, self._early = self._early, []
        for number in early:
            self.came(number)

    def directories_open(self) -> None:
        """Record that the broker opens its log directories, so that a stop must close them."""
        self.phase = Phase.STARTING

    def started(self) -> None:
        """Record that the start of the broker is complete."""
        self.phase = Phase.STOPPING if self.stopping.is_set() else Phase.RUNNING

    def _stop(self, why: str) -> None:
        starting = self.phase is Phase.STARTING
        later = " when its start is complete; another signal ends it at once" if starting else ""
        self._log.info("%s: broker %s stops%s", why, self.broker_id, later)
        self.stopping.set()
        if self.phase is Phase.CONNECTING:
            self._give_up_start()
        elif self.phase is Phase.RUNNING:
            self.phase = Phase.STOPPING

    def came(self, number: int) -> None:
        """Act on a signal; called on the loop."""
        name = name_of(number)
        if number == signal.SIGHUP and not self._hangup_stops:
            self._log.info("%s: reopening the log, reloading the configuration", name)
            self._reload()
        elif not self.stopping.is_set():
            self._stop("SIGHUP, the terminal is gone" if number == signal.SIGHUP else name)
        elif self.phase is Phase.STOPPING:
            self.phase = Phase.HURRYING
            self._log.warning("%s: broker %s stops without waiting", name, self.broker_id)
            self._hurry()
        elif self.phase is not Phase.STOPPED:
            self._end_at_once(
                f"{name}, after an earlier signal: it ends before its logs are closed cleanly"
            )

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.phase is Phase.STOPPED:
            os._exit(0)  # a stopped broker only has to write its last log lines
        self._early.append(number)


def report_stacks() -> None:
    """Write the stacks of all threads to standard error on SIGQUIT and on a fault."""
    faulthandler.enable(_STANDARD_ERROR, all_threads=True)
    faulthandler.register(signal.SIGQUIT, _STANDARD_ERROR, all_threads=True)


def handled() -> list[int]:
    """Return the numbers of the signals that a broker handles."""
    return sorted({*signal.valid_signals()} - _NOT_ENDING | {signal.SIGHUP})


def name_of(number: int) -> str:
    """Return a signal's name, such as `SIGTERM`, or `SIGRTMIN+3` for a nameless signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _nothing() -> None:
    """Do nothing, because the broker has not reached the phase that handles the signal."""


def _nothing_said(reason: str) -> None:
    """Do nothing, because the broker has not reached the phase that handles the signal."""
