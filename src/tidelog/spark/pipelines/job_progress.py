"""Progress of Spark's jobs in a `with` block: the numbers of done tasks and of all tasks.

A thread polls Spark's status tracker. The numbers of tasks include all active jobs of the session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.2

#: A callback with the number of done tasks and of all tasks.
Progress = Callable[[int, int], None]


@contextmanager
def reported(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Call `progress` in a `with` block, with the numbers of done tasks and of all tasks.

    Under Spark Connect `progress` is not called, because there is no status tracker.
    """
    context = getattr(spark, "sparkContext", None)
    if progress is None or context is None:
        yield
        return
    tracker = context.statusTracker()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    progress(stage.numCompletedTasks, stage.numTasks)

    watcher = threading.Thread(target=watch, name="job-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def cores_of(spark: SparkSession) -> int:
    """Return the session's number of concurrent tasks; two if it is unknown (Spark Connect)."""
    context = getattr(spark, "sparkContext", None)
    return 2 if context is None else max(1, int(context.defaultParallelism))
