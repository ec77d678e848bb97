"""Seeds spread over processes: results as they end, nothing left running.

Each worker has a pipe of its own and one seed at a time. A worker whose parent is gone reads the
end of its pipe and ends; a parent that stops early ends its workers. Seeds are independent of each
other and of the process that runs them (DESIGN.md, rule 5), so their order does not matter.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from tidelog.core.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.sim.run import RunResult


class SeedFailedError(TidelogError):
    """The simulator itself failed on a seed."""


def run_in_processes(
    seeds: Iterator[int], profile: str, mutant: str, processes: int
) -> Iterator[RunResult]:
    """Results of seeds as they end; raises SeedFailedError when the simulator fails."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection[Any, Any], BaseProcess] = {}
    running: dict[Connection[Any, Any], int] = {}
    try:
        for seed in seeds:
            if len(workers) == processes:
                connection, result = _next_result(running)
                yield result
            else:
                connection, theirs = context.Pipe()
                worker = context.Process(target=_work, args=(theirs, profile, mutant), daemon=True)
                worker.start()
                theirs.close()
                workers[connection] = worker
            connection.send(seed)
            running[connection] = seed
        while running:
            yield _next_result(running)[1]
    finally:
        for connection, process in workers.items():
            connection.close()
            process.terminate()
            process.join()


def _next_result(
    running: dict[Connection[Any, Any], int],
) -> tuple[Connection[Any, Any], RunResult]:
    connection = wait(list(running))[0]
    assert isinstance(connection, Connection)
    seed = running.pop(connection)
    try:
        result = connection.recv()
    except EOFError:
        raise SeedFailedError(f"the process that ran seed {seed} ended") from None
    if isinstance(result, str):
        raise SeedFailedError(f"seed {seed}: {result}")
    return connection, result


def _work(connection: Connection[Any, Any], profile: str, mutant: str) -> None:
    """The loop of a worker: a seed in, its result or a traceback out, until the pipe ends."""
    from tidelog.sim.run import run_seed

    while True:
        try:
            seed = connection.recv()
        except EOFError:
            return
        try:
            connection.send(run_seed(seed, profile, mutant))
        except Exception:
            connection.send(traceback.format_exc())
