"""The real lane of a log directory, which runs operations on the loop or on threads.

Passing an operation to a thread costs 57 µs, or more if the loop is busy; the operation itself
costs 0.8 µs (DESIGN.md, rule 3). FAST operations run on the loop, until one of them has waited
SLOW_CALL_NS for the disk. After a slow operation, FAST operations run on the directory's thread
until CLEAN_NS have passed without a slow operation. A call has waited for the disk only if it gave
up the processor voluntarily, not if the machine ran another process. SLOW and READ operations have
their own thread, so that an fsync does not delay appends. SYNC operations have up to SYNC_THREADS
threads, and COMPUTE operations one; these threads start when needed. Every error names directory,
call, path, errno and time.
"""

from __future__ import annotations

import asyncio
import os
import queue
import resource
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.core.completion import Completion
from tidelog.core.errors import StorageError
from tidelog.core.operation_times import OpenAges, OperationTimes
from tidelog.core.ports import Clock, Files, Work
from tidelog.runtime.files import CallError, OsFiles, lock_directory

T = TypeVar("T")

#: Minimum duration of an operation on the loop after which the log directory counts as slow.
SLOW_CALL_NS = 20_000_000
#: Time without a slow operation after which the loop runs FAST operations again.
CLEAN_NS = 10_000_000_000
#: Once an operation of a thread has taken this long, the loop leaves all file operations to
#: threads. The device may hang, and a hanging operation would block the loop for good.
STALL_NS = 250_000_000
#: Maximum number of concurrent SYNC operations; a device merges concurrent syncs.
SYNC_THREADS = 8

_Operation = Callable[[Files], Any]
_Job = tuple[_Operation, Completion[Any], Work]
_Result = tuple[Completion[Any], Any, BaseException | None]


def voluntary_switches() -> int:
    """Return how often this thread gave up the processor voluntarily, to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class _Worker:
    """A thread that runs operations in order; one wake-up of the loop delivers several results."""

    def __init__(self, name: str, lane: ThreadLane) -> None:
        self._lane = lane
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.waiting = 0
        #: Monotonic time at which the operation under way began; 0 without an operation.
        self.under_way_since_ns = 0
        #: The kind of the operation under way; None if the thread is idle.
        self.under_way: Work | None = None
        #: Operations in order whose results have not been delivered; only the loop uses this queue.
        self.pending: deque[Completion[Any]] = deque()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, operation: _Operation, completion: Completion[Any], work: Work) -> None:
        """Queue an operation; called on the loop."""
        self.waiting += 1
        self.pending.append(completion)
        self._jobs.put((operation, completion, work))

    def end(self) -> None:
        """End the thread after all queued operations."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            operation, completion, work = job
            if self._lane.abandoned is not None:
                continue
            self.under_way = work
            self.under_way_since_ns = time.monotonic_ns()
            result, failure = self._lane.execute(operation, work)
            self.under_way_since_ns = 0
            self._lane.finished(self, (completion, result, failure))
            # Without `del`, the thread would keep the last read data in memory until the next job.
            del job, operation, completion, result, failure


class ThreadLane:
    """The executor of all file operations in one log directory, a `core.ports.Lane`."""

    def __init__(
        self,
        directory: str,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        files: Files | None = None,
        lock_descriptor: int | None = None,
    ) -> None:
        self._directory = directory
        self._loop = loop
        self._clock = clock
        self._files: Files = files if files is not None else OsFiles()
        self._lock_descriptor = lock_descriptor
        self._fast = _Worker(f"lane-fast {directory}", self)
        self._slow = _Worker(f"lane-slow {directory}", self)
        #: The thread of COMPUTE operations; None until the first COMPUTE operation, because such
        #: operations are rare.
        self._compute: _Worker | None = None
        self._syncs: list[_Worker] = []
        self._wake_lock = threading.Lock()
        #: Results of operations on threads, which the loop has not delivered to their callers yet.
        self._results: list[tuple[_Worker, _Result]] = []
        #: Whether a wake-up of the loop is scheduled, in which the loop delivers the results.
        self._waking = False
        self._slow_until_ns = 0
        self._times = OperationTimes()
        self._times.open_ages = self._open_ages
        #: The error with which all operations fail after a call of `abandon`; None before the call.
        self.abandoned: StorageError | None = None
        #: Number of operations on threads other than the FAST operations' thread.
        self._beside = 0
        self._closed = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def directory(self) -> str:
        """The log directory whose file operations this lane runs."""
        return self._directory

    @property
    def times(self) -> OperationTimes:
        """The numbers of writes, slow writes, reads and slow reads (D13)."""
        return self._times

    def release_buffers(self) -> None:
        """Release the buffers that are kept for later reads."""
        if isinstance(self._files, OsFiles):
            self._files.release_buffers()

    @property
    def is_fast(self) -> bool:
        """Whether a FAST operation submitted now is done when `submit` returns."""
        return (
            not self._fast.waiting
            and (not self._slow_until_ns or time.monotonic_ns() >= self._slow_until_ns)
            and not (self._beside and self._is_stalled())
        )

    def _is_stalled(self) -> bool:
        """Return whether a thread's operation takes so long that the device may hang."""
        before_ns = time.monotonic_ns() - STALL_NS
        return any(
            0 < worker.under_way_since_ns < before_ns for worker in (self._slow, *self._syncs)
        )

    def _open_ages(self) -> OpenAges:
        """Return the ages in ns of operations under way; 1 for an operation still in a queue."""
        now_ns, fast, slow = time.monotonic_ns(), self._fast, self._slow
        write_ns, read_ns = fast.under_way_since_ns, slow.under_way_since_ns
        others = [worker.under_way_since_ns for worker in self._syncs]
        if slow.under_way is not Work.READ:
            others.append(read_ns)
            read_ns = 0
        other_ns = min((each for each in others if each), default=0)
        is_sync_waiting = any(worker.waiting for worker in self._syncs)
        return OpenAges(
            now_ns - write_ns if write_ns else min(fast.waiting, 1),
            now_ns - read_ns if read_ns else min(slow.waiting, 1),
            now_ns - other_ns if other_ns else int(is_sync_waiting),
        )

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        """Run `operation(files)`; see `core.ports.Lane`."""
        if self._closed:
            raise RuntimeError(f"the lane of {self._directory} is closed ({name})")
        if self.abandoned is not None:
            return Completion.failed(self.abandoned)
        if work is Work.NOWAIT or (work is Work.FAST and self.is_fast):
            result, failure = self.execute(operation, work)
            if self._times.is_report_due:
                self._times.report()
            return Completion.of(result) if failure is None else Completion.failed(failure)
        completion: Completion[T] = Completion()
        worker = self._worker(work)
        worker.put(operation, completion, work)
        if worker is not self._fast:
            self._beside += 1
        times = self._times
        if times.on_open is not None and work is not Work.COMPUTE:
            times.on_open()
        return completion

    def abandon(self, error: StorageError) -> None:
        """Fail all current and later operations; see `core.ports.Lane`."""
        self.abandoned = error
        for worker in self._workers():
            pending, worker.pending = worker.pending, deque()
            worker.waiting = 0
            for completion in pending:
                completion.fail(error)
        self._beside = 0
        self._now_drained()

    def _worker(self, work: Work) -> _Worker:
        if work is Work.FAST:
            return self._fast
        if work is Work.SYNC:
            return self._sync_worker()
        if work is not Work.COMPUTE:
            return self._slow
        if self._compute is None:
            self._compute = _Worker(f"lane-compute {self._directory}", self)
        return self._compute

    def _sync_worker(self) -> _Worker:
        """Return an idle or new thread for SYNC operations, else the least busy such thread."""
        syncs = self._syncs
        least = min(syncs, key=lambda worker: worker.waiting, default=None)
        if least is None or (least.waiting and len(syncs) < SYNC_THREADS):
            least = _Worker(f"lane-sync-{len(syncs)} {self._directory}", self)
            syncs.append(least)
        return least

    async def close(self) -> None:
        """Finish submitted operations, end the threads, unlock the directory; see `Lane.close`."""
        while any(worker.waiting for worker in self._workers()):
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self._closed:
            return
        self._closed = True
        for worker in self._workers():
            worker.end()
        # A hanging thread may still write, so the lock is kept until this process ends.
        if self._lock_descriptor is not None and self.abandoned is None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def _workers(self) -> list[_Worker]:
        workers = [self._fast, self._slow, *self._syncs]
        return workers if self._compute is None else [*workers, self._compute]

    def execute(self, operation: _Operation, work: Work) -> tuple[Any, BaseException | None]:
        """Run an operation on this thread; return its result, or its error with call and path.

        After a slow FAST operation, the loop runs no FAST operations for a while.
        """
        is_write = work is Work.FAST
        waits = voluntary_switches() if is_write else 0
        begin_ns = time.monotonic_ns()
        try:
            return operation(self._files), None
        except OSError as error:
            return None, self._attributed(error)
        except Exception as error:
            return None, error
        finally:
            if is_write:
                end_ns, times = time.monotonic_ns(), self._times
                took_ns = end_ns - begin_ns
                times.writes += 1  # inline, because a method call would slow appends
                if took_ns >= times.limit_ns:
                    times.was_slow_write(took_ns)
                if took_ns >= SLOW_CALL_NS and voluntary_switches() != waits:
                    self._slow_until_ns = end_ns + CLEAN_NS
            elif work is Work.READ:
                self._times.read(time.monotonic_ns() - begin_ns)

    def finished(self, worker: _Worker, result: _Result) -> None:
        """Record the result of a thread's operation; schedule a wake-up of the loop if needed."""
        with self._wake_lock:
            self._results.append((worker, result))
            wake, self._waking = not self._waking, True
        if wake:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed, because the process is ending
                return

    def _deliver(self) -> None:
        """Complete the operations that the threads have finished; called on the loop."""
        with self._wake_lock:
            results, self._results = self._results, []
            self._waking = False
        if self.abandoned is not None:
            return
        self._times.report()
        for number, (worker, (completion, result, failure)) in enumerate(results):
            worker.waiting -= 1
            worker.pending.popleft()
            if worker is not self._fast:
                self._beside -= 1
            try:
                if failure is None:
                    completion.resolve(result)
                else:
                    completion.fail(failure)
            except BaseException:
                # This callback failed, so a later callback of the loop delivers the remaining
                # results.
                with self._wake_lock:
                    self._results[:0] = results[number + 1 :]
                self._loop.call_soon(self._deliver)
                raise
        self._now_drained()

    def _now_drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:  # wake `close`, which waits for operations
            drained.set_result(None)

    def _attributed(self, error: OSError) -> StorageError:
        call = error.call if isinstance(error, CallError) else "unknown call"
        return StorageError(
            self._directory,
            call,
            str(error.filename or self._directory),
            error.errno or 0,
            self._clock.wall_ms(),
        )


def open_lane(
    directory: str, loop: asyncio.AbstractEventLoop, clock: Clock, files: Files | None = None
) -> ThreadLane:
    """Lock a log directory against other brokers; return the lane that runs its file operations.
    Raises ConfigError.

    A test may pass `files` that inject faults.
    """
    return ThreadLane(directory, loop, clock, files, lock_descriptor=lock_directory(directory))
