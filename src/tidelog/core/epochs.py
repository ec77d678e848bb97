"""The leader epochs of one log, with their start offsets (KIP-101, KIP-279).

The package `log` persists the entries, and the package `replication` decides by the entries where
logs are truncated. Entries rise strictly in epoch and in start offset. An epoch ends where the next
epoch starts; the last epoch ends at the log end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from tidelog.core.types import NO_EPOCH, EpochEnd

#: The value that means an unknown offset (Kafka's UNDEFINED_EPOCH_OFFSET).
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The leader epochs of a log, each with its start offset, in offset order."""

    __slots__ = ("_epochs", "_starts", "changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        #: Whether an entry changed since the checkpoint was last written.
        self.changed = False
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.changed = False

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        """Return the entries (epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def copy(self) -> LeaderEpochs:
        """Return an independent copy."""
        other = LeaderEpochs()
        other._epochs = self._epochs.copy()
        other._starts = self._starts.copy()
        return other

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last entry, or -1 if there is no entry."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def latest_start_offset(self) -> int:
        """The start offset of the last epoch, or -1 if there is no entry."""
        return self._starts[-1] if self._starts else UNDEFINED_OFFSET

    def covers(self, epoch: int, start_offset: int) -> bool:
        """Return whether `epoch` is the last epoch and began at or before `start_offset`."""
        return bool(self._epochs) and self._epochs[-1] == epoch and self._starts[-1] <= start_offset

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that records from `start_offset` on have `epoch`; return whether anything changed.

        Entries with the same or a later epoch or start offset are removed, because they describe
        records that were truncated.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"negative leader epoch or offset: {epoch}, {start_offset}")
        if self.covers(epoch, start_offset):
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changed = True
        return True

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest epoch <= `requested_epoch` and its end offset, or (-1, -1) if unknown.

        The latest epoch ends at `log_end_offset`. A requested epoch after the latest epoch is
        unknown. For an epoch before the first epoch, the end offset is the start of the first epoch
        (Kafka's LeaderEpochFileCache.endOffsetFor).
        """
        if requested_epoch == NO_EPOCH or not self._epochs:
            return EpochEnd(NO_EPOCH, UNDEFINED_OFFSET)
        if requested_epoch == self._epochs[-1]:
            return EpochEnd(requested_epoch, log_end_offset)
        index = bisect_right(self._epochs, requested_epoch)
        if index == len(self._epochs):
            return EpochEnd(NO_EPOCH, UNDEFINED_OFFSET)
        if index == 0:
            # The requested epoch precedes the first epoch of this log. The log has no record of the
            # requested epoch, which therefore counts as ended where the first epoch begins.
            return EpochEnd(requested_epoch, self._starts[0])
        return EpochEnd(self._epochs[index - 1], self._starts[index])

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`; -1 for an offset before the first
        entry.
        """
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else NO_EPOCH

    @property
    def earliest_epoch(self) -> int:
        """The leader epoch of the first entry, or -1 if there is no entry."""
        return self._epochs[0] if self._epochs else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop entries that start at or beyond `end_offset` (truncation, V38)."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the entries that end before `start_offset` (retention, DeleteRecords).

        The entry whose epoch includes the record before `start_offset` keeps its start offset;
        Kafka moves that start offset to `start_offset`. A follower's log may have diverged from
        this log below `start_offset`, with records of an earlier epoch. Only the true start offset
        of the entry's epoch shows this to the follower (V67).
        """
        keep_from = bisect_left(self._starts, start_offset) - 1
        if keep_from <= 0:
            return
        del self._starts[:keep_from], self._epochs[:keep_from]
        self.changed = True

    def clear(self) -> None:
        """Drop all entries, because the log was emptied and continues at another offset."""
        if self._epochs:
            self.changed = True
        self._epochs.clear()
        self._starts.clear()
