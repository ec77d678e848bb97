"""Objects that Spark sends to executors, restored with and without the package."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from tidelog.spark.options import parse_options
from tidelog.spark.source import TidelogReader

_OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}


def shipped() -> bytes:
    pickler: Any = CloudPickleSerializer
    reader = TidelogReader(parse_options(_OPTIONS, is_stream=False))
    pickled: bytes = pickler().dumps(reader)
    return pickled


def test_a_reader_arrives_as_it_was() -> None:
    restored = pickle.loads(shipped())
    assert type(restored) is TidelogReader
    assert restored._options == parse_options(_OPTIONS, is_stream=False)


def test_without_the_package_the_error_says_what_to_ship(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = shipped()
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setitem(sys.modules, "tidelog.spark.source", None)
    with pytest.raises(ModuleNotFoundError, match=r"has no package tidelog: ship it with spark"):
        pickle.loads(pickled)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_another_missing_package_keeps_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = shipped()
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setitem(sys.modules, "tidelog.spark.source", None)
    monkeypatch.setattr(pickle, "loads", _without_numpy)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'numpy'$"):
        pickle._loads(pickled)  # type: ignore[attr-defined]  # the plain unpickler
    assert os.environ["SPARK_HIDE_TRACEBACK"] == ""


def _without_numpy(_: bytes) -> None:
    raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
