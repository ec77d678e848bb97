"""docs/guarantees.md names tests that exist."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_promise_names_a_test_that_exists() -> None:
    page = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    named = _NAMED.findall(page)
    assert len(named) >= 15
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists()
        or f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_each_promise_has_a_test() -> None:
    page = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "promise |" not in line]
    promises = [row for row in rows if row.count("|") == 4 and row.endswith(" |")]
    assert [row for row in promises if "::test_" not in row and "tests/" not in row] == []
