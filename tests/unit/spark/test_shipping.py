"""Objects and functions that Spark sends to executors, restored with and without packages."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from tidelog.spark.options import parse_options
from tidelog.spark.shipping import EXECUTOR_PACKAGES, OPTIONAL_PACKAGES, shipped
from tidelog.spark.source import TidelogReader

_OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "spark.md"


def pickled(value: object) -> bytes:
    pickler: Any = CloudPickleSerializer
    return bytes(pickler().dumps(value))


def reader() -> TidelogReader:
    return TidelogReader(parse_options(_OPTIONS, is_stream=False))


def doubled(number: int) -> int:
    return 2 * number


@pytest.fixture(params=["a reader", "a function"])
def sent(request: pytest.FixtureRequest) -> bytes:
    """What Spark sends of an object, and of a function that is found by its name."""
    if request.param == "a reader":
        return pickled(reader())
    return pickled(shipped(parse_options))


def use(sent: bytes) -> None:
    """Do as a task does: a function finds its modules when it is called."""
    restored = pickle.loads(sent)
    if callable(restored):
        restored(_OPTIONS)


@pytest.fixture(autouse=True)
def _traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def test_a_reader_arrives_as_it_was() -> None:
    restored = pickle.loads(pickled(reader()))
    assert type(restored) is TidelogReader
    assert restored._options == parse_options(_OPTIONS, is_stream=False)


def test_a_function_arrives_without_its_hints() -> None:
    function = shipped(doubled)
    assert function.__annotations__ == {}
    restored = pickle.loads(pickled(function))
    assert [restored(number) for number in (1, 2)] == [2, 4]


def test_without_tidelog_the_error_says_what_to_ship(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tidelog.spark.source", None)
    monkeypatch.setitem(sys.modules, "tidelog.spark.options", None)
    with pytest.raises(ModuleNotFoundError, match=r"has no package tidelog: ship it with spark"):
        use(sent)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_without_a_package_of_tidelog_the_error_names_it_and_all(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.spark.frozen_modules", raising=False)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "cramjam" else real(name)
    )
    needed = ", ".join(EXECUTOR_PACKAGES)
    with pytest.raises(ModuleNotFoundError, match=f"has no cramjam: tidelog's tasks need {needed}"):
        use(sent)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_a_worker_searches_for_packages_once(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    real = importlib.util.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        searched.append(name)
        return real(name)

    monkeypatch.delitem(sys.modules, "tidelog.spark.frozen_modules", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    for _ in range(3):
        use(sent)
    assert tuple(searched) == EXECUTOR_PACKAGES


def _without_fastavro(_: bytes) -> None:
    raise ModuleNotFoundError("No module named 'fastavro'", name="fastavro")


def _without_lodash(_: bytes) -> None:
    raise ModuleNotFoundError("No module named 'lodash'", name="lodash")


def test_an_optional_package_is_named(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle, "loads", _without_fastavro)
    with pytest.raises(ModuleNotFoundError, match="has no fastavro: install it on every worker"):
        function = pickle._loads(sent)  # type: ignore[attr-defined]  # the plain unpickler
        function(_OPTIONS)


def test_a_users_own_missing_package_keeps_its_error(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickle, "loads", _without_lodash)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'lodash'$"):
        function = pickle._loads(sent)  # type: ignore[attr-defined]  # the plain unpickler
        function(_OPTIONS)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == ""


def test_the_guide_has_the_lists() -> None:
    text = re.sub(r"\s+", " ", GUIDE.read_text(encoding="utf-8"))
    assert f"That Python needs {', '.join(EXECUTOR_PACKAGES)}, and tidelog:" in text
    for package in OPTIONAL_PACKAGES.values():
        assert f"{package} (" in text
