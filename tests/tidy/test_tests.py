"""No test that cannot fail, hides what it did not do, or measures the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from tests.tidy.sources import Source, functions, python_sources

Function = ast.FunctionDef | ast.AsyncFunctionDef
CLOCKS = ("time.monotonic()", "time.perf_counter()", "time.time()", "time.monotonic_ns()")
#: Marks of tests that are not run, or not believed.
MARKS = ("skip", "skipif", "xfail")
#: Calls that fail a test by themselves.
FAILING = ("raises", "fail", "warns")


def every_test() -> Iterator[tuple[Source, Function]]:
    for source in python_sources(below="tests/"):
        if source.path.rpartition("/")[2].startswith("test_"):
            for function in functions(source):
                if function.name.startswith("test"):
                    yield source, function


def calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (one for one in nodes if isinstance(one, ast.Call))


def dotted(node: ast.AST) -> str:
    """The name that an expression is, `a.b.c`; what is no name has none between its dots."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


@cache
def names_called(node: ast.AST) -> frozenset[str]:
    return frozenset(dotted(one.func).rpartition(".")[2] for one in calls(ast.walk(node)))


def can_fail(function: Function) -> bool:
    asserts = any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function))
    return asserts or not names_called(function).isdisjoint(FAILING)


@cache
def asserting_names() -> frozenset[str]:
    """Names of functions in tests/ that assert something, or call one that does."""
    calls_of: dict[str, set[str]] = {}
    found: set[str] = set()
    for source in python_sources(below="tests/"):
        for function in functions(source):
            calls_of.setdefault(function.name, set()).update(names_called(function))
            if can_fail(function):
                found.add(function.name)
    while new := {name for name in calls_of.keys() - found if calls_of[name] & found}:
        found |= new
    return frozenset(found)


def test_every_test_asserts_something() -> None:
    without = [
        f"{source.path}:{test.lineno} {test.name}"
        for source, test in every_test()
        if not can_fail(test) and names_called(test).isdisjoint(asserting_names())
    ]
    assert without == []


def test_no_test_turns_back_without_a_word() -> None:
    """`if ...: return` is a skip that nobody counts: skip with a reason, or draw what fits."""
    silent = [
        f"{source.path}:{statement.lineno} {test.name}"
        for source, test in every_test()
        for statement in test.body
        if isinstance(statement, ast.If)
        and any(isinstance(one, ast.Return) for one in statement.body)
    ]
    assert silent == []


def test_every_skip_has_a_reason() -> None:
    without = []
    for source in python_sources(below="tests/"):
        for call in calls(source.nodes):
            name = dotted(call.func)
            if name == "pytest.skip":
                said = bool(call.args)
            elif name in ("pytest.importorskip", *(f"pytest.mark.{kind}" for kind in MARKS)):
                said = any(word.arg == "reason" for word in call.keywords)
            else:
                continue
            if not said:
                without.append(f"{source.path}:{call.lineno} {name}")
    assert without == []


def test_a_sleep_polls_or_says_why() -> None:
    """Outside of a loop that asks again, what a sleep is for stands on its line."""
    bare = []
    for source in python_sources(below="tests/"):
        polling = {
            inner
            for outer in source.nodes
            if isinstance(outer, ast.While)
            for inner in ast.walk(outer)
        }
        lines = source.text.splitlines()
        for call in calls(source.nodes):
            waits = dotted(call.func) == "time.sleep" and call not in polling
            if waits and "# " not in lines[call.lineno - 1]:
                bare.append(f"{source.path}:{call.lineno}")
    assert bare == []


def test_no_assertion_measures_the_machine() -> None:
    """How long something took is the machine's affair; a deadline to give up at is not measured."""
    measured = [
        f"{source.path}:{node.lineno}"
        for source in python_sources(below="tests/")
        for node in source.nodes
        if isinstance(node, ast.Assert)
        for part in ast.walk(node.test)
        if isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Sub)
        and ast.unparse(part.left) in CLOCKS
    ]
    assert measured == []
