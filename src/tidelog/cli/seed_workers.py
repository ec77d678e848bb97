"""Worker processes that run seeds; none of them survives its parent.

Each worker has a pipe of its own and one job at a time. A worker ends when its pipe does, so it
does not survive its parent. A parent that stops early ends its workers. Runs are independent of
each other and of the process that makes them (DESIGN.md, rule 5), so their order does not matter.
Ctrl-C reaches the whole process group; workers ignore the signal, and their parent ends them.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from tidelog.core.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.sim.job import Job
    from tidelog.sim.results import RunResult


class SeedFailedError(TidelogError):
    """The error for a seed with which the simulator itself fails."""


def run_in_processes(jobs: Iterator[Job], processes: int) -> Iterator[RunResult]:
    """Yield the result of each job when it ends; raise SeedFailedError if the simulator fails."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection[Any, Any], BaseProcess] = {}
    running: dict[Connection[Any, Any], Job] = {}
    try:
        for job in jobs:
            if len(workers) == processes:
                connection, result = _next_result(running)
                yield result
            else:
                connection, theirs = context.Pipe()
                worker = context.Process(target=_work, args=(theirs,), daemon=True)
                worker.start()
                theirs.close()
                workers[connection] = worker
            connection.send(job)
            running[connection] = job
        while running:
            yield _next_result(running)[1]
    finally:
        for connection, process in workers.items():
            connection.close()
            process.terminate()
            process.join()


def _next_result(
    running: dict[Connection[Any, Any], Job],
) -> tuple[Connection[Any, Any], RunResult]:
    connection = wait(list(running))[0]
    assert isinstance(connection, Connection)
    job = running.pop(connection)
    try:
        result = connection.recv()
    except EOFError:
        raise SeedFailedError(f"the process that ran seed {job.seed} ended") from None
    if isinstance(result, str):
        raise SeedFailedError(f"seed {job.seed}: {result}")
    return connection, result


def _work(connection: Connection[Any, Any]) -> None:
    """Run jobs from the pipe until it ends; send a result or a traceback for each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            connection.send(job.run())
        except Exception:
            connection.send(traceback.format_exc())
