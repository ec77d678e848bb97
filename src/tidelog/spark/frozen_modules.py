"""Short pauses between the tasks of one Python worker: modules are left out of collections.

PySpark's daemon collects all garbage of a worker after each task, and the worker takes its next
task only then. A collection visits every object of every module that tasks imported, for 40 to 60
ms of CPU time: most of the time that a small task takes. These objects live as long as the worker.
`gc.freeze` takes them out of later collections.

Only the first tasks of a worker freeze, because a cycle of frozen objects is never collected. The
first task freezes what PySpark and its source imported, the second what the first imported while it
ran.
"""

from __future__ import annotations

import gc
import itertools
import sys
from typing import Final

#: The module that Spark's reused workers run; it is the only one that collects after each task.
_DAEMON: Final = "pyspark.daemon"
_FREEZING_TASKS: Final = 2

_tasks = itertools.count()


def freeze_modules() -> None:
    """Take all present objects out of collections, in the first tasks of a reused worker."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON and next(_tasks) < _FREEZING_TASKS:
        gc.freeze()
