"""docs/reference/outcomes.md has every word for a cause, a state or an outcome, with its test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest
from tests.tidy.sources import ROOT

from tidelog.broker.replicas.hosting import takeovers
from tidelog.client.move_progress import MoveState
from tidelog.controller.cluster_events import KINDS
from tidelog.core.leader_wait import MemberStatus
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.local.doctor.partition_findings import _DURABILITY

PAGE = ROOT / "docs" / "reference" / "outcomes.md"
SOURCES = ROOT / "src" / "tidelog"
_ROW = re.compile(r"^\| `([^`]+)` \| (.+) \| `([^`]+)` \|$", re.MULTILINE)
_WORD = re.compile(r"[a-z]+([_-][a-z]+)*")


def functions(path: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((SOURCES / path).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def returned(path: str, *names: str) -> set[str]:
    """The words that functions return."""
    return {
        word
        for name in names
        for node in ast.walk(functions(path)[name])
        if isinstance(node, ast.Return) and node.value is not None
        for word in words_in(node.value)
    }


def assigned(path: str, function: str, variable: str) -> set[str]:
    """The words that a function assigns to a variable."""
    return {
        word
        for node in ast.walk(functions(path)[function])
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable
        for word in words_in(node.value)
    }


def words_in(node: ast.AST) -> set[str]:
    """The constants of an expression that are words and no sentences."""
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and _WORD.fullmatch(each.value) is not None
    }


def kinds_of_findings() -> set[str]:
    """Second arguments of findings, and those that depend on the state of a broker."""
    tree = ast.parse((SOURCES / "local/health.py").read_text(encoding="utf-8"))
    found = {"broker_paused", "broker_stopped", "broker_down"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = {"Finding": 1, "_of_partitions": 2}.get(node.func.id)
            if place is not None and isinstance(node.args[place], ast.Constant):
                found |= words_in(node.args[place])
    return found


def kinds_of_diagnoses() -> set[str]:
    """First arguments of findings of doctor, and the keys of a table of sentences."""
    found = set(_DURABILITY)
    for path in (SOURCES / "local" / "doctor").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="notice" | "degraded" | "unavailable" | "unread" | "report")
                ):
                    found |= words_in(node.args[0])
    return found


IN_CODE: dict[str, set[str]] = {
    "Why a replica is out of the ISR": {each.word for each in ShrinkCause},
    "Why the leader changed": returned("controller/cluster_events.py", "_cause_of_leader"),
    "Why the ISR changed": returned("controller/cluster_events.py", "_cause_of_isr"),
    "How a failover began": {"death", "shutdown"},
    "How the watch of a takeover ended": {
        takeovers.ALL_SEEN,
        takeovers.LEADERSHIP_OVER,
        takeovers.TIME_OVER,
    },
    "Members of a partition without a leader": {each.word for each in MemberStatus},
    "Steps of a move": {each.value for each in MoveState},
    "Where a move is": returned("cli/reassign.py", "_state", "_in_directories"),
    "Results of requests to move": {
        *assigned("cli/reassign.py", "execute", "word"),
        *assigned("cli/reassign.py", "_cancelled", "word"),
        *assigned("cli/move_queue.py", "queue", "word"),
        *assigned("cli/move_execution.py", "_row", "word"),
        *assigned("cli/throttles.py", "remove_throttles", "word"),
    },
    "States of a log directory": {
        *returned("cli/log_dirs.py", "_state"),
        *assigned("cli/log_dirs.py", "_state", "states"),
    },
    "Findings of health": kinds_of_findings(),
    "Findings of doctor": kinds_of_diagnoses(),
    "States of a broker": {"running", "paused", "stopped", "up", "down"},
    "Kinds of events": set(KINDS),
}


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """The rows of each table of the page: word, meaning, test."""
    text = PAGE.read_text(encoding="utf-8")
    parts = text.split("\n## ")[1:]
    return {part.partition("\n")[0]: _ROW.findall(part) for part in parts}


@pytest.mark.parametrize("title", IN_CODE)
def test_a_table_has_every_word_of_the_code_and_no_other(title: str) -> None:
    rows = sections()[title]
    words = [word for word, _, _ in rows]
    assert len(words) == len(set(words))
    assert set(words) == IN_CODE[title]


def test_the_page_has_no_other_tables() -> None:
    assert sections().keys() == IN_CODE.keys()


@pytest.mark.parametrize("title", IN_CODE)
def test_every_word_has_a_test_that_is_about_it(title: str) -> None:
    for word, _, test in sections()[title]:
        path, *names = test.split("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert is_there(ast.parse(source).body, names), f"{word}: there is no {test}"
        spellings = (word, word.upper(), word.replace("-", "_"))
        assert any(each in source for each in spellings), f"{path} says nothing of {word}"


def is_there(body: Iterable[ast.stmt], names: list[str]) -> bool:
    first, *rest = names
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == first and rest:
            return is_there(node.body, rest)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == first:
            return not rest
    return False


def test_states_of_brokers_are_those_of_the_code() -> None:
    """They are assigned in two modules, by processes and by metadata alone."""
    text = "".join(
        (SOURCES / path).read_text(encoding="utf-8")
        for path in ("local/cluster.py", "local/status.py", "cli/brokers.py")
    )
    words = '"stopped" if process is None else "paused" if process.is_paused else "running"'
    assert text.count(f"state={words}") == 1
    assert text.count('state="down" if node is None else "up"') == 1
