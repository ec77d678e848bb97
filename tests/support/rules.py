"""The rules as docs/internals/rules.md has them, and the parts of it that are generated.

    .venv/bin/python -m tests.support.rules

writes below each rule where it comes from, its status and the tests that name it. The texts of the
rules are written by hand in the document itself, which is the only list of the rules; generated
lines are those that begin with `>`.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "internals" / "rules.md"
TESTS = ROOT / "tests" / "rules"
#: Up to this many tests of a rule are named one by one; of more, the files and their counts.
FEW_TESTS = 3
MARKS = ("corrected", "open ground")

_HEADING = re.compile(r"^### ([A-Z]\d+): .+$", re.MULTILINE)
_SECTION = re.compile(r"^##+ ", re.MULTILINE)
_SOURCE = re.compile(r"^\| ([A-Z]) \| ([^|,]+)[^|]*\|", re.MULTILINE)
_GENERATED = re.compile(r"\n(?:>.*\n)+")


@cache
def rule_ids() -> list[str]:
    """Return the ids of all rules, in the order of the document."""
    return _HEADING.findall(DOCUMENT.read_text(encoding="utf-8"))


def rule_texts(document: str) -> dict[str, str]:
    """Return rule id -> its text, without heading and generated lines."""
    document = without_generated(document)
    found = {}
    for heading in _HEADING.finditer(document):
        after = _SECTION.search(document, heading.end())
        found[heading[1]] = document[heading.end() : after.start() if after else None].strip()
    return found


def without_generated(document: str) -> str:
    return _GENERATED.sub("", document)


def generate(document: str) -> str:
    """Return the document with its generated lines as the tests and pending.toml have them now."""
    plain = without_generated(document).rstrip() + "\n"
    sources = {prefix: source.strip() for prefix, source in _SOURCE.findall(plain)}
    texts = rule_texts(plain)
    pieces, done = [], 0
    for heading in _HEADING.finditer(plain):
        rule = heading[1]
        after = _SECTION.search(plain, heading.end())
        end = after.start() if after else len(plain)
        lines = textwrap.fill(
            f"{status(rule)} {origin(sources[rule[0]], texts[rule])} {tests_of(rule)}".strip(),
            width=100,
            initial_indent="> ",
            subsequent_indent="> ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        pieces += [plain[done:end].rstrip("\n"), "\n\n", lines, "\n", "\n" if after else ""]
        done = end
    return "".join([*pieces, plain[done:]])


def status(rule: str) -> str:
    if reason := pending("pending").get(rule):
        return f"**Pending**: {reason}."
    if missing := pending("partial").get(rule):
        return f"**Held in part**: {missing}."
    return "**Held.**"


def origin(source: str, text: str) -> str:
    """Return the published document, and how the rule differs from what Kafka has."""
    marks = [mark for mark in MARKS if f"**{mark}**" in " ".join(text.split())]
    return f"Source: {source} ({', '.join(marks)})." if marks else f"Source: {source}."


def tests_of(rule: str) -> str:
    tests = rules_in_tests().get(rule, [])
    if not tests:
        return ""
    if len(tests) <= FEW_TESTS:
        return f"Tests: {', '.join(f'`{test}`' for test in tests)}."
    counts = Counter(test.partition("::")[0] for test in tests)
    return f"Tests: {', '.join(f'`{name}` ({count})' for name, count in counts.items())}."


@cache
def pending(table: str) -> dict[str, str]:
    """Return rule id -> reason, of one of the two tables of pending.toml."""
    entries = tomllib.loads((TESTS / "pending.toml").read_text(encoding="utf-8"))
    assert sorted(entries) == ["partial", "pending"]
    found: dict[str, str] = entries[table]
    return found


@cache
def rules_in_tests() -> dict[str, list[str]]:
    """Return rule id -> the tests in tests/rules that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.glob("**/test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
        for function, decorators in decorated(tree, []):
            for rule in marked_rules(decorators):
                found.setdefault(rule, []).append(f"{path.name}::{function}")
    return found


def decorated(node: ast.AST, outer: list[ast.expr]) -> list[tuple[str, list[ast.expr]]]:
    """Return test functions with their decorators and those of the classes around them."""
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found += decorated(child, outer + child.decorator_list)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("test"):
                continue
            found.append((child.name, outer + child.decorator_list))
    return found


def marked_rules(decorators: list[ast.expr]) -> list[str]:
    """Return the ids in `@pytest.mark.rule("V17", ...)`; none of a test not believed."""
    found: list[str] = []
    for decorator in decorators:
        text = ast.unparse(decorator)
        if text.startswith(("pytest.mark.skip", "pytest.mark.xfail")) and "skipif" not in text:
            return []
        if isinstance(decorator, ast.Call) and text.startswith("pytest.mark.rule("):
            found += [str(word.value) for word in decorator.args if isinstance(word, ast.Constant)]
    return found


if __name__ == "__main__":
    DOCUMENT.write_text(generate(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
