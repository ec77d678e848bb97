"""Errors of Spark's Python workers as the driver shows them, in one sentence without a traceback.

Readers and writers of a data source run in Spark's workers. Spark puts the traceback of a
worker's exception first; the traceback names files of tidelog, not the option that the user should
change. `sentence_first` suppresses the traceback of tidelog's own errors. Exceptions that are not
tidelog's own keep their traceback, because they are defects. Sail has no workers: its server calls
readers and writers itself, and appends the traceback of an exception.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Final

from tidelog.core.errors import TidelogError

#: Environment variable that Spark's worker reads when it reports an exception to the driver.
_NO_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


class sentence_first:  # noqa: N801 - a context manager
    """Make the driver show the sentence of a tidelog error instead of a worker's traceback.

    A tidelog error ends the worker, so the changed environment of the worker affects no other
    source.
    """

    def __enter__(self) -> None:
        """Do nothing: only the end of the block handles errors."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Suppress the traceback of a tidelog error, but not the error itself."""
        if not isinstance(error, TidelogError):
            return
        if _is_worker():
            os.environ[_NO_TRACEBACK] = "1"
        elif "pysail" in sys.modules:
            error.__traceback__ = None


def _is_worker() -> bool:
    """Return whether this process is a Spark worker: its main module belongs to PySpark."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
