"""Checkpoint files: leader epochs of a partition, and offsets of a directory's partitions.

The format is Kafka's: a line with the version (0), a line with the number of entries, and one line
per entry. An entry is `epoch start-offset` or `topic partition offset`. Checkpoints are caches
(DESIGN.md, rule 8). The parsers raise DamagedCheckpoint for any invalid content, and the reader
then rebuilds the checkpoint.

A broker periodically writes whole checkpoints of high watermarks, recovery points and log start
offsets, and syncs them. While a write is under way, the disk has the old or the new offset;
`highest` returns the larger of both. When a log is truncated, or recreated under an old name, the
checkpoint on disk must not keep an offset beyond the new log end. The caller therefore first lowers
the offset on disk (`lower`) and waits for the completion. Simultaneous calls of `lower` share one
write. Rules V34, V38, V39. Sources: CheckpointFile, LeaderEpochCheckpointFile,
OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.core.completion import Completion
from tidelog.core.ports import Files, Lane, Work
from tidelog.core.types import TopicPartition

LEADER_EPOCHS = "leader-epoch-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
#: The file with the offset at which the last compaction of each log ended.
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)
_VERSION = 0
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


class DamagedCheckpoint(ValueError):
    """The error for a checkpoint file with invalid content; the message has the line and the
    reason.
    """


def format_leader_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    """Return the content of a leader-epoch checkpoint: (epoch, start offset), oldest first."""
    return _format([f"{epoch} {start}" for epoch, start in entries])


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return the rising entries of a leader-epoch checkpoint. Raises DamagedCheckpoint."""
    entries: list[tuple[int, int]] = []
    for number, line in _lines(data):
        fields = line.split()
        if len(fields) != 2:
            raise DamagedCheckpoint(f"line {number}: {line!r} is not `epoch offset`")
        epoch = _number(fields[0], number, _MAX_INT32)
        start = _number(fields[1], number, _MAX_INT64)
        if entries and (epoch <= entries[-1][0] or start <= entries[-1][1]):
            raise DamagedCheckpoint(f"line {number}: epochs and offsets must rise")
        entries.append((epoch, start))
    return entries


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of an offset checkpoint, with its entries in the order of `offsets`."""
    return _format(
        [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    )


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the entries of an offset checkpoint. Raises DamagedCheckpoint."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in _lines(data):
        fields = line.split()
        if len(fields) != 3:
            raise DamagedCheckpoint(f"line {number}: {line!r} is not `topic partition offset`")
        key = TopicPartition(fields[0], _number(fields[1], number, _MAX_INT32))
        offsets[key] = _number(fields[2], number, _MAX_INT64)
    return offsets


def _format(lines: Sequence[str]) -> bytes:
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode("utf-8")


def _lines(data: bytes) -> list[tuple[int, str]]:
    """Return (line number, line) of each entry; an empty file, as Kafka creates, has no entries."""
    if not data:
        return []
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DamagedCheckpoint(f"not UTF-8: {error}") from None
    if lines[-1] == "":
        lines.pop()
    if _number(lines[0], 1, _MAX_INT32) != _VERSION:
        raise DamagedCheckpoint(f"line 1: version {lines[0]}, only {_VERSION} is known")
    if len(lines) < 2:
        raise DamagedCheckpoint("line 2: the number of entries is missing")
    expected = _number(lines[1], 2, _MAX_INT64)
    if expected != len(lines) - 2:
        raise DamagedCheckpoint(f"{len(lines) - 2} entries where line 2 says {expected}")
    return list(enumerate(lines[2:], 3))


def _number(text: str, line: int, largest: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > largest:
        raise DamagedCheckpoint(f"line {line}: {text[:40]!r} is not a number from 0 to {largest}")
    return int(text)


class OffsetCheckpoint:
    """One file of offsets by partition; all calls are on the event loop."""

    __slots__ = (
        "_failed",
        "_in_flight",
        "_lane",
        "_lowered",
        "_lowering",
        "_newest",
        "_path",
        "offsets",
    )

    def __init__(
        self,
        lane: Lane,
        path: str,
        offsets: dict[TopicPartition, int],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._lane = lane
        self._path = path
        self._failed = failed
        #: The content of the last submitted write; the disk has this content when no write is in
        #: flight.
        self.offsets = offsets
        #: Earlier contents of the file that may still be on disk, because writes are under way.
        self._in_flight: list[dict[TopicPartition, int]] = []
        #: The newest write, or None after it has ended.
        self._newest: Completion[None] | None = None
        #: Lowered offsets that the next write of the checkpoint will contain; `_lowering` is the
        #: completion of that write.
        self._lowered: dict[TopicPartition, int] = {}
        self._lowering: Completion[None] | None = None

    def highest(self, topic_partition: TopicPartition) -> int:
        """Return the largest offset that the disk may have for a partition; -1 for none."""
        highest = self.offsets.get(topic_partition, -1)
        for offsets in self._in_flight:
            highest = max(highest, offsets.get(topic_partition, -1))
        return highest

    def lowest(self, topic_partition: TopicPartition) -> int:
        """Return the smallest offset that the disk may have for a partition; -1 for none."""
        contents = [self.offsets, *self._in_flight]
        return min(offsets.get(topic_partition, -1) for offsets in contents)

    def write(self, offsets: Mapping[TopicPartition, int]) -> Completion[None]:
        """Replace the file's content, durably."""
        new = dict(offsets)
        _lower(new, self._lowered)
        before = self.offsets
        self._in_flight.append(before)
        self.offsets = new
        path = self._path

        def replace(files: Files) -> None:
            files.replace_file(path, format_offsets(new), sync=True)

        completion: Completion[None] = Completion()
        self._newest = completion

        def written(done: Completion[None]) -> None:
            if self._newest is completion:
                self._newest = None
            if done.error is not None:
                # After a failed write, the disk may have the old or the new content, until a later
                # write succeeds.
                self._failed(done.error)
                completion.fail(done.error)
            else:
                # The disk carries out writes in order, so contents older than this completed write
                # are no longer on disk.
                while self._in_flight and self._in_flight.pop(0) is not before:
                    continue
                completion.resolve(None)

        self._lane.submit(replace, Work.SLOW, "checkpoint").then(written)
        return completion

    def newest_write(self) -> Completion[None]:
        """Return the completion of the newest write, which writes `offsets`; it is done at once if
        no write is under way.
        """
        return self._newest or Completion.of(None)

    def remove(self) -> Completion[None]:
        """Remove the file durably; readers treat a missing file as empty."""
        path, self.offsets = self._path, {}
        self._in_flight.clear()

        def unlink(files: Files) -> None:
            if files.exists(path):
                files.unlink(path)
            files.fsync_directory(path.rpartition("/")[0])

        completion = self._lane.submit(unlink, Work.SLOW, "remove checkpoint")
        completion.then(lambda done: None if done.error is None else self._failed(done.error))
        return completion

    def lower(self, topic_partition: TopicPartition, offset: int) -> Completion[None]:
        """Lower the partition's offset on disk to at most `offset`; -1 removes the entry."""
        if self.highest(topic_partition) <= offset:
            return Completion.of(None)
        self._lowered[topic_partition] = min(offset, self._lowered.get(topic_partition, offset))
        lowering = self._lowering
        if lowering is None:
            lowering = self._lowering = Completion()
            if not self._in_flight:
                self._write_lowered()
            else:
                # Wait for the write under way; the next write lowers all offsets that are requested
                # until then.
                self._lane.submit(_nothing, Work.SLOW, "wait").then(lambda _: self._write_lowered())
        return lowering

    def _write_lowered(self) -> None:
        waiting, self._lowering = self._lowering, None
        lowered, self._lowered = self._lowered, {}
        if waiting is None:
            return
        offsets = dict(self.offsets)
        _lower(offsets, lowered)

        def settle(done: Completion[None]) -> None:
            if done.error is not None:
                waiting.fail(done.error)
            else:
                waiting.resolve(None)

        self.write(offsets).then(settle)


def _lower(offsets: dict[TopicPartition, int], lowered: dict[TopicPartition, int]) -> None:
    for topic_partition, offset in lowered.items():
        if offset < 0:
            offsets.pop(topic_partition, None)
        elif offsets.get(topic_partition, -1) > offset:
            offsets[topic_partition] = offset


def _nothing(files: Files) -> None:
    """Do nothing. The operation ends after the directory's earlier file operations, so a caller can
    await them.
    """


def all_of(completions: Sequence[Completion[None]]) -> Completion[None]:
    """Return a completion that is done when all `completions` are done, with their first error."""
    completion: Completion[None] = Completion()

    def settle(error: BaseException | None) -> None:
        if error is not None:
            completion.fail(error)
        else:
            completion.resolve(None)

    after_all(completions, settle)
    return completion


def after_all(
    completions: Sequence[Completion[None]], then: Callable[[BaseException | None], None]
) -> None:
    """Call `then` with the completions' first error, or None, when all completions are done."""
    left = len(completions)
    first_error: BaseException | None = None

    def one(done: Completion[None]) -> None:
        nonlocal left, first_error
        left -= 1
        first_error = first_error or done.error
        if left == 0:
            then(first_error)

    if not completions:
        then(None)
    for completion in completions:
        completion.then(one)
