"""`core.ports.Lane`, the queue of a log directory's file operations, on a simulated disk.

On a quick disk, FAST operations are done when `submit` returns. SLOW operations, and all operations
on a slow disk, wait for the directory's single worker. The worker takes a random time for each
operation, and runs the operations in order. SYNC operations do not wait for the worker, and may end
in another order than they began. An operation runs at one instant of virtual time, between its
submission and the delivery of its result. If the node dies before the delivery, the operation may
still have been carried out.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import StorageError
from tidelog.core.operation_times import OpenAges, OperationTimes
from tidelog.core.ports import Files, Work
from tidelog.sim.files import SimFiles
from tidelog.sim.loop import Scheduler
from tidelog.sim.process import Process

T = TypeVar("T")

#: Shortest and longest duration in ns of a SLOW operation on a quick disk.
QUICK_NS = (20_000, 1_500_000)
#: Name of the operation that reads batches from the disk (`log.log_reads`).
DISK_READ = "read from disk"
#: Calls whose failure means a failed fsync (rule D17).
_FSYNC_CALLS = ("fsync", "fsync_directory", "sync_volume")


@dataclass(slots=True, eq=False)
class _Job:
    """An operation that waits for the worker of its log directory."""

    operation: Callable[[Files], Any]
    work: Work
    name: str
    completion: Completion[Any]
    #: The random duration of the operation, drawn when it begins.
    time_ns: int = 0
    #: Monotonic time at which the operation began, or was submitted if it still waits.
    begun_ns: int = 0


class SimLane:
    """All file operations of one incarnation on one log directory."""

    def __init__(
        self,
        process: Process,
        scheduler: Scheduler,
        directory: str,
        files: SimFiles,
        draw: random.Random,
    ) -> None:
        self._process = process
        self._scheduler = scheduler
        #: Path of the log directory whose operations this lane runs.
        self.directory = directory
        self._files = files
        self._draw = draw
        self._jobs: deque[_Job] = deque()
        self._busy = False
        #: Operations under way that sync.
        self._syncs: dict[_Job, None] = {}
        #: The error given to `abandon`, with which all operations fail from then on; None before.
        self._abandoned: StorageError | None = None
        self._fast_waiting = 0
        self._closed = False
        #: Counts of fast and slow writes and reads, by their simulated duration (D13).
        self.times = OperationTimes()
        self.times.open_ages = self._open_ages
        #: Completion that `close` awaits; it is resolved when an operation ends.
        self._draining: Completion[None] | None = None

    @property
    def is_fast(self) -> bool:
        """Whether a FAST operation submitted now is done when `submit` returns."""
        disk = self._files.disk
        return not disk.slow and not disk.hangs and self._fast_waiting == 0

    def _open_ages(self) -> OpenAges:
        """Return the ages of the operations under way.

        The real lane has a separate thread for writes. The simulated lane has a single worker, so a
        write that waits behind another operation of a hung disk counts as hanging, too.
        """
        write: _Job | None = None
        read: _Job | None = None
        other = next(iter(self._syncs), None)
        if self._busy:
            head = self._jobs[0]
            read = head if head.work is Work.READ else None
            if head.work is Work.SLOW and (other is None or head.begun_ns < other.begun_ns):
                other = head
            writes = (job for job in self._jobs if job.work is Work.FAST)
            if head.work is Work.FAST or self._files.disk.hangs:
                write = next(writes, None)
        now_ns = self._process.clock.monotonic_ns()
        least = min(len(self._jobs), 1)
        jobs = (write, read, other)
        return OpenAges(*(least if job is None else now_ns - job.begun_ns for job in jobs))

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        """Run `operation(files)` now or later, as `core.ports.Lane` specifies."""
        self._process.check_alive()
        if self._closed:
            raise RuntimeError(f"the lane of {self.directory} is closed")
        if self._abandoned is not None:
            return Completion.failed(self._abandoned)
        if work is Work.NOWAIT or (work is Work.FAST and self.is_fast):
            if work is Work.FAST:
                self.times.wrote(0)
            result, failure = self._perform(operation)
            return Completion.of(result) if failure is None else Completion.failed(failure)
        completion: Completion[T] = Completion()
        job = _Job(operation, work, name, completion)
        if work is Work.SYNC:
            self._syncs[job] = None
            self._schedule(job)
        else:
            if work is Work.FAST:
                self._fast_waiting += 1
                self._files.disk.count("waited")
            job.begun_ns = self._process.clock.monotonic_ns()
            self._jobs.append(job)
            self._start()
        if self.times.on_open is not None and work is not Work.COMPUTE:
            self.times.on_open()
        return completion

    def abandon(self, error: StorageError) -> None:
        """Fail all operations and run no further operation, as `core.ports.Lane` specifies."""
        self._process.check_alive()
        self._abandoned = error
        failed = [*self._jobs, *self._syncs]
        self._jobs.clear()
        self._syncs.clear()
        self._busy = False
        for job in failed:
            job.completion.fail(error)
        self._now_drained()

    async def close(self) -> None:
        """Finish all submitted operations, as `core.ports.Lane` specifies."""
        self._process.check_alive()
        while self._busy or self._syncs:
            if self._draining is None:
                self._draining = Completion()
            await self._draining
        self._closed = True

    def _start(self) -> None:
        if self._busy or not self._jobs:
            return
        self._busy = True
        self._schedule(self._jobs[0])

    def _schedule(self, job: _Job) -> None:
        disk = self._files.disk
        job.begun_ns = self._process.clock.monotonic_ns()
        if disk.hangs:
            disk.count("hangs")
            disk.stuck.append(lambda: self._go_on(job))
            return
        low, high = disk.slow_ns if disk.slow else QUICK_NS
        if disk.read_ns is not None and job.name == DISK_READ:
            disk.count("slow reads")
            low, high = disk.read_ns
        time_ns = job.time_ns = self._draw.randrange(low, high)
        runs_after_ns = self._draw.randrange(time_ns)
        self._scheduler.after(runs_after_ns, self._process, self._run, job, time_ns - runs_after_ns)

    def _go_on(self, job: _Job) -> None:
        """Begin an operation that waited because the device hung."""
        if self._process.alive and self._abandoned is None:
            self._schedule(job)

    def _run(self, job: _Job, rest_ns: int) -> None:
        if self._abandoned is not None:
            return
        result, failure = self._perform(job.operation)
        if isinstance(failure, StorageError):
            # Deliver a failure of the disk without delay, because a leader that does not know yet
            # that its disk lost pages could shrink the ISR to itself.
            rest_ns = 0
        self._scheduler.after(rest_ns, self._process, self._deliver, job, result, failure)

    def _perform(self, operation: Callable[[Files], Any]) -> tuple[Any, BaseException | None]:
        """Run an operation; return its result, or its error."""
        try:
            return operation(self._files), None
        except OSError as error:
            return None, self._attributed(error)
        except Exception as error:
            return None, error

    def _deliver(self, job: _Job, result: Any, failure: BaseException | None) -> None:
        if self._abandoned is not None:
            return
        if job.work is Work.SYNC:
            self._syncs.pop(job)
        else:
            self._jobs.popleft()
            self._busy = False
            if job.work is Work.FAST:
                self._fast_waiting -= 1
            self._start()
        if job.work is Work.FAST:
            self.times.wrote(job.time_ns)
        elif job.work is Work.READ:
            self.times.read(job.time_ns)
        self.times.report()
        if failure is not None:
            job.completion.fail(failure)
        else:
            job.completion.resolve(result)
        self._now_drained()

    def _now_drained(self) -> None:
        draining, self._draining = self._draining, None
        if draining is not None:  # wake `close`, which checks whether operations remain
            draining.resolve(None)

    def _attributed(self, error: OSError) -> StorageError:
        call = self._files.last_call
        return StorageError(
            self.directory,
            "fsync" if call in _FSYNC_CALLS else call,
            str(error.filename or self._files.last_path),
            error.errno or 0,
            self._process.clock.wall_ms(),
        )
