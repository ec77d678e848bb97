"""Shorter garbage collections between the tasks of a Python worker, by `gc.freeze`.

PySpark's daemon collects all garbage of a worker after each task, and the worker takes its next
task only after the collection. A collection visits every object of every imported module, which
takes 40 to 60 ms of CPU time, most of the time of a small task. The objects of modules live as long
as the worker. `gc.freeze` takes all present objects out of later collections.

A task freezes objects only if modules were imported since the last freeze, because a frozen cycle
of garbage is never collected. The first task freezes the modules of PySpark and of the source; the
second task freezes the modules that the first task imported. Later tasks seldom import a module.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

#: The module that Spark's reused workers run; only this module collects garbage after each task.
_DAEMON: Final = "pyspark.daemon"

#: The number of imported modules at each freeze.
_frozen: list[int] = []


def freeze_modules() -> None:
    """Take all objects of a reused worker out of garbage collections, after new imports."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    loaded = len(sys.modules)
    if spec is not None and spec.name == _DAEMON and loaded > max(_frozen, default=0):
        gc.freeze()
        _frozen.append(loaded)
