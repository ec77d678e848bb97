"""Every replication rule is named by a test in this folder, or pending with the reason."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Rules that must be held, at least in part: they may not be pending.
REQUIRED = (
    "V1-V8 V10-V18 V20-V25 V30-V46 V50-V52 V60-V68 V70 V71 V80-V82"
    " A1-A9 A13 D3 E3 F1-F4 G1-G5 S1-S6"
)


def rule_ids() -> list[str]:
    lines = (HERE / "rules.txt").read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def pending(table: str) -> dict[str, str]:
    entries = tomllib.loads((HERE / "pending.toml").read_text(encoding="utf-8"))
    assert sorted(entries) == ["partial", "pending"]
    found: dict[str, str] = entries[table]
    return found


@cache
def rules_in_tests() -> dict[str, list[str]]:
    """Rule id -> the tests in this folder that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("**/test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
        for function, decorators in decorated(tree, []):
            for rule in marked_rules(decorators):
                found.setdefault(rule, []).append(f"{path.name}::{function}")
    return found


def decorated(node: ast.AST, outer: list[ast.expr]) -> list[tuple[str, list[ast.expr]]]:
    """Test functions with their decorators and those of the classes around them."""
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
    """The ids in `@pytest.mark.rule("V17", ...)`; none where the test is skipped or may fail."""
    found: list[str] = []
    for decorator in decorators:
        text = ast.unparse(decorator)
        if text.startswith(("pytest.mark.skip", "pytest.mark.xfail")) and "skipif" not in text:
            return []
        if isinstance(decorator, ast.Call) and text.startswith("pytest.mark.rule("):
            found += [word.value for word in decorator.args if isinstance(word, ast.Constant)]
    return found


def required_rules() -> list[str]:
    ids = rule_ids()
    found = []
    for word in REQUIRED.split():
        first, _, last = word.partition("-")
        found += ids[ids.index(first) : ids.index(last or first) + 1]
    return found


def test_rule_ids_are_unique() -> None:
    assert len(dict.fromkeys(rule_ids())) == len(rule_ids()) == 142


def test_every_rule_is_tested_or_pending() -> None:
    known = rules_in_tests()
    assert [
        rule for rule in rule_ids() if rule not in known and rule not in pending("pending")
    ] == []


def test_tests_and_lists_name_only_rules_that_exist() -> None:
    ids = rule_ids()
    named = [*rules_in_tests(), *pending("pending"), *pending("partial")]
    assert [rule for rule in named if rule not in ids] == []


def test_a_tested_rule_is_not_pending() -> None:
    """Move it to [partial] with what is missing, or take it off the list."""
    assert [rule for rule in rules_in_tests() if rule in pending("pending")] == []


def test_a_rule_that_is_held_in_part_is_tested() -> None:
    assert [rule for rule in pending("partial") if rule not in rules_in_tests()] == []


def test_no_rule_stands_in_both_lists() -> None:
    assert [rule for rule in pending("partial") if rule in pending("pending")] == []


def test_the_rules_of_the_bones_are_not_pending() -> None:
    assert [rule for rule in required_rules() if rule in pending("pending")] == []


def test_every_pending_rule_has_a_reason() -> None:
    for table in ("pending", "partial"):
        assert [rule for rule, reason in pending(table).items() if len(reason.split()) < 3] == []
