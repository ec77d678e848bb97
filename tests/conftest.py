"""For all tests: rule ids in markers must exist, and `--rule V17` runs what holds one rule."""

from __future__ import annotations

import gc

import pytest
from tests.support import draws
from tests.support.rules import rule_ids

draws.load_profile()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rule", action="append", default=[], help="run only tests of this rule")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = rule_ids()
    wanted = config.getoption("--rule")
    unknown = [rule for rule in wanted if rule not in known]
    if unknown:
        raise pytest.UsageError(f"no such rule: {', '.join(unknown)}")
    kept = []
    for item in items:
        named = [word for marker in item.iter_markers("rule") for word in marker.args]
        for rule in named:
            if rule not in known:
                raise pytest.UsageError(f"{item.nodeid} names rule {rule!r}, which does not exist")
        if not wanted or any(rule in wanted for rule in named):
            kept.append(item)
    if wanted:
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_collection_finish() -> None:
    """What is loaded stays: simulated worlds collect garbage often, and need not look at it."""
    gc.collect()
    gc.freeze()
