"""Modules that a reused worker leaves out of its collections after tasks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from tidelog.spark import frozen_modules
from tidelog.spark.frozen_modules import freeze_modules


@pytest.fixture(autouse=True)
def _unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(frozen_modules, "_frozen", [])
    yield
    gc.unfreeze()


@pytest.fixture
def reused_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    set_main(monkeypatch, ModuleSpec("pyspark.daemon", None))


def set_main(monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)


@pytest.mark.usefixtures("reused_worker")
def test_tasks_freeze_after_imports_and_other_tasks_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    kept: list[list[object]] = []
    for imported in ((), ("imported_by_the_first_task",), (), ()):
        for name in imported:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        kept += [[] for _ in range(1000)]
        for _ in ("the source", "its reader"):  # Spark sends both with each task
            freeze_modules()
        counts.append(gc.get_freeze_count())
    assert counts[0] > len(gc.get_objects()), "all that was imported"
    assert counts[1] >= counts[0] + 1000, "what the first task imported"
    assert counts[1] == counts[2] == counts[3], "cycles of later tasks are collected"


@pytest.mark.parametrize("spec", [None, ModuleSpec("pyspark.worker", None)])
def test_other_programs_freeze_nothing(
    spec: ModuleSpec | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gc.get_freeze_count()
    set_main(monkeypatch, spec)
    freeze_modules()
    assert gc.get_freeze_count() == before
