"""For all tests: rule ids in markers must exist, and `--rule V17` runs what holds one rule.

Tests with the mark `soak` are left to `make soak`: `--soak` runs them, and no others.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest
from tests import forks
from tests.support import class_archives, draws
from tests.support.rules import rule_ids

from tidelog.local.starting import FORK_SERVER

draws.load_profile()
forks.install()
class_archives.install()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rule", action="append", default=[], help="run only tests of this rule")
    parser.addoption("--soak", action="store_true", help="run only what is left to `make soak`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = rule_ids()
    wanted = config.getoption("--rule")
    soaks = config.getoption("--soak")
    unknown = [rule for rule in wanted if rule not in known]
    if unknown:
        raise pytest.UsageError(f"no such rule: {', '.join(unknown)}")
    kept = []
    for item in items:
        named = [word for marker in item.iter_markers("rule") for word in marker.args]
        for rule in named:
            if rule not in known:
                raise pytest.UsageError(f"{item.nodeid} names rule {rule!r}, which does not exist")
        is_chosen = not wanted or any(rule in wanted for rule in named)
        if is_chosen and soaks == (item.get_closest_marker("soak") is not None):
            kept.append(item)
    if len(kept) < len(items):
        left = frozenset(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = kept


@pytest.fixture(autouse=True, scope="session")
def cpu_time(record_testsuite_property: Callable[[str, object], None]) -> Iterator[None]:
    """CPU seconds of this process and of those that it waited for, in the JUnit file.

    What forked processes took counts when their servers have ended.
    """
    yield
    for server in (forks.SERVER, FORK_SERVER):
        server.close()
    record_testsuite_property("cpu_s", round(sum(os.times()[:4]), 1))


def pytest_collection_finish() -> None:
    """What is loaded stays: simulated worlds collect garbage often, and need not look at it."""
    gc.collect()
    gc.freeze()
