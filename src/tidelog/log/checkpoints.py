"""The text checkpoints: leader epochs of a partition, offsets per partition of a directory.

Kafka's format: a line with the version (0), a line with the number of entries, one line an entry:
`epoch start-offset` or `topic partition offset`. Checkpoints are caches (DESIGN.md, rule 8): the
parsers are total, what cannot be read is a DamagedCheckpoint, and its reader rebuilds.
Rules V34, V39. Sources: CheckpointFile, LeaderEpochCheckpointFile, OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.core.types import TopicPartition

LEADER_EPOCHS = "leader-epoch-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
#: Where the last compaction of each log ended.
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)

_VERSION = 0
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


class DamagedCheckpoint(ValueError):
    """A checkpoint's text that cannot be read: says which line, and why."""


def format_leader_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    """The content of a leader-epoch checkpoint: (epoch, start offset), oldest first."""
    return _format([f"{epoch} {start}" for epoch, start in entries])


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """The entries of a leader-epoch checkpoint, rising in both. Raises DamagedCheckpoint."""
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
    """The content of an offset checkpoint, in the order of the mapping."""
    return _format(
        [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    )


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint. Raises DamagedCheckpoint."""
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
    """The entries' lines with their numbers. An empty file has none, as Kafka makes them."""
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
