"""The syncs of a leader's log with `flush.before.ack`: group commit (V69).

Only one sync runs at a time. Records written during a sync share the next sync, so one sync serves
all waiting producers. The sync runs on a thread of the log directory, never on the event loop.
After a failed fsync, the directory has failed, and the fsync is never retried (D17). If the disk is
only full, the leader retries the sync. The syncs end with the leadership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.core.completion import Completion

if TYPE_CHECKING:
    from tidelog.broker.server.timers import Timeout
    from tidelog.broker.services import Services
    from tidelog.log.partition_log import PartitionLog

#: Pause before a sync is retried on a full disk, in milliseconds.
_RETRY_MS = 500


class LeaderSyncs:
    """The syncs of one leader's log with `flush.before.ack`, until the leadership ends."""

    __slots__ = ("_is_over", "_is_under_way", "_log", "_on_failed", "_on_synced", "_retry",
                 "_services")  # fmt: skip

    def __init__(
        self,
        services: Services,
        log: PartitionLog,
        on_synced: Callable[[int], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_synced` gets the offset below which the log is synced."""
        self._services = services
        self._log = log
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._is_under_way = False
        self._is_over = False
        self._retry: Timeout | None = None

    @property
    def synced_offset(self) -> int:
        """The offset below which the log is synced."""
        return min(self._log.recovery_point, self._log.log_end_offset)

    def start(self) -> None:
        """Sync the written records, at once or after the current sync."""
        log = self._log
        if (
            self._is_over
            or self._is_under_way
            or self._retry is not None
            or not log.config.flush_before_ack
            or log.recovery_point >= log.log_end_offset
        ):
            return
        self._is_under_way = True
        log.flush().then(self._done)

    def log_replaced(self, log: PartitionLog) -> None:
        """Sync the replica's moved log from now on (D11); a running sync ends on the old log."""
        self._log = log

    def end(self) -> None:
        """Start no more syncs; a sync in progress has no further effect."""
        self._is_over = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _done(self, completion: Completion[None]) -> None:
        self._is_under_way = False
        if self._is_over:
            self._services.tracer.mark("sync_outlived_leadership")
            return
        if completion.error is not None:
            if self._log.directory.failure is None and not self._log.is_closed:
                self._retry = self._services.timers.after(_RETRY_MS, self._again)
            self._on_failed(completion.error)
            return
        self._services.tracer.mark("leader_synced")
        self._on_synced(self.synced_offset)
        self.start()

    def _again(self) -> None:
        self._retry = None
        self.start()
