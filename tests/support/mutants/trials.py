"""Trials: the tests of a rule in tests/rules, run against a mutant of one line.

Only an assertion kills: an `assert` in a file of tests/, pytest itself (`pytest.fail`,
`pytest.raises`), or a line of the test that takes what must be there, by its key or by unpacking
(`[event] = events`). What the test printed or logged may name no error of a line that does not run
(`NOT_RUNNING`).
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.support.mutants.lines import ROOT, LineMutant
from tests.support.mutants.mutant import MutantGoneError
from tests.support.rules import rules_in_tests

#: A line that raises one of these is no mutant: it does not run.
NOT_RUNNING = (
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "NameError",
    "SyntaxError",
    "TypeError",
    "UnboundLocalError",
)
TESTS = ROOT / "tests"
#: Tests of one rule, and of all, that have not ended by then never will.
LIMIT_S, LIMIT_OF_ALL_S = 180, 900
#: Each run is a process of its own, forked from one that has imported what the tests need.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__, "tidelog.sim.run"])
_NOT_RUNNING = re.compile(rf"\b({'|'.join(NOT_RUNNING)})\b(?=[:(]|$)", re.MULTILINE)
_SHOWN_CHARS = 200


class TrialError(Exception):
    """The error of a trial that proves nothing: the tests do not run, or no assertion failed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed test."""

    test: str
    #: The type of the exception, and the file that raised it.
    error: str
    raised_in: str
    words: str
    #: An assertion of the test failed; nothing else is a proof that a rule's test noticed.
    by_assertion: bool
    #: Errors of a broken line that the test met.
    not_running: tuple[str, ...]

    def __str__(self) -> str:
        met = f", met {', '.join(self.not_running)}" if self.not_running else ""
        return f"{self.test}: {self.error} in {self.raised_in}: {self.words}{met}"


@dataclass(slots=True)
class RuleRun:
    """A run of the tests of some rules, up to the first assertion that fails."""

    failures: list[Failure] = field(default_factory=list)
    #: Exit code of pytest; None if the run did not come to its end.
    code: int | None = None
    printed: str = "the tests do not end"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge a failed test, as a plugin of pytest."""
        report = yield
        if report.failed and call.excinfo is not None:
            printed = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
            failure = judge(item.nodeid, call.excinfo, printed)
            self.failures.append(failure)
            if failure.by_assertion:
                item.session.shouldstop = "an assertion failed"
        return report


def not_running(printed: str) -> tuple[str, ...]:
    """Return the errors in a text that show that a mutant itself does not run."""
    return tuple(dict.fromkeys(_NOT_RUNNING.findall(printed)))


def judge(test: str, excinfo: pytest.ExceptionInfo[BaseException], printed: str) -> Failure:
    """Return what a failed test says about the mutant."""
    raised_in = Path(str(excinfo.traceback[-1].path)).resolve()
    asserted = isinstance(excinfo.value, pytest.fail.Exception) or (
        raised_in.is_relative_to(TESTS) and _is_expectation(excinfo.value, raised_in)
    )
    met = not_running(printed)
    words = str(excinfo.value).strip().partition("\n")[0][:_SHOWN_CHARS]
    return Failure(test, excinfo.typename, str(raised_in), words, asserted and not met, met)


def _is_expectation(error: BaseException, raised_in: Path) -> bool:
    """Return whether a line of tests/ raised because something is not as it expects."""
    if isinstance(error, KeyError | IndexError):
        return raised_in.is_relative_to(TESTS / "rules")
    is_unpacking = isinstance(error, ValueError) and "values to unpack" in str(error)
    return is_unpacking or isinstance(error, AssertionError)


def check_healthy(rules: Sequence[str]) -> None:
    """Raise TrialError unless the tests of these rules pass without a mutant."""
    run = run_tests(rules)
    if run.code != pytest.ExitCode.OK:
        raise TrialError(f"the tests fail without any mutant:\n{run.printed}")


def is_killed(mutant: LineMutant) -> bool:
    """Return whether an assertion of a test of the rule fails with the line; raise TrialError."""
    run = run_tests([mutant.rule], mutant)
    if run.code == pytest.ExitCode.OK:
        return False
    if any(each.by_assertion for each in run.failures):
        return True
    if run.failures:
        words = "; ".join(["no assertion of a test failed", *map(str, run.failures)])
    else:
        words = f"the tests do not run (exit code {run.code})\n{run.printed}"
    raise TrialError(words)


def run_tests(rules: Sequence[str], mutant: LineMutant | None = None) -> RuleRun:
    """Run the tests of these rules in a process of its own, with a mutant if there is one."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_run, args=(sender, rules, mutant))
    process.start()
    sender.close()
    run = RuleRun()
    try:
        if receiver.poll(LIMIT_S if mutant else LIMIT_OF_ALL_S):
            run.failures, run.code, run.printed = receiver.recv()
    except EOFError:
        run.printed = "their process ended"
    finally:
        process.kill()
        process.join()
    return run


def _run(sender: Connection, rules: Sequence[str], mutant: LineMutant | None) -> None:
    """Run tests and send the result, in their process."""
    # To collect all files takes seconds.
    tests = [test for rule in rules for test in rules_in_tests().get(rule, [])]
    files = dict.fromkeys(str(TESTS / "rules" / test.partition("::")[0]) for test in tests)
    words = ["--tb=short", *files, *(word for rule in rules for word in ("--rule", rule))]
    run = RuleRun()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            with mutant.in_force() if mutant else contextlib.nullcontext():
                run.code = int(pytest.main(words, [run]))
        except MutantGoneError as error:
            print(error)  # noqa: T201
    sender.send((run.failures, run.code, printed.getvalue()))
