"""`python -m tests.mutation.by_tests REQUEST`: tests of pytest, run in a copy of the checkout.

The request is a file of JSON: the report to write, and the tests to run in this order. They end at
the first assertion that fails, or after some that failed otherwise, as a broken line makes all of
them fail. A test that computes or waits for too long ends the process; the file beside the report
names it.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
from tests.support.mutants.trials import RuleRun

import tidelog

#: After so many failures by errors of the code, no more tests are tried.
MOST_CRASHES: Final = 10
#: CPU seconds, and seconds, of a single test; the longest takes six CPU seconds.
TEST_CPU_S: Final = 30
TEST_S: Final = 300


class ChosenTests(RuleRun):
    """A run of chosen tests, in the chosen order."""

    def __init__(self, tests: Sequence[str], current: Path) -> None:
        super().__init__()
        self._places = {test: place for place, test in enumerate(tests)}
        self._current = current
        self.ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the chosen tests, in their order; keep all where none are chosen."""
        if self._places:
            left = [item for item in items if item.nodeid not in self._places]
            config.hook.pytest_deselected(items=left)
            items[:] = sorted(
                (item for item in items if item.nodeid in self._places),
                key=lambda item: self._places[item.nodeid],
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the CPU seconds of a test, and leave its name for the case that it has none."""
        self._current.write_text(item.nodeid, encoding="utf-8")
        self.ran += 1
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S)
        signal.setitimer(signal.ITIMER_REAL, TEST_S)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if len(self.failures) >= MOST_CRASHES:
                item.session.shouldstop = "too many crashes"


def settle_hypothesis() -> None:
    """Have failing examples reported as they are found: making them small takes minutes."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation", hypothesis.settings(phases=phases, database=None)
    )
    hypothesis.settings.load_profile("mutation")


def check_place() -> None:
    """Exit unless this process runs the code of the copy in which it is."""
    source = Path(tidelog.__file__).resolve()
    if not source.is_relative_to(Path.cwd()):
        sys.exit(f"the code of {source} is not that of {Path.cwd()}")


def files_of(tests: Sequence[str]) -> list[str]:
    """Return the files of tests, each once."""
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


def main(request: dict[str, Any]) -> None:
    """Run the tests of a request, and write the report."""
    check_place()
    settle_hypothesis()
    report = Path(request["report"])
    run = ChosenTests(request["tests"], report.with_suffix(".current"))
    code = int(pytest.main(["--tb=short", *files_of(request["tests"])], [run]))
    failures = [asdict(failure) for failure in run.failures]
    report.write_text(json.dumps({"code": code, "ran": run.ran, "failures": failures}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
