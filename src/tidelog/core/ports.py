"""The ports through which `tidelog.broker` and the packages below it reach the outside world.

`tidelog.runtime` has the real ports, and `tidelog.sim` the simulated ones; a broker runs the same
code on both (DESIGN.md, rule 2). In simulation, a call of a port by a crashed incarnation of a node
raises NodeDead and has no effect (rule 5). The metadata store's port is
`tidelog.metadata.store.MetadataStore`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from tidelog.core.clock import Clock as Clock
from tidelog.core.clock import TimerHandle as TimerHandle
from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import StorageError
from tidelog.core.operation_times import OperationTimes
from tidelog.core.receive_budget import ReceiveBudget

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Random(Protocol):
    """A random number generator, such as `random.Random`."""

    def random(self) -> float: ...
    def randrange(self, start: int, stop: int) -> int: ...
    def randbytes(self, n: int) -> bytes: ...


class Handle(Protocol):
    """An open file. Users of a handle access only its `path`, and set `path` after a rename."""

    path: str


class VolumeSize(NamedTuple):
    """The total bytes of a volume, and the bytes that an unprivileged process may still write."""

    total_bytes: int
    usable_bytes: int


class FileStatus(NamedTuple):
    """The size of a file, and the wall-clock time of its last write or truncation."""

    size_bytes: int
    modified_ms: int


class VolumePlace(NamedTuple):
    """The volume that holds a path: its device and its mount point."""

    device: int
    mount_point: str


class Files(Protocol):
    """POSIX file calls of one log directory; a failure is an OSError with errno.

    Paths are passed to the system unchanged. Only operations submitted to a `Lane` may hold a
    `Files`.
    """

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Handle: ...
    def close(self, handle: Handle) -> None: ...
    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position; return the number of bytes written, fewer on a full disk."""

    def pread(self, handle: Handle, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` from a position; fewer only at the end of the file."""

    def pread_cached(self, handle: Handle, size_bytes: int, position: int) -> Buffer | None:
        """Read like `pread`, but return None if the read would wait for the disk (RWF_NOWAIT)."""

    def size(self, handle: Handle) -> int: ...
    def status(self, handle: Handle) -> FileStatus:
        """Return size and modification time of an open file."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last modification; a write or truncation sets it again.

        The new modification time becomes durable with the next fsync of the file.
        """

    def truncate(self, handle: Handle, size_bytes: int) -> None: ...
    def fsync(self, handle: Handle) -> None: ...
    def fsync_directory(self, path: str) -> None: ...
    def sync_volume(self, path: str) -> None:
        """Make all files on the volume of a path durable, including their names.

        One call (syncfs) replaces the syncs of thousands of files. A sync of the volume fails with
        the same errors as fsync.
        """

    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def mkdir(self, path: str, *, exist_ok: bool = True) -> None:
        """Make a directory and its parents; EEXIST if it exists and `exist_ok` is false."""

    def rmdir(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content, if it exists."""

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""

    def exists(self, path: str) -> bool: ...
    def read_file(self, path: str) -> bytes: ...
    def replace_file(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a file atomically by renaming `path + ".tmp"`, which is synced if `sync`."""

    def volume_size(self, path: str) -> VolumeSize:
        """Return the size of the volume that holds a path, and its free bytes."""

    def volume_place(self, path: str) -> VolumePlace:
        """Return the volume that holds a path, with its mount point."""


class Work(Enum):
    """The kinds of operations of a lane (the queue of a log directory's file operations), which say
    where the lane may run an operation: on the event loop, or on the directory's thread.
    """

    #: An operation that runs on the loop while the directory is fast, else on the directory's
    #: thread, in order of submission.
    FAST = "fast"
    #: An operation that never waits for the disk: it runs on the loop at once, even while earlier
    #: operations wait for the thread.
    NOWAIT = "nowait"
    #: An operation that always runs on the directory's thread, such as fsync, delete and recovery.
    SLOW = "slow"
    #: A read from the disk itself, which keeps its order among the SLOW operations. The read's time
    #: shows whether the device is slow (D13).
    READ = "read"
    #: The fsync of an open file, which always runs on a thread, concurrently with other operations.
    #: A device combines the syncs of many files only if they are requested together (V69).
    SYNC = "sync"
    #: The check of a large batch, always on a thread without file calls, so that computation and
    #: file calls never delay each other. Each directory runs one COMPUTE operation at a time.
    COMPUTE = "compute"


class Lane(Protocol):
    """The lane of a log directory: the queue of its file operations (DESIGN.md, rule 3).

    An operation uses only `Files` and captured values, and its result is delivered on the loop. An
    OSError becomes a StorageError that names directory, call, path, errno and time.
    """

    @property
    def directory(self) -> str: ...

    @property
    def times(self) -> OperationTimes:
        """The lane's counts: FAST operations count as writes, READ operations as reads (D13)."""

    @property
    def is_fast(self) -> bool:
        """Whether a FAST operation submitted now is done when `submit` returns."""

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        """Run `operation(files)`.

        FAST operations keep their order, even if some wait for the thread. COMPUTE operations keep
        their order, and so do SLOW and READ operations together. A NOWAIT operation is done when
        this call returns.
        """

    def abandon(self, error: StorageError) -> None:
        """Fail every unfinished and every later operation with `error`; called on the loop.

        The broker abandons the file operations of a device that hangs. An operation that has not
        begun when the broker abandons its queue never begins. An operation that has begun may still
        take effect, like an operation of a dead process.
        """

    async def close(self) -> None:
        """Finish submitted operations and end the thread.

        The lane also finishes operations that callbacks submit before the thread ends, such as
        closing a file. A `submit` after `close` raises RuntimeError.
        """


class StreamHandler(Protocol):
    """The callbacks of a byte stream's owner."""

    def get_buffer(self, sizehint: int, /) -> memoryview:
        """Return non-empty room for the next bytes; a `sizehint` of -1 means an unknown size."""

    def buffer_updated(self, nbytes: int, /) -> None:
        """Handle `nbytes` new bytes in the buffer, which may end in the middle of a frame."""

    def stream_lost(self, reason: str) -> None:
        """Handle the end of reading; called exactly once, also after the stream was closed."""


class ByteStream(Protocol):
    """The bytes of one connection, without frames: a socket, or a replacement of a socket.

    The stream reads into its handler's buffer unless reading is paused. The stream queues no bytes:
    the handler must keep the bytes that the stream could not send. Calls after `close` have no
    effect, except that sends may raise OSError.
    """

    @property
    def peer(self) -> str:
        """`host:port` of the peer, for logs."""

    def send(self, data: Buffer, /) -> int:
        """Send as many bytes as the stream takes without waiting; return the number of sent bytes.

        Raises BlockingIOError if the stream has no room, and other OSErrors for a broken
        connection.
        """

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send bytes like `send`, from up to `limits.MAX_IOVECS` buffers."""

    def watch_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback`, once or more often, when the stream has room again."""

    def unwatch_writable(self) -> None:
        """Stop the calls that `watch_writable` requested."""

    def has_ended(self) -> bool:
        """Whether the peer has closed or reset the connection, or this side has closed it."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close_reading(self, reason: str, on_over: Callable[[], None]) -> None:
        """Stop reading, and report the end of reading to the handler (`stream_lost`).

        Sends are still possible until `close`, but for a short time only. The stream calls
        `on_over` when this time is over, unless the stream is closed earlier.
        """

    def close(self, reason: str) -> None:
        """Close both directions after sending accepted bytes; safe to repeat."""

    def abort(self, reason: str) -> None:
        """Close both directions at once, which may lose accepted bytes."""


class FrameHandler(Protocol):
    """The callbacks of a connection's owner."""

    def frames_received(self, frames: list[memoryview]) -> None:
        """Handle complete frames without their size prefix, in order.

        The views are valid only during this call, unless the handler calls
        `Transport.keep_frames()`.
        """

    def connection_lost(self, reason: str) -> None:
        """Handle the end of the connection; called exactly once, also after `close()`."""

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Handle a change of the queue: the kernel took `sent_bytes`, or new bytes were queued (0).

        The transport calls `send_queue_changed` even after `connection_lost`: while queued bytes
        are sent, and when none remain.
        """


class Transport(Protocol):
    """A connection that carries frames."""

    @property
    def peer(self) -> str:
        """`host:port` of the peer, for logs."""

    @property
    def queued_bytes(self) -> int:
        """Number of bytes given to `send` that the kernel has not taken."""

    def has_ended(self) -> bool:
        """Whether the peer has closed or reset the connection, even before `connection_lost`.

        If the loop is busy, the kernel knows the connection's end earlier than `connection_lost`
        reports it.
        """

    @property
    def held_bytes(self) -> int:
        """Total size of the buffers with queued bytes; a partly sent buffer counts completely."""

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send bytes that already carry their size prefixes.

        Bytes sent during `frames_received` wait, and leave together when `frames_received` returns.
        Buffers must not change until they are sent.
        """

    def keep_frames(self) -> None:
        """Keep the frames of the current `frames_received` call valid after the call, as long as
        they are referenced.
        """

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """Release the part of the receive budget that a handled frame holds.

        Only frames of accepted connections above `receive_budget.SMALL_REQUEST_BYTES` use the
        budget.
        """

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self, reason: str) -> None:
        """Send queued bytes if the peer reads them, then close; safe to repeat."""

    def abort(self, reason: str) -> None:
        """Close without sending queued bytes."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Connections to and from this node."""

    def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        budget: ReceiveBudget | None = None,
    ) -> Awaitable[Listener]:
        """Listen; raise OSError if the port is in use. `port` 0 selects a free port.

        Frames of accepted connections take room in `budget`; None means no limit.
        """

    def connect(
        self,
        host: str,
        port: int,
        open_handler: Callable[[Transport], FrameHandler],
        timeout_ms: int,
        max_frame_bytes: int,
    ) -> Awaitable[Transport]:
        """Connect; raise ConnectionLost if rejected, unreachable or not connected in time."""


class Tracer(Protocol):
    """A recorder of events for logs, metrics and the simulator; no decision depends on it."""

    def event(self, name: str, /, **fields: Any) -> None:
        """Record a state change for the state-change log and a simulation's trace."""

    def mark(self, name: str, /) -> None:
        """Record that a rare state was reached; simulation runs must reach each named state."""

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Log a line for operators; `level` is a number of Python's logging."""


class Loggers(Protocol):
    """Loggers of the process by name; levels are the numbers of Python's logging."""

    def levels(self) -> dict[str, int]:
        """Return the effective level of each logger; `root` is the parent of all others."""

    def set_level(self, name: str, level: int | None) -> None:
        """Set a logger's level; None takes the parent's level."""

    def watch(self, changed: Callable[[], None], /) -> None:
        """Call `changed` after each change of a level."""


@dataclass(slots=True)
class Ports:
    """All ports of one node, except the port of the metadata store."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    random: Random
    network: Network
    tracer: Tracer
    #: Registers a callback that runs first in every turn of the loop, before the turn's events.
    on_turn: Callable[[Callable[[], None]], None]
    #: Opens the lane (the queue of file operations) of a log directory; raises ConfigError if the
    #: directory is unusable.
    open_lane: Callable[[str], Lane]
    #: Ends the node at once without clean-up, like a crash, and logs the reason.
    halt: Callable[[str], None]
    #: Loggers of the process, whose levels clients read and set; None if there are no such loggers.
    loggers: Loggers | None = None
