"""Which tests call which functions, so that a mutant is tried by the tests that can notice it.

`python -m tests.mutation.reach OUT PATH...` runs tests under coverage, one context each, and writes
their CPU seconds and the functions of the mutated packages that they enter. A test that never
enters a function passes whatever the function does. What tests of one file share (a fixture of the
module, a cached result) is computed by the first of them alone; so where a file shares something,
all its tests reach what one does. A function that is called while tests are collected may concern
any of them.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest
from tests.mutation.by_tests import check_place, settle_hypothesis
from tests.mutation.changes import functions_of
from tests.mutation.drawing import PACKAGES

#: Tests of a file with one of these share something.
_SHARES = re.compile(r"^@(?:functools\.)?(?:lru_)?cache\b|scope=", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reach:
    """The tests of a judge, and the functions that each enters."""

    #: CPU seconds of each test.
    cpu_s: Mapping[str, float]
    #: The tests that enter each function, by its file below src/ and its name.
    tests: Mapping[tuple[str, str], Sequence[str]]

    def tests_of(self, file: str, function: str) -> list[str]:
        """Return the tests that enter a function: cheap files first, each in its own order."""
        entering = set(self.tests.get((file, function), ()))
        if not entering:
            return []
        by_file: dict[str, list[str]] = {}
        for test in self.cpu_s:
            if test in entering:
                by_file.setdefault(test.partition("::")[0], []).append(test)

        def mean_cpu_s(tests: Sequence[str]) -> float:
            return sum(self.cpu_s[test] for test in tests) / len(tests)

        return [test for tests in sorted(by_file.values(), key=mean_cpu_s) for test in tests]

    @classmethod
    def read(cls, path: Path) -> Reach:
        """Read what the program of this module has written."""
        found = json.loads(path.read_text(encoding="utf-8"))
        names = list(found["cpu_s"])
        return cls(
            found["cpu_s"],
            {
                (row["file"], row["function"]): [names[number] for number in row["tests"]]
                for row in found["functions"]
            },
        )


class RecordingPlugin:
    """Gives each test a context of its own, and measures its CPU seconds."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.cpu_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record a test."""
        began_s = time.process_time()
        self._measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._measured.switch_context("")
            self.cpu_s[item.nodeid] = round(time.process_time() - began_s, 3)


def reached(
    functions: Mapping[str, Iterable[str]],
    cpu_s: Mapping[str, float],
    sharing: Sequence[str],
) -> dict[str, list[int]]:
    """Return the numbers of the tests that concern each function.

    `functions` has the contexts of each, `sharing` the files whose tests share something.
    """
    numbers = {test: number for number, test in enumerate(cpu_s)}
    by_file: dict[str, list[int]] = {}
    for test, number in numbers.items():
        by_file.setdefault(test.partition("::")[0], []).append(number)
    found: dict[str, list[int]] = {}
    for function, contexts in functions.items():
        if "" in contexts:
            found[function] = list(numbers.values())
            continue
        concerned = {numbers[context] for context in contexts}
        for file in sharing:
            if not concerned.isdisjoint(by_file.get(file, [])):
                concerned.update(by_file[file])
        found[function] = sorted(concerned)
    return found


def entered(measured: coverage.CoverageData, source: Path) -> dict[str, set[str]]:
    """Return the contexts in which each function of the packages was entered.

    The key of a function is its file below `source` and its name, with `::` between.
    """
    found: dict[str, set[str]] = {}
    for name in measured.measured_files():
        path = Path(name).resolve()
        by_line = measured.contexts_by_lineno(name)
        for lines in functions_of(path.read_text(encoding="utf-8")):
            contexts = {
                context
                for line, contexts in by_line.items()
                if lines.first <= line <= lines.last
                for context in contexts
            }
            if contexts:
                key = f"{path.relative_to(source).as_posix()}::{lines.function}"
                found.setdefault(key, set()).update(contexts)
    return found


def record(paths: Sequence[str]) -> dict[str, Any]:
    """Run the tests below these paths, and return what is to be written."""
    check_place()
    settle_hypothesis()
    source = Path.cwd() / "src"
    measured = coverage.Coverage(
        data_file=None,
        config_file=False,
        source=[str(source / "tidelog" / package) for package in PACKAGES],
    )
    plugin = RecordingPlugin(measured)
    measured.start()
    code = pytest.main(["-p", "no:warnings", *paths], [plugin])
    measured.stop()
    if code != pytest.ExitCode.OK:
        sys.exit(f"the tests fail without any mutant: {code}")
    texts = {
        test.partition("::")[0]: Path(test.partition("::")[0]).read_text() for test in plugin.cpu_s
    }
    sharing = [file for file, text in texts.items() if _SHARES.search(text)]
    rows = reached(entered(measured.get_data(), source), plugin.cpu_s, sharing)
    return {
        "cpu_s": plugin.cpu_s,
        "functions": [
            dict(zip(("file", "function"), key.split("::"), strict=True), tests=tests)
            for key, tests in sorted(rows.items())
        ],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(sys.argv[2:])), encoding="utf-8")
