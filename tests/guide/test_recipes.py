"""The recipes of docs/guide/testing-recipes.md, saved and run by pytest as readers do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.guide.documents import ROOT, Terminal, sections
from tests.support.clients.absent import Absent
from tests.support.clients.python_packages import packages

RECIPES = sections(ROOT / "docs" / "guide" / "testing-recipes.md")
#: Recipes whose packages are among the tests' own; the others are left to `make soak`.
OWN = ("confluent-kafka", "kafka-python")
NAMES = (*OWN, "FastStream", "Spark", "FastAPI", "Django")


def test_every_recipe_is_run() -> None:
    assert tuple(RECIPES) == NAMES
    assert all(section.files for section in RECIPES.values())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OWN else pytest.mark.soak) for name in NAMES],
)
def test_a_recipe_passes(tmp_path: Path, name: str) -> None:
    terminal = Terminal(tmp_path)
    if name not in (*OWN, "Spark"):
        try:
            found = packages("recipes")
        except Absent as absent:
            pytest.skip(f"{name}: {absent}")
        terminal.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(found)])
    terminal.save(RECIPES[name].files)
    printed = terminal.run("python -m pytest -q -p no:cacheprovider")
    assert " passed" in printed
