"""Kafka's names of log files and replica directories.

This module checks topic names again (V24), so that no unchecked name from a peer gets into a path.
The directory of a deleted or stray replica is `TOPIC-PARTITION.ID-delete` or `-stray`, with an id
of 32 hexadecimal digits. In names that tidelog gives, the id begins with the wall-clock time in ms,
so that the age of a stray is known after a restart. Source: LogFileUtils,
UnifiedLog.parseTopicPartitionName.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.core.limits import MAX_TOPIC_NAME_CHARS
from tidelog.core.types import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"
DELETED = ".deleted"
#: Suffix of the files of a segment that compaction is writing. The same files have the suffix SWAP
#: while they replace the files of the old segments.
CLEANED = ".cleaned"
SWAP = ".swap"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
#: A file of a log directory that lists the strays that wait for an operator's decision.
HELD_STRAYS = "held-strays"
#: A file of a log directory with the topic ids of replicas created since the broker's start.
NEW_REPLICAS = "new-replicas"
#: A file of a moved replica that names the log directories of older copies.
MOVED_FROM = "moved-from"
TEMPORARY = ".tmp"

_MAX_NAME_CHARS = 255
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_OFFSET = re.compile(r"([0-9]{20})(\.[a-z]+)")
_SET_ASIDE = re.compile(r"(.+)\.([0-9a-f]{32})(-delete|-stray|-future)")


def is_topic_name(name: str) -> bool:
    """Return whether `name` is a valid topic name (V24)."""
    return (
        0 < len(name) <= MAX_TOPIC_NAME_CHARS
        and name not in (".", "..")
        and _TOPIC.fullmatch(name) is not None
    )


def offset_name(offset: int, suffix: str) -> str:
    """Return the name of a segment file with base offset `offset`, or of a producer snapshot at
    `offset`.
    """
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """Return (offset, suffix) of a name made by `offset_name`; None for any other name."""
    match = _OFFSET.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def directory_name(topic_partition: TopicPartition) -> str:
    """Return the name of a partition's directory; raise ValueError for an invalid name (V24)."""
    if not is_topic_name(topic_partition.topic) or topic_partition.partition < 0:
        raise ValueError(f"not a partition that may have a directory: {topic_partition!s:.300}")
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the partition of a directory, or None if the name is not a partition's."""
    topic, separator, partition = name.rpartition("-")
    if (
        not separator
        or not is_topic_name(topic)
        or not (partition.isascii() and partition.isdigit())
        or len(partition) > 10
        or str(int(partition)) != partition
    ):
        return None
    return TopicPartition(topic, int(partition))


def future_name(topic_partition: TopicPartition, now_ms: int, number: int) -> str:
    """Return the name of a future replica's directory; raise ValueError if the name is too long.

    The directory's name contains the whole topic name, because the next start must recognize the
    partition by it.
    """
    tail = f".{now_ms & (1 << 64) - 1:016x}{number & (1 << 64) - 1:016x}{FUTURE_SUFFIX}"
    name = directory_name(topic_partition) + tail
    if len(name) > _MAX_NAME_CHARS:
        raise ValueError(f"the name of a future replica of {topic_partition} is too long: {name}")
    return name


def future_partition(name: str) -> TopicPartition | None:
    """Return the partition of a directory, or None if it is not a future replica's directory."""
    aside = parse_aside_name(name)
    if aside is None or aside.suffix != FUTURE_SUFFIX:
        return None
    return parse_directory_name(aside.partition_name)


class AsideName(NamedTuple):
    """The parts of a renamed directory's name: its partition, the wall-clock time of the renaming
    in ms (0 if unknown), and the suffix.
    """

    partition_name: str
    since_ms: int
    suffix: str


def aside_name(topic_partition: TopicPartition, now_ms: int, number: int, suffix: str) -> str:
    """Return a new name for a partition's directory; `number` makes the name unique in this
    process.
    """
    tail = f".{now_ms & (1 << 64) - 1:016x}{number & (1 << 64) - 1:016x}{suffix}"
    return directory_name(topic_partition)[: _MAX_NAME_CHARS - len(tail)] + tail


def parse_aside_name(name: str) -> AsideName | None:
    """Return the parts of a directory's name, or None if it was not renamed by tidelog."""
    match = _SET_ASIDE.fullmatch(name)
    return AsideName(match[1], int(match[2][:16], 16), match[3]) if match else None
