"""Line mutants: one changed line each, in a copy of the sources, which the tests of a rule kill.

`tests/rules/mutants.toml` has one or more for each rule. An assertion of a test in tests/rules with
`--rule ID` must then fail. `python -m tests.support.mutants --by rules` tries them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.mutants.failures import Failure, read_failures
from tests.support.rules import rules_in_tests

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "tests" / "rules" / "mutants.toml"
#: All that the tests of the rules need.
COPIED = ("pyproject.toml", "src", "tests", "docs")
#: Tests that have not ended by then never will.
LIMIT_S = 180
#: Exit codes of pytest. With `INTERRUPTED` it stops at the first test that an assertion failed.
PASSED, FAILED, INTERRUPTED = 0, 1, 2


class LineMutantError(Exception):
    """A line mutant that proves nothing: it cannot be applied, or no assertion of a test failed."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """A run of the tests of some rules."""

    #: None: they did not end within their limit.
    code: int | None
    failures: list[Failure]
    printed: str


@dataclass(frozen=True, slots=True)
class LineMutant:
    """One changed line of src/, without which a rule does not hold."""

    rule: str
    file: str
    old: str
    new: str
    #: Why no test can notice; empty where one must.
    survives: str = ""

    def __str__(self) -> str:
        return f"{self.rule} {self.file}: {self.new}"

    def applied(self, text: str) -> str:
        """The file's text with the rule broken; LineMutantError."""
        if (count := text.count(self.old)) != 1:
            raise LineMutantError(
                f"{self.rule}: src/{self.file} has {self.old!r} {count} times, not once: name the"
                f" line that holds the rule now in {TABLE.name}"
            )
        return text.replace(self.old, self.new)


def read_table(path: Path = TABLE) -> list[LineMutant]:
    """All line mutants, in the order of the table."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [LineMutant(**entry) for entry in entries]


class SourceCopy:
    """A copy of the sources in which lines are changed; its context removes it."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="tidelog-mutants-")
        self._root = Path(self._scratch.name).resolve()
        ignored = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self._root / name, ignore=ignored)
            else:
                shutil.copy2(ROOT / name, self._root / name)
        self._applied = 0

    def __enter__(self) -> SourceCopy:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def check_healthy(self, rules: Sequence[str]) -> None:
        """LineMutantError unless the tests of these rules pass without a mutant."""
        run = self._run_tests(rules, keeps_bytecode=True)
        if run.code != PASSED:
            raise LineMutantError(f"the tests fail without any mutant:\n{run.printed}")

    def is_killed(self, one: LineMutant) -> bool:
        """Whether an assertion of a test of the rule fails with the line; LineMutantError."""
        path = self._root / "src" / one.file
        whole, stat = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(one.applied(whole), encoding="utf-8")
        # Bytecode is told from its source by size and second: neither needs to differ by itself.
        self._applied += 1
        os.utime(path, (stat.st_atime, stat.st_mtime + 1_000 + self._applied))
        try:
            run = self._run_tests([one.rule], keeps_bytecode=False)
        finally:
            path.write_text(whole, encoding="utf-8")
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        if run.code != PASSED and not any(each.by_assertion for each in run.failures):
            raise LineMutantError(f"{one}: {_other_errors(run)}")
        return run.code != PASSED

    def _run_tests(self, rules: Sequence[str], keeps_bytecode: bool) -> TestRun:
        options = [word for rule in rules for word in ("--rule", rule)]
        environment = {**os.environ, "PYTHONPATH": f"{self._root / 'src'}:{self._root}"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not keeps_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        failures = self._root / "failures.jsonl"
        failures.unlink(missing_ok=True)
        options += ["-p", "tests.support.mutants.failures", "--failures", str(failures)]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "--tb=short", *files_of(rules), *options],
            cwd=self._root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        code: int | None = None
        try:
            printed, _ = process.communicate(timeout=LIMIT_S)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
        return TestRun(code, read_failures(failures), printed)


def files_of(rules: Sequence[str]) -> list[str]:
    """Return the test files that name any of the rules; to collect all of them takes seconds."""
    tests = [test for rule in rules for test in rules_in_tests().get(rule, [])]
    return [f"tests/rules/{name}" for name in sorted({test.partition("::")[0] for test in tests})]


def _other_errors(run: TestRun) -> str:
    """Say why a run in which no assertion failed does not count."""
    if run.failures:
        return "; ".join(["no assertion of a test failed", *map(str, run.failures)])
    if run.code is None:
        return f"the tests do not end within {LIMIT_S} s"
    return f"the tests do not run (exit code {run.code})\n{run.printed}"


def try_all(rules: Sequence[str]) -> int:
    """Try the line mutants of these rules, of all if none is named; print each verdict.

    Return 1 if one survives without a reason in the table, cannot be applied, is noticed by other
    errors alone, or is killed although the table says that it survives; 2 for an unknown rule.
    """
    mutants = [one for one in read_table() if not rules or one.rule in rules]
    if unknown := [rule for rule in rules if all(one.rule != rule for one in mutants)]:
        print(f"no mutant of {', '.join(unknown)} in {TABLE.name}")
        return 2
    started = time.monotonic()
    wrong: list[str] = []
    killed = 0
    with SourceCopy() as sources:
        sources.check_healthy(list(dict.fromkeys(one.rule for one in mutants)))
        for one in mutants:
            try:
                verdict = "killed" if sources.is_killed(one) else "survived"
            except LineMutantError as error:
                verdict = "proves nothing"
                wrong.append(str(error))
            else:
                killed += verdict == "killed"
                if (verdict == "survived") != bool(one.survives):
                    wrong.append(f"{one}: {verdict}")
            print(f"{verdict:<15}{one}", flush=True)
    for line in wrong:
        print(f"WRONG {line}")
    seconds = time.monotonic() - started
    print(f"{len(mutants)} line mutants, {killed} killed, {len(wrong)} wrong, {seconds:.0f} s")
    return 1 if wrong else 0
