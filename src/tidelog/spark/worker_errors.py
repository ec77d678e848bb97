"""Errors of Spark's Python workers as the driver shows them, in one sentence without a traceback.

Readers and writers of a data source run in Spark's workers. Spark sends an exception of a worker
with the traceback first, which names files of tidelog and not the option that the user should
change. `sentence_first` suppresses the traceback of tidelog's own errors. Exceptions that are not
tidelog's own keep their traceback, because they are defects.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from tidelog.core.errors import TidelogError

#: Environment variable that Spark's worker reads when it reports an exception to the driver.
_NO_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


@contextlib.contextmanager
def sentence_first() -> Iterator[None]:
    """Make the driver show the sentence of a tidelog error instead of a worker's traceback.

    A tidelog error ends the worker, so the changed environment of the worker affects no other
    source.
    """
    try:
        yield
    except TidelogError:
        if _is_worker():
            os.environ[_NO_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Return whether this process is a Spark worker: its main module belongs to PySpark."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
