"""Session leases: one file with a flock and a counter per session (rules S1, S4).

The flock ends with the process, so peers notice a killed process at once. A stopped process does
not increment its counter. Each observer adds up the time without a change of the counter on its own
clock, only while the observer itself runs. A sleep of the machine expires no session, because no
observer runs during the sleep.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import NamedTuple

from tidelog.runtime.stores.processes import ProcessId, watch_descriptor

SESSIONS_DIRECTORY = "sessions"
_COUNTER_BYTES = 8

#: Descriptors of locked files, which a forked child must close so that the locks end with this
#: process.
_held: dict[int, None] = {}


def _forked() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


# A forked child without exec would keep the lease of a dead broker.
os.register_at_fork(after_in_child=_forked)


def hold(descriptor: int) -> int:
    """Register the descriptor of a locked file, which forked children close; return it."""
    _held[descriptor] = None
    return descriptor


def let_go(descriptor: int) -> None:
    """Close the descriptor of a locked file that `hold` registered."""
    _held.pop(descriptor, None)
    os.close(descriptor)


class SessionRow(NamedTuple):
    """A session as the database records it."""

    session_id: int
    process: ProcessId
    timeout_ms: int


def lease_path(directory: str, session_id: int) -> str:
    """Return the path of a session's lease."""
    return os.path.join(directory, SESSIONS_DIRECTORY, f"{session_id}.lease")


def wake_name(session_id: int) -> str:
    """Return the name of a session's wake-up socket in the directory of sessions."""
    return f"{session_id}.wake"


def remove_session_files(directory: str, session_id: int) -> None:
    """Remove the lease and the socket of an ended session, which are of no more use."""
    sessions = os.path.join(directory, SESSIONS_DIRECTORY)
    for name in (f"{session_id}.lease", wake_name(session_id)):
        with contextlib.suppress(FileNotFoundError):  # a peer removed the file first
            os.unlink(os.path.join(sessions, name))


def remove_stray_files(directory: str, live: list[int]) -> None:
    """Remove the files of sessions that are not live.

    The caller must hold the store's lock, under which sessions start.
    """
    sessions = os.path.join(directory, SESSIONS_DIRECTORY)
    keep = [name for session_id in live for name in (f"{session_id}.lease", wake_name(session_id))]
    for name in os.listdir(sessions):
        if name.endswith((".lease", ".wake")) and name not in keep:
            with contextlib.suppress(FileNotFoundError):  # the session's process removes the file
                os.unlink(os.path.join(sessions, name))


class Lease:
    """The lease of this process's session."""

    def __init__(self, directory: str, session_id: int) -> None:
        self.session_id = session_id
        self._count = 0
        self._descriptor = hold(
            os.open(lease_path(directory, session_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.renew()
        except BaseException:
            let_go(self._descriptor)
            raise

    def renew(self) -> None:
        """Increment the counter as a sign of life."""
        self._count += 1
        os.pwrite(self._descriptor, self._count.to_bytes(_COUNTER_BYTES, "little"), 0)

    def close(self) -> None:
        """Release the lease and its file descriptor."""
        let_go(self._descriptor)


class ObservedLease:
    """The lease of a peer, which this process observes."""

    def __init__(self, directory: str, row: SessionRow) -> None:
        self.row = row
        self.silent_ms = 0.0
        self._count = -1
        #: Descriptor of the lease file; None if the file is missing, and thus no process holds the
        #: lease.
        self._descriptor: int | None = None
        with contextlib.suppress(FileNotFoundError):
            self._descriptor = os.open(
                lease_path(directory, row.session_id), os.O_RDONLY | os.O_CLOEXEC
            )
        #: Descriptor that becomes readable when the process ends; None if the process cannot be
        #: watched.
        self.process_descriptor = watch_descriptor(row.process)

    def is_abandoned(self) -> bool:
        """Return whether no process holds the lease, because the session's process has ended."""
        if self._descriptor is None:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return True

    def observe(self, elapsed_ms: float) -> bool:
        """Read the counter; return whether it has not changed for the session timeout.

        `elapsed_ms` is the running time of this process since the last call.
        """
        count = self.read_count()
        if count != self._count:
            self._count = count
            self.silent_ms = 0.0
        else:
            self.silent_ms += elapsed_ms
        return self.silent_ms > self.row.timeout_ms

    @property
    def count(self) -> int:
        """The peer's counter at the last observation."""
        return self._count

    def read_count(self) -> int:
        """Return the current counter."""
        if self._descriptor is None:
            return -1
        return int.from_bytes(os.pread(self._descriptor, _COUNTER_BYTES, 0), "little")

    def close(self) -> None:
        """Stop observing, and close the descriptors."""
        for descriptor in (self._descriptor, self.process_descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptor = self.process_descriptor = None
