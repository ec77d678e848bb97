"""What mypy is told to pass over names its error and says why."""

from __future__ import annotations

import re
import tomllib

from tests.tidy.sources import ROOT, python_sources

IGNORED = re.compile(r"# type: ignore")
WITH_REASON = re.compile(r"# type: ignore\[[a-z, -]+\]  # \w.*\w")


def test_an_ignored_error_in_tests_has_a_code_and_a_reason() -> None:
    found = [
        (f"{source.path}:{number}", line)
        for source in python_sources(below="tests/")
        for number, line in enumerate(source.text.splitlines(), 1)
        if IGNORED.search(line) and source.path != "tests/tidy/test_types.py"
    ]
    assert len(found) > 50, "this test looks at nothing"
    assert [place for place, line in found if not WITH_REASON.search(line)] == []


def test_mypy_looks_at_the_package_and_at_the_tests() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"] is True
    assert settings["files"] == ["src", "tests", "examples"]
