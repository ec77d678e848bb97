"""A search over seeds for `tidelog sim run`; a signal ends it without loss of results.

Ctrl-C and SIGTERM end the search, even in the middle of a run. The command still prints and keeps
the results of ended runs, and exits with 128 plus the signal's number.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tidelog.cli.output import say
from tidelog.cli.seed_workers import run_in_processes

if TYPE_CHECKING:
    from tidelog.sim.job import Job
    from tidelog.sim.results import RunResult
    from tidelog.sim.search_coverage import Coverage

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Number of a run's last events that are printed with a violation.
_STORY_LINES = 30


class SearchInterrupted(BaseException):
    """The exception with which a signal ends the search; code inside a simulation run must not
    catch it.
    """


class Interruptions:
    """A context in which the first signal raises SearchInterrupted; `number` is its number.

    Python drops an exception inside a finalizer or a callback of a weak reference, so check
    `number`, too. Python's message about a dropped SearchInterrupted is suppressed.
    """

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> Interruptions:
        self._before = {each: signal.signal(each, self._came) for each in _SIGNALS}
        self._hook_before, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook_before
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _came(self, number: int, _: FrameType | None) -> None:
        if not self.number:
            self.number = number
            raise SearchInterrupted

    def _unraisable(self, failure: sys.UnraisableHookArgs) -> None:
        if not isinstance(failure.exc_value, SearchInterrupted):
            self._hook_before(failure)

    @property
    def exit_code(self) -> int:
        """Return the exit code that shells use for the signal; 0 if none came."""
        return 128 + self.number if self.number else 0


def results(jobs: Iterator[Job], processes: int) -> Generator[RunResult, None, None]:
    """Yield the result of each run when it ends."""
    if processes > 1:
        yield from run_in_processes(jobs, processes)
        return
    for job in jobs:
        yield job.run()


def search(
    jobs: Iterator[Job], processes: int, number: int | None, take: Callable[[RunResult], bool]
) -> int:
    """Pass each result to `take` until `take` returns True.

    Returns 0, or the exit code of a signal that ended the search.
    """
    with (
        Interruptions() as interruptions,
        contextlib.suppress(SearchInterrupted),
        contextlib.closing(results(jobs, processes)) as found,
    ):
        for result in _with_progress(found, number):
            if take(result) or interruptions.number:
                break
    return interruptions.exit_code


def _with_progress(found: Iterable[RunResult], number: int | None) -> Iterator[RunResult]:
    """Show a progress bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=number)
        for result in found:
            progress.advance(task)
            yield result


def say_violation(result: RunResult, shrink_s: float) -> None:
    """Print a violation, with the command that shows it step by step.

    Lines below the violation show how to keep the seed as a test, a shrunken run, and the last
    events of the run.
    """
    from tidelog.sim.job import Job
    from tidelog.sim.known_seeds import line_to_add

    job = Job.of(result)
    say(f"seed {result.seed}: VIOLATION {result.violation}")
    if result.world:
        say(f"    world: {result.world}")
    say(f"    {job.command()} shows it step by step, with --story in short")
    if not job.mutant and not job.policy:
        line = line_to_add(result.profile, result.seed, result.chosen, result.violation)
        say(f"    to be kept in tests/sim/known_seeds.txt as: {line}")
    if shrink_s > 0:
        job = say_shrunk(job, shrink_s)
    for line in job.story()[1][-_STORY_LINES:]:
        say(f"    {line}")


def say_shrunk(job: Job, limit_s: float) -> Job:
    """Shrink a run within a time limit; print the remaining faults and return the reduction."""
    deadline = time.monotonic() + limit_s
    found = job.shrink(lambda: time.monotonic() >= deadline)
    whole, left = found.whole, found.result
    reduced = job.reduced(found.only)
    if not whole.violation:
        say(f"    {job.command()} shows no violation: there is nothing to shrink")
        return job
    kinds = ", ".join(f"{fault.drawn_before + 1} {fault.kind}" for fault in found.faults) or "none"
    say(
        f"    shrunk in {found.runs} runs from {sum(whole.faults.values())} faults,"
        f" {whole.partitions} partitions and {whole.events} events to {sum(left.faults.values())},"
        f" {left.partitions} and {left.events}; faults left: {kinds}"
    )
    say(f"    {reduced.command()}")
    return reduced


def read_coverage(path: Path) -> Coverage:
    """Read the coverage of earlier searches; empty if there is no such file."""
    from tidelog.sim.search_coverage import Coverage, CoverageFileError

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Coverage()
    except UnicodeDecodeError as error:
        raise CoverageFileError(
            f"{path} holds no coverage, which is text: {error}; name another file, or move it away"
        ) from None
    return Coverage.from_json(text, str(path))


def write_coverage(path: Path, coverage: Coverage) -> None:
    """Write coverage; the file has the old or the new content, never a part."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(coverage.to_json(), encoding="utf-8")
    os.replace(unfinished, path)
