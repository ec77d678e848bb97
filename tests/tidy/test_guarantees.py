"""docs/guarantees.md: each promise names a test, and each named test exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
_NAME = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


@cache
def functions_of(path: str) -> tuple[str, ...]:
    """The test functions of a file; none where there is no such file."""
    if not (ROOT / path).is_file():
        return ()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return tuple(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def promises() -> list[str]:
    """The items of the page that make a promise: they begin in bold."""
    text = PAGE.read_text(encoding="utf-8")
    return [
        item for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:] if item.startswith("**")
    ]


NAMED = sorted(set(_NAME.findall(PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in functions_of(path)


def test_each_promise_is_one_sentence_with_a_test_behind_it() -> None:
    assert len(promises()) >= 18, "this test looks at nothing"
    for promise in promises():
        sentence, bold, rest = promise[2:].partition("**")
        assert bold and sentence.endswith("."), promise
        assert ". " not in sentence.replace("\n", " "), f"more than one sentence: {sentence}"
        assert _NAME.search(rest), f"no test: {sentence}"


def test_a_test_that_does_not_exist_is_noticed() -> None:
    assert functions_of("tests/nowhere.py") == ()
    assert "test_of_nothing" not in functions_of("tests/tidy/test_guarantees.py")
