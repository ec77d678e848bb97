"""Which changes of a function are found: each kind, and what is left alone."""

from __future__ import annotations

import ast

import pytest
from tests.mutation.changes import (
    COMPARISON,
    CONSTANT,
    DROPPED_CONDITION,
    DROPPED_EFFECT,
    EARLY_RETURN,
    KINDS,
    LOOP,
    NEGATED,
    OPERATOR,
    REMOVED_NOT,
    SWAPPED,
    changes,
    functions_of,
)
from tests.mutation.drawing import candidates, draw, mutants_of
from tests.support.mutants.lines import ROOT


def changed(body: str, kind: str, head: str = "def f(a, b):") -> list[str]:
    """The bodies of a function, each with one change of this kind."""
    text = f"{head}\n    {body}\n"
    mutants = [each for each in mutants_of("x/y.py", text) if each.change.kind == kind]
    bodies = [each.applied(text).removeprefix(f"{head}\n    ")[:-1] for each in mutants]
    assert [ast.parse(each.applied(text)) is not None for each in mutants] == [True] * len(bodies)
    return bodies


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (OPERATOR, "return a - b", ["return a + b"]),
        (OPERATOR, "a += b", ["a -= b"]),
        (OPERATOR, "return a and b or c", ["return ((a and b) and c)", "return (a or b) or c"]),
        (OPERATOR, "return min(a, b)", ["return max(a, b)"]),
        (OPERATOR, "return any(a)", ["return all(a)"]),
        (COMPARISON, "return a < b", ["return a <= b"]),
        (COMPARISON, "return (a)>=(b)", ["return (a)>(b)"]),
        (COMPARISON, "return a <= b < c", ["return a < b < c", "return a <= b <= c"]),
        (COMPARISON, "return a is  not b", ["return a is b"]),
        (COMPARISON, "return a in b", ["return a not in b"]),
        (CONSTANT, "return a[7]", ["return a[6]", "return a[8]"]),
        (CONSTANT, "return -1", ["return -2", "return 0"]),
        (CONSTANT, "return True", ["return False"]),
        (DROPPED_CONDITION, "return a and b", ["return (a)", "return (b)"]),
        (DROPPED_CONDITION, "a(a if b else b)", ["a(a if False else b)", "a(a if True else b)"]),
        (DROPPED_CONDITION, "return [x for x in a if x]", ["return [x for x in a if True]"]),
        (NEGATED, "return a if a < b else b", ["return a if not (a < b) else b"]),
        (REMOVED_NOT, "return not (a or b)", ["return (a or b)"]),
        (DROPPED_EFFECT, "a.append(b)", ["pass"]),
        (DROPPED_EFFECT, "await a.sync()", ["pass"]),
        (DROPPED_EFFECT, "a.end = b", ["pass"]),
        (DROPPED_EFFECT, "del a[b]", ["pass"]),
        (DROPPED_EFFECT, "raise ValueError(a)", ["pass"]),
        (SWAPPED, "return f(a, b, c)", ["return f(a, c, b)", "return f(b, a, c)"]),
        (EARLY_RETURN, "x = a\n    b = x", ["x = a\n    return\n    b = x"]),
        (EARLY_RETURN, "a()\n    b()", []),
    ],
)  # fmt: skip
def test_each_kind_of_change(kind: str, body: str, expected: list[str]) -> None:
    is_async = body.startswith("await")
    returns = " -> None" if kind == EARLY_RETURN else ""
    head = f"{'async ' if is_async else ''}def f(a, b){returns}:"
    assert sorted(changed(body, kind, head)) == expected


def test_a_decision_returns_early() -> None:
    body = changed("return a == b", EARLY_RETURN, "def f(a, b) -> bool:")
    assert sorted(body) == ["return False", "return True"]


def test_break_and_continue() -> None:
    assert changed("for a in b:\n        break", LOOP) == ["for a in b:\n        continue"]


@pytest.mark.parametrize(
    "body",
    [
        "assert a < b, 'why'",
        "log.info('text %d', 7)",
        "tracer.mark('state')",
        "x = f'{a + 1}'",
        "'''A docstring of 7 words, and not a step.'''",
    ],
)
def test_checks_texts_and_marks_are_left_alone(body: str) -> None:
    assert changes(f"def f(a: int = 7):\n    {body}\n") == []


def test_code_of_modules_and_classes_is_left_alone() -> None:
    assert changes("LIMIT = 7\n\n\nclass A:\n    limit = LIMIT + 1\n") == []


def test_attributes_are_set_by_init_whatever_else_changes() -> None:
    text = "class A:\n    def __init__(self) -> None:\n        self.a = a\n        self.b = b\n"
    assert changes(text) == []


def test_a_change_names_its_function_and_line() -> None:
    text = "class A:\n    def f(self):\n        def g():\n            return 7\n        return g\n"
    assert {(each.function, each.line) for each in changes(text)} == {("A.f.g", 4)}
    assert [(each.function, each.first, each.last) for each in functions_of(text)] == [
        ("A.f", 3, 5),
        ("A.f.g", 4, 4),
    ]


def test_bytes_before_a_change_may_be_any() -> None:
    text = "def f(a):\n    x = 'ü€'; return a < x\n"
    [mutant] = [each for each in mutants_of("x/y.py", text) if each.change.kind == COMPARISON]
    assert mutant.applied(text) == "def f(a):\n    x = 'ü€'; return a <= x\n"
    assert "-    x = 'ü€'; return a < x" in mutant.diff(text)


def test_mutants_of_the_packages_are_code_and_of_all_kinds() -> None:
    found = candidates()
    assert len(found) > 10_000
    assert {mutant.change.kind for mutant in found} == set(KINDS)
    for mutant in draw(found, "code", 100):
        text = (ROOT / "src" / mutant.file).read_text(encoding="utf-8")
        compile(mutant.applied(text), mutant.file, "exec")
