"""Crashes at every port call of a history, each with every loss, then the start of a new process.

The history runs once. At each port call, copies of the disks stand for a crash at this call: they
suffer a loss, and another process starts on them. The start is compared with the reference as it is
at this call. Equal disks give equal starts, so each distinct content starts a process only once.
During some starts, copies stand for a second crash in the same way. After these starts everything
must be durable: a power loss gives the same log again. A batch and a clean shutdown must then give
the log with this batch.

A path names a crash: `CALL:LOSS` for the loss at a call of the history, and `CALL:LOSS/CALL:LOSS`
for a second crash at a call of the start. The text `end` in place of a call means that the second
process ends after its start: by a power loss (`end:all`) or cleanly (`end:shutdown`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.log import names
from tidelog.log.config import LogConfig
from tidelog.sim.disk import Directory, SimDisk
from tidelog.sim.small.crash_losses import (
    ALL,
    PROCESS,
    UnfinishedWrite,
    few_loss_names,
    loss_names,
    suffer,
)
from tidelog.sim.small.log_reading import (
    LogReading,
    OpenDirectories,
    StartReading,
    append_and_shut_down,
    read_start,
)
from tidelog.sim.small.log_reference import LogReference
from tidelog.sim.small.small_process import SmallProcess, SteppedClock
from tidelog.sim.small.small_world import SmallViolation

#: Port calls that change nothing, neither what is durable nor what the page cache shows.
_READING: Final = frozenset(
    f"files.{name}"
    for name in (
        "close", "pread", "pread_cached", "size", "listdir", "exists", "read_file", "volume_size",
        "volume_place",
    )
)  # fmt: skip
#: Suffixes of files that a start removes without reading them.
_REMOVED: Final = (names.TEMPORARY, names.DELETED)
#: Number of random losses of each kind at a call of the history.
_DRAWS = 1
#: After a crash with one of these losses, the start of the next process may be crashed, too.
_FOLLOWED: Final = (PROCESS, ALL)
#: The text in place of a call in a path: the process ends after its start. SHUTDOWN in place of a
#: loss means that it ends by a clean shutdown.
END: Final = "end"
SHUTDOWN: Final = "shutdown"


class CrashPoints:
    """The crashes of one history."""

    def __init__(
        self,
        seed: int,
        disks: Sequence[SimDisk],
        clock: SteppedClock,
        config: LogConfig,
        reference: LogReference,
        every: int,
        only: str,
        say: Callable[[str], None],
    ) -> None:
        """Prepare all crashes, or only the crash whose path is `only`, if given.

        After a crash at each `every`-th port call, the start of the next process is crashed, too.
        If `every` is 0, nothing is crashed, and port calls are only counted.
        """
        self._seed = seed
        self._disks = disks
        self.clock = clock
        self._config = config
        self._reference = reference
        self._every = every
        self._only = _path(only)
        self._say = say
        #: The directories that the history's process has opened; they know the write under way.
        self.opened: OpenDirectories | None = None
        self.violations: list[SmallViolation] = []
        #: Number of crashes that were checked, and of starts that were needed for that.
        self.crashes = self.starts = 0
        #: Number of port calls of the history.
        self.calls = 0
        #: Whether calls are counted, but are no crash points.
        self.is_quiet = False
        self._is_changed = True
        self._is_followed_call = False
        self._found: dict[bytes, StartReading] = {}
        #: Hashes of disk contents: the start on these contents was crashed at each of its calls.
        self._followed: dict[bytes, None] = {}

    def at_call(self, name: str) -> None:
        """Crash the history before its next port call has an effect."""
        self.calls += 1
        if not self._every or self.is_quiet or self.violations:
            return
        is_changed, self._is_changed = self._is_changed, name not in _READING
        self._is_followed_call |= self.calls % self._every == 0
        if self._only and self._only[0][0] != str(self.calls):
            return
        if not (is_changed or self._only or name == "files.pwritev"):
            return
        assert self.opened is not None
        point = str(self.calls)
        write = _write(self._disks, self.opened)
        wanted = self._only[0][1:] if self._only else loss_names(self._disks, write, _DRAWS)
        for loss in wanted:
            self._crash([], self._disks, write, point, loss)
        self._is_followed_call = False

    def promised(self) -> None:
        """Note that the reference has changed, so that the next call is a crash point, too."""
        self._is_changed = True

    def _crash(
        self,
        before: list[str],
        disks: Sequence[SimDisk],
        write: UnfinishedWrite | None,
        point: str,
        loss: str,
    ) -> None:
        """Copy the disks, let them suffer a loss, and start a process on them."""
        self.crashes += 1
        copies = [disk.copied() for disk in disks]
        path = [*before, f"{point}:{loss}"]
        text = "/".join(path)
        suffer(loss, copies, write, self._seed, text)
        key = _digest(copies, keeps_cache=loss == PROCESS or loss.startswith("write"))
        found = self._found.get(key)
        is_followed = self._is_followed_call and not before and loss in _FOLLOWED
        is_followed = is_followed and key not in self._followed and not self._only
        if found is None or is_followed or self._only:
            if is_followed:
                self._followed[key] = None
            self._found[key] = found = self._start(path, copies, is_followed=is_followed)
        wrong = self._reference.wrong_start(found, is_again=len(path) > 1)
        if wrong and not self._is_below_only(path):
            self.violations.append(SmallViolation(text, wrong))

    def _is_below_only(self, path: list[str]) -> bool:
        """Return whether a crash only leads to the wanted crash, which has a longer path."""
        return len(path) < len(self._only)

    def _start(
        self, path: list[str], disks: Sequence[SimDisk], *, is_followed: bool
    ) -> StartReading:
        """Start a process; if the start `is_followed`, crash it at each of its calls."""
        self.starts += 1
        process = SmallProcess(SteppedClock(self.clock.now_ms + 1_000))
        say = self._say if len(self._only) == len(path) else None
        opened = OpenDirectories(process, disks, random.Random(0), say)
        if is_followed or len(self._only) > len(path):
            _SecondCrash(self, path, disks, opened).watch()
        found = read_start(opened, self._config)
        process.on_call = None
        if say is not None:
            say(_text(found))
        if found.log is not None and (is_followed or self._wanted(path, END)):
            self._end_again(path, disks, opened, found.log)
        process.die()
        return found

    def _wanted(self, path: list[str], call: str) -> str:
        """Return the loss that `only` names at `call` after the crashes of `path`, or ""."""
        is_wanted = len(self._only) > len(path) and self._only[len(path)][0] == call
        return self._only[len(path)][1] if is_wanted else ""

    def _end_again(
        self, path: list[str], disks: Sequence[SimDisk], opened: OpenDirectories, log: LogReading
    ) -> None:
        """End a process that has started: by a power loss, and by a clean shutdown after an
        append.
        """
        wanted = self._wanted(path, END)
        if wanted in ("", ALL):
            copies = [disk.copied() for disk in disks]
            suffer(ALL, copies, None, self._seed, END)
            self._compare([*path, f"{END}:{ALL}"], copies, log)
        if wanted in ("", SHUTDOWN):
            epoch = log.epochs[-1][0] + 1 if log.epochs else 0
            batch = append_and_shut_down(opened, epoch)
            after = log._replace(
                end=batch.next_offset,
                batches=(*log.batches, batch),
                epochs=(*log.epochs, (epoch, batch.base_offset)),
            )
            self._compare([*path, f"{END}:{SHUTDOWN}"], disks, after)

    def _compare(self, path: list[str], disks: Sequence[SimDisk], log: LogReading) -> None:
        """Start a process, which must find the log `log`; note a violation if it does not."""
        self.crashes += 1
        found = self._start(path, disks, is_followed=False)
        if found.log != log:
            what = f"V39: {_text(found)}; before it, the log was {_text(found._replace(log=log))}"
            self.violations.append(SmallViolation("/".join(path), what))

    def crash_start(
        self,
        path: list[str],
        disks: Sequence[SimDisk],
        write: UnfinishedWrite | None,
        call: str,
    ) -> None:
        """Crash the start of a process before one of its port calls has an effect."""
        if self._only and self._only[1][0] != call:
            return
        wanted = self._only[1][1:] if self._only else few_loss_names(disks, write, self.starts)
        for loss in wanted:
            self._crash(path, disks, write, call, loss)


class _SecondCrash:
    """The port calls of one start, each of which is a crash point."""

    def __init__(
        self,
        points: CrashPoints,
        path: list[str],
        disks: Sequence[SimDisk],
        opened: OpenDirectories,
    ) -> None:
        self._points = points
        self._path = path
        self._disks = disks
        self._opened = opened
        self._calls = 0
        self._is_changed = False

    def watch(self) -> None:
        """Crash the start at each call that may find other disks than the call before."""
        self._opened.process.on_call = self._at_call

    def _at_call(self, name: str) -> None:
        self._calls += 1
        is_changed, self._is_changed = self._is_changed, name not in _READING
        if is_changed:
            write = _write(self._disks, self._opened)
            self._points.crash_start(self._path, self._disks, write, str(self._calls))


def _path(text: str) -> list[tuple[str, str]]:
    """Return the calls and losses of a path; raise ValueError for a text that is no path."""
    found = [part.partition(":") for part in text.split("/")] if text else []
    if len(found) > 2 or not all(call and loss for call, _, loss in found):
        raise ValueError(f"{text!r} is no path: CALL:LOSS or CALL:LOSS/CALL:LOSS is one")
    return [(call, loss) for call, _, loss in found]


def _write(disks: Sequence[SimDisk], opened: OpenDirectories) -> UnfinishedWrite | None:
    """Return the write that the current port call is about to carry out."""
    write = opened.next_write
    if write is None or write.disk.find(write.path) is not write.file:
        return None
    return UnfinishedWrite(disks.index(write.disk), write.path, write.content, write.position)


def _digest(disks: Sequence[SimDisk], *, keeps_cache: bool) -> bytes:
    """Return a hash of what a starting broker can read, and of what the disks can lose later."""
    digest = hashlib.blake2b(digest_size=16)
    for disk in disks:
        _add(digest.update, disk.directory(disk.root))
        digest.update(b"%d;" % (disk.unsynced_changes if keeps_cache else 0))
    return digest.digest()


def _add(update: Callable[[bytes | bytearray], None], directory: Directory) -> None:
    for name in sorted(directory.entries):
        entry = directory.entries[name]
        if isinstance(entry, Directory):
            update(b"%b(" % name.encode())
            _add(update, entry)
            update(b")")
        else:
            update(b"%b %d;" % (name.encode(), len(entry.pending)))
            if not name.endswith(_REMOVED):
                update(b"%d " % len(entry.data))
                update(entry.data)


def _text(found: StartReading) -> str:
    if found.log is None:
        return f"found: no log; clean {found.was_clean}; {found.refusal or 'started'}"
    log = found.log
    batches = ", ".join(f"{each.base_offset}..{each.next_offset - 1}" for each in log.batches)
    return (
        f"found: log {log.start}..{log.end}, batches {batches}; epochs {list(log.epochs)};"
        f" producers {log.producers}; high watermark {log.high_watermark}; clean {found.was_clean}"
    )
