"""Commits of a query's offsets to a consumer group, so that lag tools see Spark.

A `StreamingQueryListener` learns of each batch after the batch is complete, and commits its end
offsets. Spark's own call for commits (`commit` of the source) comes one batch late, and never for
the last batch. The group has no members and decides nothing: a query continues from its checkpoint.

A thread of the driver sends the commits. A cluster that does not respond delays the commits and
fails no query. If the end offsets of several batches wait, only the end offsets of the latest batch
are committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.groups import FetchedOffset
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.streaming.lag import offsets_in

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_COMMIT_MS: Final = 10_000
#: Time in seconds before a failed commit is retried.
_RETRY_S: Final = 2.0
#: Maximum time in seconds for which the end of a query waits for its last commit.
_LAST_COMMIT_S: Final = 10.0

_log = logging.getLogger("tidelog.spark")


class GroupCommitListener(StreamingQueryListener):
    """Listener that commits the ends of completed batches, of all queries or of `query_name`.

    Add the listener with `spark.streams.addListener(...)` before the query starts.
    """

    def __init__(self, bootstrap: str, group: str, query_name: str | None = None) -> None:
        """Start the commits. Raises ConfigError for a text that is no `host:port,...`."""
        parse_bootstrap(bootstrap)
        self._query_name = query_name
        self._names: dict[str, str | None] = {}
        self._commits = _Commits(bootstrap, group)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the query's name, because the event of its end does not have the name."""
        self._names[str(event.runId)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the end offsets of a completed batch."""
        progress = event.progress
        if self._query_name in (None, progress.name):
            for source in progress.sources:
                self._commits.add(offsets_in(source.endOffset))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query has no new end offsets to commit."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Wait until the last batch is committed, for at most _LAST_COMMIT_S."""
        name = self._names.pop(str(event.runId), None)
        if self._query_name in (None, name) and not self._commits.flush(_LAST_COMMIT_S):
            _log.warning(
                "%s: the end of the query's last batch is not committed yet; the cluster does not"
                " respond",
                self._commits,
            )

    def close(self) -> bool:
        """Commit the remaining offsets and end the thread; return whether all are committed."""
        return self._commits.close(_LAST_COMMIT_S)


class _Commits:
    """Offsets that are still to be committed, and the thread that commits these offsets."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._waiting: dict[TopicPartition, int] = {}
        self._is_busy = False
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __str__(self) -> str:
        return f"group {self._group!r} at {self._bootstrap}"

    def __getstate__(self) -> Any:
        raise TypeError(f"{self} belongs to the driver and cannot be sent to a task")

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take offsets for the thread's next commit."""
        if not offsets:
            return
        with self._changed:
            self._waiting.update(offsets)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"tidelog-commits-{self._group}", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until no offset waits for its commit; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._is_busy, timeout_s
            )

    def close(self, timeout_s: float) -> bool:
        """End the thread, after all offsets are committed or the timeout is over."""
        is_flushed = self.flush(timeout_s)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        return is_flushed

    def _run(self) -> None:
        with BlockingClient(self._bootstrap, "tidelog-spark-commits", _COMMIT_MS) as client:
            while (offsets := self._next()) is not None:
                try:
                    client.commit(
                        self._group, {tp: FetchedOffset(at) for tp, at in offsets.items()}
                    )
                except TidelogError as error:
                    _log.warning("%s: offsets cannot be committed: %s", self, error)
                    self._put_back(offsets)
                else:
                    self._finish()

    def _next(self) -> dict[TopicPartition, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            if self._is_closing:
                return None
            offsets, self._waiting = self._waiting, {}
            self._is_busy = True
            return offsets

    def _put_back(self, offsets: dict[TopicPartition, int]) -> None:
        with self._changed:
            self._waiting = {**offsets, **self._waiting}
            self._is_busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closing, _RETRY_S)

    def _finish(self) -> None:
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()
