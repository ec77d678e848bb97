"""The marks in the code and the list of interesting states are the same, each used once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tidelog.core.sometimes import SOMETIMES

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "tidelog"
#: These carry marks on, under whatever name.
CARRIERS = ("core/ports.py", "runtime/logging.py", "sim/node.py", "sim/trace.py")


def marks(source: str) -> Iterator[str]:
    """What a module marks; a name that is not written out is an empty one."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "mark"
        ):
            argument = node.args[0]
            yield str(argument.value) if isinstance(argument, ast.Constant) else ""


@cache
def marks_of_the_brokers() -> list[str]:
    return [
        name
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).as_posix() not in CARRIERS
        for name in marks(path.read_text(encoding="utf-8"))
    ]


def test_every_mark_is_listed_and_stands_in_one_place() -> None:
    assert [name for name, count in Counter(marks_of_the_brokers()).items() if count > 1] == []
    assert sorted(marks_of_the_brokers()) == sorted(SOMETIMES)


def test_there_are_enough_and_each_is_documented_by_one_line() -> None:
    assert len(SOMETIMES) >= 40
    for name, meaning in SOMETIMES.items():
        assert meaning and "\n" not in meaning, name
    assert len(dict.fromkeys(SOMETIMES.values())) == len(SOMETIMES)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('broker.tracer.mark("one")', ["one"]),
        ("self._tracer.mark(name)", [""]),
        ('marked("one")', []),
    ],
)
def test_a_mark_is_seen(source: str, found: list[str]) -> None:
    assert list(marks(source)) == found
