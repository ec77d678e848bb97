"""The lock for each write transaction and each checkpoint of the embedded store (rule S4).

The lock is a `flock` on `store.lock`, for which processes wait in the kernel's queue. While the
lock is held, the file names the holder: pid, start time, session, and the number of the
acquisition. A peer that waits longer than a session timeout compares acquisition numbers, to
distinguish a stuck holder from a queue whose processes acquire the lock one after another. The
waiting peer kills exactly the stuck holder, because a process that is stopped inside a transaction
must not block the cluster.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from tidelog.runtime.stores.leases import hold, let_go
from tidelog.runtime.stores.processes import ProcessId, kill, start_time_of, this_process

LOCK_FILE = "store.lock"
_RECORD_BYTES = 96
_EMPTY = b" " * (_RECORD_BYTES - 1) + b"\n"


class LockHolding(NamedTuple):
    """One acquisition of the lock.

    `session_id` is 0 before the holder has a session. `number` is 0 if the file does not name the
    holder, just after the acquisition and just before the release.
    """

    process: ProcessId
    session_id: int
    number: int


class StoreLock:
    """A process's handle of the store's lock; only the store's thread takes and frees the lock."""

    def __init__(self, directory: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.path = os.path.join(directory, LOCK_FILE)
        self._clock = clock
        self._descriptor = hold(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._process = this_process()
        self._number = 0
        #: Monotonic time (ns) at which the store's thread began to wait for the lock; None if it
        #: does not wait.
        self.waiting_since_ns: int | None = None

    def acquire(self, session_id: int) -> None:
        """Wait for the lock, acquire it, and write the holder to its file."""
        self.waiting_since_ns = self._clock()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        finally:
            self.waiting_since_ns = None
        self._number += 1
        record = f"{self._process.pid} {self._process.start_time} {session_id} {self._number}"
        os.pwrite(self._descriptor, record.encode().ljust(_RECORD_BYTES - 1) + b"\n", 0)

    def release(self) -> None:
        """Clear the holder in the file, then release the lock."""
        try:
            os.pwrite(self._descriptor, _EMPTY, 0)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock's file."""
        let_go(self._descriptor)

    def holding(self) -> LockHolding | None:
        """Return the holder of the lock, from the file or else from the kernel's list of locks."""
        fields = os.pread(self._descriptor, _RECORD_BYTES, 0).split()
        if len(fields) == 4 and all(field.isdigit() for field in fields):
            pid, start_time, session_id, number = (int(field) for field in fields)
            return LockHolding(ProcessId(pid, start_time), session_id, number)
        return self._holding_by_kernel()

    def _holding_by_kernel(self) -> LockHolding | None:
        stat = os.fstat(self._descriptor)
        place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
        try:
            with open("/proc/locks", encoding="ascii") as file:
                lines = file.read().splitlines()
        except OSError:  # this kernel has no /proc/locks, so the holder is unknown
            return None
        for line in lines:
            fields = line.split()
            # A lock in /proc/locks: "number: FLOCK ADVISORY WRITE pid place start end"; a waiting
            # lock has one field more, "->".
            if len(fields) == 8 and fields[1] == "FLOCK" and fields[5] == place:
                start_time = start_time_of(int(fields[4]))
                if start_time is not None:
                    return LockHolding(ProcessId(int(fields[4]), start_time), 0, 0)
        return None


class HolderWatch:
    """A watch that kills a stuck holder of the lock after this process waited a session timeout."""

    def __init__(self, lock: StoreLock, timeout_ms: int, log: Callable[[str], None]) -> None:
        self._lock = lock
        self._timeout_ms = timeout_ms
        self._log = log
        self._suspect: LockHolding | None = None
        self._blocked_ms = 0.0

    def check(self, elapsed_ms: float) -> None:
        """Check the lock's holder; called periodically while the store's thread waits for the lock.

        `elapsed_ms` is the running time of this process since the last call.
        """
        holding = self._lock.holding()
        if holding is None or holding != self._suspect:
            self._suspect = holding
            self._blocked_ms = 0.0
            return
        self._blocked_ms += elapsed_ms
        if self._blocked_ms < self._timeout_ms:
            return
        self._blocked_ms = 0.0
        self._end(holding)

    def reset(self) -> None:
        """Forget the suspected holder; the store's thread does not wait for the lock any more."""
        self._suspect = None

    def _end(self, holding: LockHolding) -> None:
        process = holding.process
        named = f"process {process.pid} (session {holding.session_id or 'unknown'})"
        if process.pid == os.getpid():
            self._log(f"the store's lock is held by this process for {self._timeout_ms} ms")
            return
        try:
            killed = kill(process)
        except PermissionError:
            self._log(f"{named} blocks the metadata store and may not be killed by this user")
            return
        if killed:
            self._log(
                f"KILLED {named}: it held the metadata store's lock for {self._timeout_ms} ms"
            )
        else:
            self._log(f"{named} is named as holder of the metadata store's lock but is gone")
