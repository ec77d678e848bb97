"""Transport of sources, readers and writers to executors; the error of an executor without tidelog.

Spark pickles a source with its reader, or a writer, on the driver and restores them in an
executor's Python. If the executor lacks tidelog, unpickling fails before any code of tidelog can
run. The pickle therefore contains a function by value, not by name: the function starts without any
module of tidelog, and restores the source or writer. A missing function that a user or a pipeline
pickled by name still raises Python's own error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.serializers import CloudPickleSerializer


class Shipped:
    """An object that Spark sends to executors; its state must pickle."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        pickler: Any = CloudPickleSerializer  # has no types
        return _restorer(), (pickler().dumps((type(self), self.__dict__)),)


def _restorer() -> Callable[[bytes], object]:
    """Return the function that restores an object; cloudpickle sends nested functions by value."""

    def restore(pickled: bytes) -> object:
        import os
        import pickle
        import sys

        try:
            kind, state = pickle.loads(pickled)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "tidelog":
                raise
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Spark then omits the traceback
            raise ModuleNotFoundError(
                f"the executor's Python {sys.executable} has no package tidelog: ship it with"
                " spark.submit.pyFiles (--py-files), or install tidelog on every worker"
            ) from None
        from tidelog.spark.prompt_sockets import acknowledge_at_once

        acknowledge_at_once()  # Spark holds back the rest of a task until an acknowledgement
        restored = object.__new__(kind)
        restored.__dict__.update(state)
        return restored

    return restore
