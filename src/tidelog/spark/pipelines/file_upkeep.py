"""Upkeep of a table while an ingest follows a topic: merges and deletions of files.

Each batch leaves small files. A thread merges these files in rounds; each round commits at most a
few seconds of work. The thread also deletes replaced files after `keep_hours`, even if there is
nothing to merge: otherwise an Iceberg table would keep all snapshots, and each commit rewrites the
list of snapshots. Batches go on during a round: if a batch and a merge commit the same version, the
later commit is repeated. A batch waits for the end of a round only if merges fall far behind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from tidelog.spark.lake.state import HiddenRowsError, LakeFile
from tidelog.spark.lake.table import Lake
from tidelog.spark.lake.vacuum import vacuum_staged
from tidelog.spark.pipelines.compact import is_small, merge_some, split_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger(__name__)
#: Default number of small files of one partition that starts a merge.
COMPACT_AFTER: Final = 32
#: A batch of the ingest waits for the running merge if there are this many times as many small
#: files as start a merge.
_FAR_BEHIND: Final = 4
#: Time in seconds between two deletions of replaced files; with a small `keep_hours`, a fraction of
#: `keep_hours` applies instead.
_DELETE_EVERY_S: Final = 3_600.0
_PARTS_OF_KEEPING: Final = 24
#: Shortest time in seconds between deletions without a merge.
_DELETE_ALONE_EVERY_S: Final = 60.0


class FileUpkeep:
    """The thread that merges and deletes files of a table while an ingest writes it."""

    def __init__(
        self,
        spark: SparkSession,
        table: Lake,
        *,
        after: int,
        target_file_bytes: int,
        keep_hours: int,
        is_beside: bool = True,
    ) -> None:
        """No other code may use `table`, because the upkeep's thread uses it.

        Without `is_beside`, a round runs between batches, as upserts need: an upsert replaces
        files, and would lose its work if a merge replaced the same files first.
        """
        self._spark = spark
        self._table = table
        self._after = after
        self._target = target_file_bytes
        self._keep_hours = keep_hours
        self._is_beside = is_beside
        #: Small files of each partition (and partition value) since the last merge.
        self._small: Counter[object] | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._round_ended = threading.Event()
        self._error: BaseException | None = None
        self._deleted_at: float | None = None
        self._began = time.monotonic()

    def __enter__(self) -> FileUpkeep:
        """Return the upkeep, for a `with` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the end of a background merge or deletion, and raise its error.

        If the `with` block raised an error itself, the error of the merge is only logged.
        """
        self._is_stopping = True
        if self._thread is not None:
            self._thread.join()
        if error is None:
            self.check()
        elif self._error is not None:
            _LOG.error("small files were not merged: %s", self._error)

    def added(self, files: Iterable[LakeFile]) -> None:
        """Count the files of a batch; start a merge if files are many, or a deletion if it is due.

        If an earlier merge or deletion in the background failed, raises its error: TableError,
        ProofError, or Spark's errors.
        """
        self.check()
        if self._small is None:
            self._small, files = Counter(), self._table.files()
        self._small.update(split_of(each) for each in files if is_small(each, self._target))
        most = max(self._small.values(), default=0)
        merges = most >= self._after
        if not merges and not self._is_time_to_delete(_DELETE_ALONE_EVERY_S):
            return
        if not self._is_beside or self._thread is None or not self._thread.is_alive():
            if merges:
                self._small.clear()
            work = self._round if merges else self._delete
            if not self._is_beside:
                work()
                return
            self._thread = threading.Thread(
                target=self._work, args=(work,), name="file-upkeep", daemon=True
            )
            self._thread.start()
        elif most >= _FAR_BEHIND * self._after:
            self._round_ended.clear()
            while self._thread.is_alive() and not self._round_ended.wait(0.1):
                pass

    def check(self) -> None:
        """Raise the error of a merge or deletion that failed in the background, if any did.

        Raises TableError, ProofError, or Spark's errors.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _work(self, work: Callable[[], bool]) -> None:
        """Merge or delete until nothing is left to do, in a thread."""
        try:
            while work() and not self._is_stopping:
                self._round_ended.set()
        except BaseException as error:  # the thread of the batches raises the error
            self._error = error
        finally:
            self._round_ended.set()

    def _round(self) -> bool:
        """Merge some small files, and delete replaced files if that is due.

        Returns whether more small files can be merged.
        """
        try:
            has_more = merge_some(self._spark, self._table, self._target)
        except HiddenRowsError as error:
            has_more = False
            _LOG.warning("small files are not merged: %s", error)
        if self._is_time_to_delete(0.0):
            self._delete()
        return has_more

    def _delete(self) -> bool:
        """Delete files that were replaced over `keep_hours` ago.

        Returns False, because one call deletes all of them and leaves no work.
        """
        self._deleted_at = time.monotonic()
        self._table.vacuum(self._keep_hours)
        vacuum_staged(self._table, [self._table.store])
        return False

    def _is_time_to_delete(self, least_s: float) -> bool:
        """Return whether a deletion is due; False within `least_s` seconds of the last deletion."""
        if self._deleted_at is None:
            return time.monotonic() - self._began >= least_s
        every_s = min(_DELETE_EVERY_S, self._keep_hours * 3_600 / _PARTS_OF_KEEPING)
        return time.monotonic() - self._deleted_at >= max(least_s, every_s)
