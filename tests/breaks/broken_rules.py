"""Breaks rules of the brokers one at a time and looks whether the tests of the rule notice.

`make breaks` runs all of tests/rules/breaks.toml (RULES="V12 A4" those of some rules). Each break
is one changed line in a copy of the sources; an assertion of a test in tests/rules with `--rule ID`
must then fail. The exit code is 1 if any break survives without a reason in the table, cannot be
applied, is noticed by other errors alone, or is caught although the table says that it survives.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.breaks.failures import Failure, read_failures
from tests.support.rules import rules_in_tests

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "tests" / "rules" / "breaks.toml"
#: All that the tests of the rules need.
COPIED = ("pyproject.toml", "src", "tests", "docs")
#: Tests that have not ended by then never will.
LIMIT_S = 180
#: Exit codes of pytest. With `INTERRUPTED` it stops at the first test that an assertion failed.
PASSED, FAILED, INTERRUPTED = 0, 1, 2


class BreakError(Exception):
    """A break that proves nothing: it cannot be applied, or no assertion of a test failed."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """A run of the tests of some rules."""

    #: None: they did not end within their limit.
    code: int | None
    failures: list[Failure]
    printed: str


@dataclass(frozen=True, slots=True)
class Break:
    """One line of src/ that breaks a rule."""

    rule: str
    file: str
    old: str
    new: str
    #: Why no test can notice; empty where one must.
    survives: str = ""

    def __str__(self) -> str:
        return f"{self.rule} {self.file}: {self.new}"

    def applied(self, text: str) -> str:
        """The file's text with the rule broken; BreakError."""
        if (count := text.count(self.old)) != 1:
            raise BreakError(
                f"{self.rule}: src/{self.file} has {self.old!r} {count} times, not once: name the"
                f" line that holds the rule now in {TABLE.name}"
            )
        return text.replace(self.old, self.new)


def read_table(path: Path = TABLE) -> list[Break]:
    """All breaks, in the order of the table."""
    return [Break(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["break"]]


class SourceCopy:
    """A copy of the sources in which rules are broken; `close` removes it."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="tidelog-breaks-")
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
        """BreakError unless the tests of these rules pass while nothing is broken."""
        run = self._run_tests(rules, keeps_bytecode=True)
        if run.code != PASSED:
            raise BreakError(f"the tests fail although no rule is broken:\n{run.printed}")

    def is_caught(self, one: Break) -> bool:
        """Whether an assertion of a test of the rule fails with the rule broken; BreakError."""
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
            raise BreakError(f"{one}: {_other_errors(run)}")
        return run.code != PASSED

    def _run_tests(self, rules: Sequence[str], keeps_bytecode: bool) -> TestRun:
        options = [word for rule in rules for word in ("--rule", rule)]
        environment = {**os.environ, "PYTHONPATH": f"{self._root / 'src'}:{self._root}"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not keeps_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        failures = self._root / "failures.jsonl"
        failures.unlink(missing_ok=True)
        options += ["-p", "tests.breaks.failures", "--failures", str(failures)]
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


def main(rules: Sequence[str]) -> int:
    """Try the breaks of these rules, of all if none is named; print each verdict."""
    breaks = [one for one in read_table() if not rules or one.rule in rules]
    if unknown := [rule for rule in rules if all(one.rule != rule for one in breaks)]:
        print(f"no break of {', '.join(unknown)} in {TABLE.name}")
        return 2
    started = time.monotonic()
    wrong: list[str] = []
    caught = 0
    with SourceCopy() as sources:
        sources.check_healthy(list(dict.fromkeys(one.rule for one in breaks)))
        for one in breaks:
            try:
                verdict = "caught" if sources.is_caught(one) else "survived"
            except BreakError as error:
                verdict = "proves nothing"
                wrong.append(str(error))
            else:
                caught += verdict == "caught"
                if (verdict == "survived") != bool(one.survives):
                    wrong.append(f"{one}: {verdict}")
            print(f"{verdict:<15}{one}", flush=True)
    for line in wrong:
        print(f"WRONG {line}")
    seconds = time.monotonic() - started
    print(f"{len(breaks)} breaks, {caught} caught, {len(wrong)} wrong, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
