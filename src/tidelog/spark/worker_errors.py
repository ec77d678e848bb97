"""Errors of Spark's Python workers as the driver shows them: one sentence, no traceback.

Readers and writers run in workers. Spark sends an exception from there with its traceback first,
which names files of tidelog and not the option that the user should change. `sentence_first`
suppresses the traceback of tidelog's own errors. Other exceptions keep theirs: they are defects.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from tidelog.core.errors import TidelogError

#: Read by Spark's worker when it reports an exception to the driver.
_NO_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


@contextlib.contextmanager
def sentence_first() -> Iterator[None]:
    """Let the driver show the sentence of a tidelog error instead of a worker's traceback.

    The worker process ends with the exception, so its environment concerns no other source.
    """
    try:
        yield
    except TidelogError:
        if _is_worker():
            os.environ[_NO_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Return whether this process is Spark's: its main module is one of PySpark's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
