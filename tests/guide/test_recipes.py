"""The recipes of docs/guide/testing-recipes.md, saved and run by pytest as readers do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.guide.documents import ROOT, Terminal, sections
from tests.support.clients.absent import Absent
from tests.support.clients.python_packages import packages

RECIPES = sections(ROOT / "docs" / "guide" / "testing-recipes.md")
#: Recipes whose packages are among the tests' own, and those whose packages pip fetches.
OWN = ("confluent-kafka", "kafka-python")
FRAMEWORKS = ("FastStream", "FastAPI", "Django")


def test_every_recipe_is_run() -> None:
    assert sorted(RECIPES) == sorted([*OWN, "Spark", *FRAMEWORKS])
    assert all(section.files for section in RECIPES.values())


def run(directory: Path, name: str, *packages: Path) -> None:
    terminal = Terminal(directory)
    paths = [str(path) for path in (directory, *packages)]
    terminal.environment["PYTHONPATH"] = os.pathsep.join(paths)
    terminal.save(RECIPES[name].files)
    assert " passed" in terminal.run("python -m pytest -q -p no:cacheprovider")


@pytest.mark.parametrize("name", OWN)
def test_a_recipe_passes(tmp_path: Path, name: str) -> None:
    run(tmp_path, name)


@pytest.mark.soak
def test_the_recipe_for_spark_passes(tmp_path: Path) -> None:
    run(tmp_path, "Spark")


@pytest.mark.soak
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_recipe_for_a_framework_passes(tmp_path: Path, name: str) -> None:
    try:
        found = packages("recipes")
    except Absent as absent:
        pytest.skip(f"{name}: {absent}")
    run(tmp_path, name, found)
