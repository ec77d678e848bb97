"""The records that a crash must leave of one log: a list of batches, and promises about them.

The reference knows no files, segments, indexes or checkpoints. A line is a list of batches that the
log may have. The reference has a current line, and an older line for each truncation that a power
loss may still undo. A crash may leave a part of one line: from a log start that was requested, up
to an end that is not below the flushed records. Leader epochs, producers and high watermark must be
those of that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import PRODUCER_BATCHES_REMEMBERED
from tidelog.records.batch import NO_PRODUCER_ID, BatchView
from tidelog.records.reader import iter_records
from tidelog.sim.small.log_reading import (
    TOPIC_ID,
    LogReading,
    ProducerReading,
    StartReading,
)


class RecordRow(NamedTuple):
    """A record, and the leader epoch of its batch."""

    offset: int
    key: bytes | None
    value: bytes | None
    epoch: int


class ReferenceBatch(NamedTuple):
    """A batch with what the reference needs of its header."""

    base_offset: int
    next_offset: int
    data: bytes
    epoch: int
    producer_id: int
    producer_epoch: int
    last_sequence: int

    @classmethod
    def of(cls, data: bytes) -> ReferenceBatch:
        """Return the batch in `data`, whose offsets and leader epoch a log has already set."""
        view = BatchView(data)
        return cls(
            view.base_offset,
            view.next_offset,
            data,
            view.partition_leader_epoch,
            view.producer_id,
            view.producer_epoch,
            view.last_sequence,
        )


@dataclass(slots=True, eq=False)
class LogLine:
    """One possible content of the log: the batches, and what follows from them."""

    #: First offset of the batches.
    base: int = 0
    batches: list[ReferenceBatch] = field(default_factory=list)
    #: Leader epochs with their start offsets.
    epochs: list[tuple[int, int]] = field(default_factory=list)
    #: The highest log start that was requested.
    log_start: int = 0
    #: The least log end: a truncated log may end above the end of its last batch.
    floor: int = 0
    #: Whether a truncation of all records is removing the files, so that the oldest may be gone.
    is_going: bool = False

    @property
    def end(self) -> int:
        """The log end."""
        return max(self.batches[-1].next_offset, self.floor) if self.batches else self.floor

    def up_to(self, end: int) -> LogLine:
        """Return the line without the batches that reach `end`."""
        kept = [batch for batch in self.batches if batch.next_offset <= end]
        epochs = [(epoch, start) for epoch, start in self.epochs if start < end]
        return LogLine(self.base, kept, epochs, min(self.log_start, end), end)

    def lead(self, epoch: int, start: int) -> None:
        """Let `epoch` begin at `start`."""
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs = [each for each in self.epochs if each[1] < start]
            self.epochs.append((epoch, start))

    def producers(self, end: int) -> dict[int, ProducerReading]:
        """Return the producers at an offset: epoch, and the remembered batches."""
        found: dict[int, ProducerReading] = {}
        for batch in self.batches:
            if batch.next_offset > end:
                break
            if batch.producer_id == NO_PRODUCER_ID:
                continue
            epoch, batches = found.get(batch.producer_id, (batch.producer_epoch, ()))
            if epoch != batch.producer_epoch:
                batches = ()
            batches = (*batches, (batch.last_sequence, batch.next_offset - 1))
            found[batch.producer_id] = (
                batch.producer_epoch,
                batches[-PRODUCER_BATCHES_REMEMBERED:],
            )
        return found


@dataclass(slots=True, eq=False)
class PendingFlush:
    """A flush that was requested: it promises the records below `end`."""

    end: int
    line: LogLine


@dataclass(slots=True, eq=False)
class PendingMark:
    """A write of a high watermark to the checkpoint: the least and the greatest value that the
    checkpoint may have afterwards.

    A truncation during the write lowers both values.
    """

    least: int
    greatest: int


class LogReference:
    """All that a crash may leave of one log."""

    def __init__(self, *, is_compacted: bool, loses_tombstones: bool) -> None:
        self._is_compacted = is_compacted
        self._loses_tombstones = loses_tombstones
        #: The possible lines, the current line last.
        self.lines = [LogLine()]
        #: Whether the creation of the replica is complete.
        self.must_exist = False
        #: Offset below which no record may be lost, because it was flushed.
        self.flushed_end = 0
        #: The lowest log start that a process may find.
        self.durable_start = 0
        #: The least and the greatest high watermark that a checkpoint may have; -1 means none.
        self.least_mark = self.greatest_mark = -1
        #: Offset below which compaction may have removed superseded records.
        self.compacted_end = 0
        #: Whether the clean-shutdown marker may be there, and whether it must be.
        self.may_be_clean = self.must_be_clean = False
        self._flushes: list[PendingFlush] = []
        #: Writes of the high watermark under way, oldest first.
        self._marks: list[PendingMark] = []
        #: For each truncation under way, oldest first: the offset from which it may lose records.
        self._unsafe: list[int] = []

    @property
    def line(self) -> LogLine:
        """The current line."""
        return self.lines[-1]

    # what the log does

    def appended(self, data: bytes) -> ReferenceBatch:
        """Note a planned batch, which may reach the disk from now on."""
        batch = ReferenceBatch.of(data)
        self.line.batches.append(batch)
        self.line.lead(batch.epoch, batch.base_offset)
        return batch

    def flush_begins(self, end: int) -> PendingFlush:
        """Note a request to flush the records that are written, up to `end`."""
        flush = PendingFlush(end, self.line)
        self._flushes.append(flush)
        return flush

    def flush_ended(self, flush: PendingFlush) -> None:
        """Note that a flush is complete."""
        self._flushes.remove(flush)
        self.flushed_end = max(self.flushed_end, flush.end)
        if flush.line is self.line:
            # The flush also made the truncations durable that came before it.
            self.lines = [self.line]

    def truncation_begins(self, offset: int) -> None:
        """Note a truncation: the records of batches that reach `offset` are no longer safe."""
        line = self.line
        bound = min((b.base_offset for b in line.batches if b.next_offset > offset), default=offset)
        self._unsafe_from(min(bound, offset))

    def _unsafe_from(self, offset: int) -> None:
        self._unsafe.append(offset)
        self.flushed_end = min(self.flushed_end, offset)
        self.durable_start = min(self.durable_start, offset)
        self.least_mark = min(self.least_mark, offset)
        for flush in self._flushes:
            flush.end = min(flush.end, offset)
        for mark in self._marks:
            mark.least = min(mark.least, offset)

    def truncated(self, end: int) -> None:
        """Note that the log ends at `end` after a truncation."""
        self.lines.append(self.line.up_to(end))
        self._lower_marks(end)
        self.compacted_end = min(self.compacted_end, end)

    def _lower_marks(self, end: int) -> None:
        self._unsafe.pop(0)
        self.greatest_mark = min(self.greatest_mark, end)
        for mark in self._marks:
            mark.greatest = min(mark.greatest, end)

    def restart_begins(self, offset: int) -> None:
        """Note a truncation of all records, after which the log begins at `offset`."""
        self._unsafe_from(0)
        # A crash between the removal of the old files and the new file leaves an empty log. The
        # removals of old files are synced together, so any of the oldest files may be gone.
        # A flush under way was requested for an earlier line, so its end decides nothing here.
        line = replace(self.line, log_start=self.line.end, is_going=True)
        self.lines[-1:] = [LogLine(), LogLine(offset, log_start=offset, floor=offset), line]

    def restarted(self, offset: int) -> None:
        """Note that the log is empty and begins at `offset`."""
        self.lines.append(LogLine(offset, log_start=offset, floor=offset))
        self._lower_marks(offset)
        self.compacted_end = 0

    def start_rises(self, offset: int) -> None:
        """Note that the log start rises, or may rise, to `offset`."""
        for line in self.lines:
            line.log_start = max(line.log_start, min(offset, line.end))

    def marks_begin(self, mark: int) -> None:
        """Note that a high watermark is being written to the checkpoint."""
        self._marks.append(PendingMark(min([mark, *self._unsafe]), mark))
        self.greatest_mark = max(self.greatest_mark, mark)

    def marks_ended(self) -> None:
        """Note that the oldest write of a high watermark is complete."""
        mark = self._marks.pop(0)
        self.least_mark = mark.least
        self.greatest_mark = max([mark.greatest, *(each.greatest for each in self._marks)])

    def closed(self) -> None:
        """Note a clean shutdown: everything is durable."""
        self.lines = [self.line]
        self.flushed_end = self.line.end
        self.durable_start = self.line.log_start
        self.must_be_clean = True

    def started(self, reading: LogReading | None) -> None:
        """Continue with the log that a new process found, which `wrong_start` has accepted."""
        self._flushes.clear()
        self._marks.clear()
        self._unsafe.clear()
        self.may_be_clean = self.must_be_clean = False
        if reading is None:
            self.lines = [LogLine()]
            return
        self.must_exist = True
        line = self._matching(reading)
        assert line is not None, "a start with a violation ends the history"
        left = line.up_to(reading.end)
        left.floor = reading.end
        left.log_start = self.durable_start = reading.start
        self.lines = [left]
        self.flushed_end = reading.end
        self.least_mark = self.greatest_mark = reading.high_watermark
        self.compacted_end = min(self.compacted_end, reading.end)

    # what must be true

    def wrong_start(self, found: StartReading, *, is_again: bool = False) -> str:
        """Return how a start after a crash breaks a promise; empty if it keeps all.

        A start that comes `is_again`, after a start that a crash interrupted, proves no clean
        shutdown.
        """
        if found.refusal:
            return f"V39: the process does not start: {found.refusal}"
        if found.was_clean and not self.may_be_clean:
            return "E3: the start counts as clean, but no clean shutdown was under way"
        if self.must_be_clean and not found.was_clean and not is_again:
            return "E3: the clean shutdown is not proven"
        if found.log is None:
            return "D3: the replica is gone" if self.must_exist else ""
        return self.wrong_log(found.log) or self._wrong_mark(found.log)

    def wrong_log(self, found: LogReading, *, is_live: bool = False) -> str:
        """Return how a log breaks a promise; empty if it keeps all.

        A log that `is_live`, because no crash came, must have the whole current line.
        """
        if found.topic_id != TOPIC_ID:
            return f"V23: the topic id is {found.topic_id.hex()}"
        if is_live and (found.start, found.end) != (self.line.log_start, self.line.end):
            return (
                f"V38: the log has {found.start}..{found.end}, expected"
                f" {self.line.log_start}..{self.line.end}"
            )
        if not is_live and found.end < self.flushed_end:
            return (
                f"V39: the log ends at {found.end}, records up to {self.flushed_end} were flushed"
            )
        if found.start < self.durable_start:
            return f"V34: the log starts at {found.start}, {self.durable_start} was checkpointed"
        line = self.line if is_live else self._matching(found)
        why = self._difference(line or self.line, found)
        if line is None or why:
            return f"V38: {why or 'the log was never like this'}"
        epochs = _wrong_epochs(line, found, is_live=is_live, is_compacted=self._is_compacted)
        return epochs or self._wrong_producers(line, found)

    def _matching(self, found: LogReading) -> LogLine | None:
        lines = reversed(self.lines)
        return next((line for line in lines if not self._difference(line, found)), None)

    def _difference(self, line: LogLine, found: LogReading) -> str:
        """Return how a log differs from each part of a line; empty if the log is such a part."""
        if not line.base <= found.start <= line.log_start:
            return f"the log starts at {found.start}, asked for {line.base}..{line.log_start}"
        if found.end > line.end:
            return f"the log ends at {found.end}, only {line.end} was ever written"
        if found.start == found.end and not found.batches:
            # The log lost its records up to a checkpointed log start, and begins again at this
            # log start.
            return ""
        wanted = [
            batch
            for batch in line.batches
            if batch.next_offset > found.start and batch.base_offset < found.end
        ]
        if self._is_compacted:
            return self._compacted_difference(wanted, found)
        for batch, left in zip(wanted, found.batches, strict=False):
            if batch.data != left.data:
                return f"the batch at {left.base_offset} differs from the one at {_span(batch)}"
        if len(wanted) != len(found.batches):
            return f"{len(found.batches)} batches up to {found.end}, expected {len(wanted)}"
        if wanted:
            is_last = wanted[-1] is line.batches[-1]
            if found.end not in (wanted[-1].next_offset, line.end if is_last else -1):
                return f"the log ends at {found.end}, its last batch at {_span(wanted[-1])}"
        elif found.end != line.end:
            return f"the log ends at {found.end} without a batch"
        return ""

    def _compacted_difference(self, wanted: Sequence[ReferenceBatch], found: LogReading) -> str:
        """Return a difference that compaction does not explain."""
        left = {row.offset: row for batch in found.batches for row in _records(batch.data)}
        offsets = frozenset(left)
        whole = [row for batch in wanted for row in _records(batch.data)]
        last: dict[bytes | None, int] = {}
        for row in whole:
            if row.offset < self.compacted_end:
                last[row.key] = row.offset
        for row in whole:
            if left.pop(row.offset, row) != row:
                return f"record {row.offset} differs"
            if row.offset in offsets or row.offset < found.start:
                continue
            is_superseded = last.get(row.key, -1) > row.offset
            is_gone = row.value is None and self._loses_tombstones
            if row.offset >= self.compacted_end or not (is_superseded or is_gone):
                return f"record {row.offset} with key {row.key!r} is missing"
        if left:
            return f"records {sorted(left)} were never written"
        return ""

    def _wrong_producers(self, line: LogLine, found: LogReading) -> str:
        expected = line.producers(found.end)
        for producer_id, (epoch, batches) in found.producers.items():
            wanted = expected.get(producer_id)
            if wanted is None:
                return f"V38: producer {producer_id} is known, no batch of it is below {found.end}"
            if (epoch, batches[-1:]) != (wanted[0], wanted[1][-1:]):
                return f"V38: producer {producer_id} is at {epoch}, {batches}, expected {wanted}"
            if not self._is_compacted and batches != wanted[1][-len(batches) :]:
                return f"V38: producer {producer_id} sent {wanted}, remembered is {batches}"
        # Retention writes a snapshot of the producers. A start ignores this snapshot if the crash
        # brought back a segment that retention had removed, or lost the records below the snapshot.
        is_whole = found.batches or found.end == line.base
        if is_whole and not line.is_going and found.start >= line.log_start:
            for producer_id, wanted in expected.items():
                if producer_id not in found.producers:
                    return f"V64: producer {producer_id} is forgotten, it is at {wanted}"
        return ""

    def _wrong_mark(self, found: LogReading) -> str:
        mark = found.high_watermark
        if mark < 0:
            return "V34: the high watermark is gone" if self.least_mark >= 0 else ""
        least, greatest = (
            max(min(each, found.end), found.start) for each in (self.least_mark, self.greatest_mark)
        )
        if not least <= mark <= greatest:
            return f"V38: the high watermark is {mark}, expected {least}..{greatest}"
        return ""


def _wrong_epochs(line: LogLine, found: LogReading, *, is_live: bool, is_compacted: bool) -> str:
    for batch in found.batches:
        epoch = BatchView(batch.data).partition_leader_epoch
        covering = [each for each, start in found.epochs if start <= batch.base_offset]
        if not covering or covering[-1] != epoch:
            return f"V39: the batch at {batch.base_offset} has epoch {epoch}, not in {found.epochs}"
    late = [each for each in found.epochs if each[1] >= found.end]
    if late and not is_live:
        return f"V39: leader epochs {late} begin at or beyond the log end {found.end}"
    if is_compacted:
        return ""
    expected = [each for each in line.epochs if found.start < each[1] < found.end]
    left = [each for each in found.epochs if found.start < each[1] < found.end]
    if expected != left:
        return f"V39: leader epochs {found.epochs}, expected {line.epochs} below {found.end}"
    return ""


@lru_cache(maxsize=4096)
def _records(data: bytes) -> list[RecordRow]:
    """Return the records of a batch; the same batch is read by thousands of starts."""
    view = BatchView(data)
    epoch = view.partition_leader_epoch
    return [RecordRow(each.offset, each.key, each.value, epoch) for each in iter_records(view)]


def _span(batch: ReferenceBatch) -> str:
    return f"{batch.base_offset}..{batch.next_offset - 1}"
