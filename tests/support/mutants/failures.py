"""A plugin of pytest: which tests failed, and whether an assertion of the test made them fail.

`pytest -p tests.support.mutants.failures --failures FILE` writes a JSON line for each failed test,
and ends the run at the first one that failed by an assertion. That is an `assert` in a file of
tests/, pytest itself (`pytest.fail`, `pytest.raises`), or a line of the test that takes what must
be there, by its key or by unpacking (`[event] = events`). What the test printed or logged may name
no error of a broken line (`NOT_RUNNING`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

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
_NOT_RUNNING = re.compile(rf"\b({'|'.join(NOT_RUNNING)})\b(?=[:(]|$)", re.MULTILINE)
_SHOWN_CHARS = 200
TESTS = Path(__file__).resolve().parents[2]


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


def read_failures(path: Path) -> list[Failure]:
    """Return the failures that a run wrote; none if it wrote no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [Failure(**{**one, "not_running": tuple(one["not_running"])}) for one in found]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", type=Path, help="the file of failed tests")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    path: Path | None = item.config.getoption("--failures")
    if path is not None and report.failed and call.excinfo is not None:
        printed = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
        failure = judge(item.nodeid, call.excinfo, printed)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(failure)) + "\n")
        if failure.by_assertion:
            item.session.shouldstop = "an assertion failed"
    return report
