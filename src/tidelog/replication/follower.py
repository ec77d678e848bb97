"""A following replica: its fetch position, and the effect of fetch responses on its log (V32, V33,
V67).

One object exists per leader epoch in which this replica follows. The follower applies a fetch
response only if the fetch was sent from its current position. The follower thus drops responses to
fetches that it sent before an epoch change, a truncation or an append. Whenever the leader finds
that the logs diverge, usually after an election, the leader epochs in both logs show where the
follower must truncate its log. The follower truncates its log only when the current leader's
response requires it; a replica outside the ISR also truncates a damaged log before its first fetch
(V68). The follower does not know the network or the log's contents; the broker runs the effects and
reports back.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode
from tidelog.core.types import EpochEnd
from tidelog.replication import truncation, watermark
from tidelog.replication.effects import (
    APPEND,
    NOTHING,
    AdvanceLogStart,
    AskLogStart,
    BackOff,
    Effects,
    Flush,
    TruncateFullyAndStartAt,
    TruncateTo,
)


class FetchPosition(NamedTuple):
    """The position from which a fetch is sent. A response to a fetch from another position is
    stale.
    """

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class FollowerReplica:
    """A follower of one leader in one leader epoch."""

    __slots__ = (
        "_leader_high_watermark",
        "_leader_log_start",
        "damaged_from",
        "high_watermark",
        "is_busy",
        "leader",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition_epoch",
        "position",
    )

    def __init__(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        log_start_offset: int,
        log_end_offset: int,
        latest_epoch: int,
        high_watermark: int,
        damaged_from: int | None = None,
    ) -> None:
        """Start to follow in a leader epoch; a damaged log is truncated to `damaged_from` before
        any fetch.
        """
        assert log_start_offset <= log_end_offset, "a log begins before it ends"
        assert high_watermark <= log_end_offset, "only records of the log are committed (V61)"
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        #: Whether the broker is running an effect on the log; until the effect ends, the broker
        #: does not fetch.
        self.is_busy = False
        self.position = FetchPosition(leader_epoch, log_end_offset, latest_epoch)
        self._leader_high_watermark = 0
        self._leader_log_start = 0
        #: Offset at which the log must be truncated before the first fetch; None after the
        #: truncation.
        self.damaged_from = damaged_from

    @property
    def lag(self) -> int:
        """Number of records between this log's end and the leader's last known high watermark."""
        return max(0, self._leader_high_watermark - self.log_end_offset)

    def begin(self) -> Effects:
        """Return the effects that are due before the first fetch."""
        offset = truncation.offset_on_becoming_follower(self.log_end_offset, self.high_watermark)
        if self.damaged_from is not None:
            offset = min(offset, self.damaged_from)
        if offset < self.log_end_offset:
            return self._truncate_to(offset)
        return NOTHING

    def answered(
        self,
        position: FetchPosition,
        error: int,
        diverging: EpochEnd | None,
        epochs: LeaderEpochs,
        leader_high_watermark: int,
        leader_log_start: int,
        has_records: bool,
    ) -> Effects:
        """Apply the leader's response to a fetch from `position`; `epochs` are the leader epochs of
        the local log.
        """
        if self.is_busy or position != self.position:
            return NOTHING
        if error:
            if error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.is_busy = True
                return (AskLogStart(),)
            return (BackOff(error),)
        if diverging is not None:
            offset = truncation.truncation_offset(diverging, epochs, self.log_end_offset)
            if offset < max(leader_log_start, self.log_start_offset):
                return self._start_over_at(max(offset, leader_log_start))
            return self._truncate_to(offset)
        self._leader_high_watermark = leader_high_watermark
        self._leader_log_start = leader_log_start
        if has_records:
            self.is_busy = True
            return APPEND
        return self._follow_marks(leader_high_watermark, leader_log_start)

    def appended(self, log_end_offset: int, latest_epoch: int) -> Effects:
        """Record that the records of the response are in the log."""
        assert self.is_busy, "records are appended for one answer at a time (V33)"
        assert log_end_offset >= self.log_end_offset, "an append does not truncate (V32)"
        self.is_busy = False
        self.log_end_offset = log_end_offset
        self.position = FetchPosition(self.leader_epoch, log_end_offset, latest_epoch)
        return self._follow_marks(self._leader_high_watermark, self._leader_log_start)

    def failed(self, error: ErrorCode) -> Effects:
        """Record that an effect failed (bad records, a full disk, no response); the broker retries
        later.
        """
        self.is_busy = False
        return (BackOff(error),)

    def not_appended(self, error: ErrorCode) -> Effects:
        """Record that the disk has no room for the records of the response; the broker retries
        later (D14).

        The follower still adopts the response's high watermark and log start, because a higher log
        start frees room on the disk.
        """
        assert self.is_busy, "records are appended for one answer at a time (V33)"
        self.is_busy = False
        marks = self._follow_marks(self._leader_high_watermark, self._leader_log_start)
        return (*marks, BackOff(error))

    def resumed(self, log_start_offset: int, log_end_offset: int, latest_epoch: int) -> Effects:
        """Return the effects that are due after a pause of fetching, before the next fetch.

        An effect that failed may have changed the log, and a fetch from the old position would then
        fail for ever. If the log end is above the fetch position, the flush of the last records
        failed: the follower flushes the records before its fetch position moves to the log end. If
        the log end is below the fetch position, a truncation was done in part: the log is a prefix
        of the former log, and the position moves to the log end at once. If the truncation of a
        damaged log failed earlier, the follower repeats it now (V68).
        """
        if self.is_busy:
            return NOTHING
        if self.damaged_from is not None and self.damaged_from < log_end_offset:
            self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset
            return self._truncate_to(self.damaged_from)
        if log_end_offset == self.log_end_offset:
            return NOTHING
        self.is_busy = True
        if log_end_offset > self.log_end_offset:
            return (Flush(),)
        self.truncated(log_start_offset, log_end_offset, latest_epoch)
        return NOTHING

    def truncated(self, log_start_offset: int, log_end_offset: int, latest_epoch: int) -> None:
        """Record that the log was truncated, and lower the high watermark to the log end (V38)."""
        assert self.is_busy, "a log is truncated for one answer at a time (V33)"
        assert log_start_offset <= log_end_offset, "a log begins before it ends"
        self.is_busy = False
        self.damaged_from = None
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = watermark.on_follower(
            self.high_watermark, log_start_offset, log_end_offset
        )
        self.position = FetchPosition(self.leader_epoch, log_end_offset, latest_epoch)

    def log_start_moved(self, log_start_offset: int) -> None:
        """Record that retention has removed records of this replica's own log."""
        self.log_start_offset = log_start_offset
        self.high_watermark = max(self.high_watermark, log_start_offset)

    def leader_log_starts_at(self, offset: int) -> Effects:
        """Start the log over at the leader's log start (V67).

        The leader rejected the follower's fetch offset, or does not know the epoch of the
        follower's last record. The follower's records lie below the leader's log start, or cannot
        be compared with the leader's log.
        """
        return self._start_over_at(offset)

    def _truncate_to(self, offset: int) -> Effects:
        assert self.log_start_offset <= offset <= self.log_end_offset, "it is in the log (V32)"
        self.is_busy = True
        # Lower the high watermark before the log is truncated: at no moment may it exceed the log
        # end, in memory or in its checkpoint (V38).
        self.high_watermark = min(self.high_watermark, offset)
        return (TruncateTo(offset),)

    def _start_over_at(self, offset: int) -> Effects:
        self.is_busy = True
        # Lower the high watermark before the log restarts, because it must not exceed the log end.
        self.high_watermark = min(offset, self.high_watermark)
        return (TruncateFullyAndStartAt(offset),)

    def _follow_marks(self, leader_high_watermark: int, leader_log_start: int) -> Effects:
        """Adopt the leader's high watermark and log start, up to the end of this log (V61, V67)."""
        high_watermark = watermark.on_follower(
            leader_high_watermark, self.log_start_offset, self.log_end_offset
        )
        assert high_watermark <= self.log_end_offset, "only records of the log are committed (V61)"
        self.high_watermark = high_watermark
        if self.log_start_offset < leader_log_start <= high_watermark:
            self.log_start_offset = leader_log_start
            return (AdvanceLogStart(leader_log_start),)
        return NOTHING

    # The following methods serve the model checker.

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value, for the model checker."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def copy(self) -> FollowerReplica:
        """Return an independent copy."""
        other = FollowerReplica.__new__(FollowerReplica)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other
