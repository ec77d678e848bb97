"""A following replica: from where it fetches, what an answer means for its log (V32, V33, V67).

One object is one follower term: one leader epoch of one leader. An answer is obeyed only if it
belongs to the position that the replica still has, so an answer to a question asked before an
epoch change, a truncation or an append is dropped. Histories are reconciled by leader epoch with
the first answers of a term and whenever the leader finds a divergence; the log is only ever cut
because of what the current leader said. Does not know the network or the log's contents; the
broker runs the effects and reports back.
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
    TruncateFullyAndStartAt,
    TruncateTo,
)


class FetchPosition(NamedTuple):
    """What a follower's fetch says of it; compared to tell a stale answer from a current one."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class FollowerReplica:
    """A follower of one leader in one leader epoch."""

    __slots__ = (
        "_leader_high_watermark",
        "_leader_log_start",
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
    ) -> None:
        assert log_start_offset <= log_end_offset, "a log begins before it ends"
        assert high_watermark <= log_end_offset, "only records of the log are committed (V61)"
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        #: An effect on the log is being run: nothing is fetched meanwhile.
        self.is_busy = False
        self.position = FetchPosition(leader_epoch, log_end_offset, latest_epoch)
        self._leader_high_watermark = 0
        self._leader_log_start = 0

    def begin(self) -> Effects:
        """What to do before the first fetch."""
        offset = truncation.offset_on_becoming_follower(self.log_end_offset, self.high_watermark)
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
        """The leader's answer to a fetch from `position`; `epochs` is this replica's history."""
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
        if has_records:
            self.is_busy = True
            self._leader_high_watermark = leader_high_watermark
            self._leader_log_start = leader_log_start
            return APPEND
        return self._follow_marks(leader_high_watermark, leader_log_start)

    def appended(self, log_end_offset: int, latest_epoch: int) -> Effects:
        """The records of the answer are in the log."""
        assert self.is_busy, "records are appended for one answer at a time (V33)"
        assert log_end_offset >= self.log_end_offset, "an append does not truncate (V32)"
        self.is_busy = False
        self.log_end_offset = log_end_offset
        self.position = FetchPosition(self.leader_epoch, log_end_offset, latest_epoch)
        return self._follow_marks(self._leader_high_watermark, self._leader_log_start)

    def failed(self, error: ErrorCode) -> Effects:
        """An effect could not be run (bad records, a full disk, no answer): try again later."""
        self.is_busy = False
        return (BackOff(error),)

    def truncated(self, log_start_offset: int, log_end_offset: int, latest_epoch: int) -> None:
        """The log was cut (V38: the high watermark goes with it)."""
        assert self.is_busy, "a log is truncated for one answer at a time (V33)"
        assert log_start_offset <= log_end_offset, "a log begins before it ends"
        self.is_busy = False
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = watermark.on_follower(
            self.high_watermark, log_start_offset, log_end_offset
        )
        self.position = FetchPosition(self.leader_epoch, log_end_offset, latest_epoch)

    def log_start_moved(self, log_start_offset: int) -> None:
        """Retention has removed records of our own log."""
        self.log_start_offset = log_start_offset
        self.high_watermark = max(self.high_watermark, log_start_offset)

    def leader_log_starts_at(self, offset: int) -> Effects:
        """The leader refused our offset, or knows nothing of our last epoch: what we have lies
        below its log or cannot be compared with it, so it goes (V67)."""
        return self._start_over_at(offset)

    def _truncate_to(self, offset: int) -> Effects:
        assert self.log_start_offset <= offset <= self.log_end_offset, "it is in the log (V32)"
        self.is_busy = True
        # Before the log is: at no moment is it above what there is, nor written down so (V38).
        self.high_watermark = min(self.high_watermark, offset)
        return (TruncateTo(offset),)

    def _start_over_at(self, offset: int) -> Effects:
        self.is_busy = True
        # As for a cut: what is claimed must not outlive what it was claimed of.
        self.high_watermark = min(self.high_watermark, offset)
        return (TruncateFullyAndStartAt(offset),)

    def _follow_marks(self, leader_high_watermark: int, leader_log_start: int) -> Effects:
        """Take the leader's high watermark and log start as far as our log goes (V61, V67)."""
        high_watermark = watermark.on_follower(
            leader_high_watermark, self.log_start_offset, self.log_end_offset
        )
        assert high_watermark <= self.log_end_offset, "only records of the log are committed (V61)"
        self.high_watermark = high_watermark
        if self.log_start_offset < leader_log_start <= high_watermark:
            self.log_start_offset = leader_log_start
            return (AdvanceLogStart(leader_log_start),)
        return NOTHING

    # For the model checker.

    def key(self) -> tuple[object, ...]:
        """The whole state as a value."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def copy(self) -> FollowerReplica:
        """An independent copy."""
        other = FollowerReplica.__new__(FollowerReplica)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other
