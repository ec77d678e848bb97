"""Transport of code and objects to executors, with a clear error if an executor lacks a package.

Spark pickles a source with its reader, a writer, or a function on the driver, and restores it in an
executor's Python. If that Python lacks tidelog, or a package that tidelog needs, unpickling by name
fails in cloudpickle, with a traceback that does not name the remedy. The pickle therefore contains
a function by value: this function starts without any module of tidelog, restores the rest, and
names missing packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.serializers import CloudPickleSerializer

#: Packages that an executor's Python needs beside tidelog, by their names in the package index.
EXECUTOR_PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "crc32c", "cramjam")
#: Packages of some tasks, by the names of their modules: Avro, Protobuf, object stores.
OPTIONAL_PACKAGES: Final = {"fastavro": "fastavro", "google": "protobuf", "deltalake": "deltalake"}


class Shipped:
    """An object that Spark sends to executors; its state must pickle."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _restorer(), (_pickled((type(self), self.__dict__)),)


def shipped(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a function of one argument so that Spark sends it by value.

    The wrapped function has no type hints, so Spark calls it with one column or one batch.
    """
    pickled = _pickled(function)
    load = _loader()
    restored: list[Callable[[Any], Any]] = []

    def call(rows: Any) -> Any:
        if not restored:
            restored.append(load(pickled))
        return restored[0](rows)

    call.__annotations__ = {}
    return call


def _pickled(value: object) -> bytes:
    pickler: Any = CloudPickleSerializer  # PySpark declares no types for this class
    return bytes(pickler().dumps(value))


def _loader() -> Callable[[bytes], Any]:
    """Return the function that unpickles a shipped function on an executor.

    The returned function is nested, because cloudpickle sends nested functions by value: the
    executor may lack this module.
    """
    needed, optional = EXECUTOR_PACKAGES, OPTIONAL_PACKAGES

    def load(pickled: bytes) -> Any:
        import os
        import pickle
        import sys

        def failure(what: str) -> ModuleNotFoundError:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Spark then omits the traceback
            return ModuleNotFoundError(f"the executor's Python {sys.executable} has no {what}")

        # A worker searches for the packages once, because the search takes a millisecond a task.
        if "tidelog.spark.frozen_modules" not in sys.modules:
            from importlib.util import find_spec

            missing = [name for name in needed if find_spec(name) is None]
            if missing:
                raise failure(
                    f"{', '.join(missing)}: tidelog's tasks need {', '.join(needed)}; install them"
                    " on every worker"
                )
        try:
            restored = pickle.loads(pickled)
            from tidelog.spark.frozen_modules import freeze_modules

            freeze_modules()
            return restored
        except ModuleNotFoundError as error:
            name = (error.name or "").partition(".")[0]
            if name == "tidelog":
                raise failure(
                    "package tidelog: ship it with spark.submit.pyFiles (--py-files), or install"
                    " tidelog on every worker"
                ) from None
            if name in optional:
                raise failure(f"{optional[name]}: install it on every worker") from None
            raise

    return load


def _restorer() -> Callable[[bytes], object]:
    """Return the function that restores a `Shipped` object from its pickled class and state."""
    load = _loader()

    def restore(pickled: bytes) -> object:
        kind, state = load(pickled)
        from tidelog.spark.prompt_sockets import acknowledge_at_once

        acknowledge_at_once()  # Spark sends the rest of a task only after this acknowledgement
        restored = object.__new__(kind)
        restored.__dict__.update(state)
        return restored

    return restore
