"""Names and text files of a log directory, read without broker code of Kafka or tidelog.

This reader shares no code with the brokers, because an audit must not share mistakes with the
writer. Every text file gives a value or an `IllegibleFileError` with the line and the reason. This
module knows nothing of record batches, and lists no directory. Sources in Kafka's code:
CheckpointFile, LogFileUtils, UnifiedLog, MetaProperties, PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final, NamedTuple

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
OWNER: Final = "meta.properties"
TOPIC_ID: Final = "partition.metadata"
CLEAN_MARKER: Final = ".kafka_cleanshutdown"
#: Files that only tidelog writes. NEW_REPLICAS has topic ids of new replicas, STRAY_STATE a stray's
#: last checkpointed offsets, MOVED_FROM the log directories from which a replica moved.
NEW_REPLICAS: Final = "new-replicas"
STRAY_STATE: Final = "stray.state"
MOVED_FROM: Final = "moved-from"

#: Files that a log directory may have besides its replicas' directories.
OF_DIRECTORIES: Final = frozenset(
    (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS, CLEANED, OWNER, CLEAN_MARKER, NEW_REPLICAS,
     ".lock", "held-strays", "known-log-dirs", "bootstrap.checkpoint", "lost+found")
)  # fmt: skip
#: Files that a replica's directory may have besides the files of its segments.
OF_REPLICAS: Final = frozenset((LEADER_EPOCHS, TOPIC_ID, STRAY_STATE, MOVED_FROM, "quorum-state"))
#: Suffix of snapshots of KRaft's metadata log.
METADATA_SNAPSHOT: Final = ".checkpoint"
#: Suffixes of files that are being written, compacted or deleted.
PASSING: Final = (".tmp", ".cleaned", ".swap", ".deleted")

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SEGMENT: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_ASIDE: Final = re.compile(r"(.+)\.([0-9a-f]{32})-(delete|stray|future)")


class IllegibleFileError(TidelogError):
    """The error for a text file of a log directory whose content is not what its name promises."""


class DirectoryOwner(NamedTuple):
    """The owner of a log directory; a value is None if `meta.properties` does not have the key."""

    cluster: str | None
    broker: int | None
    #: Id of the directory itself, which brokers with KRaft give each directory.
    directory: str | None


class StrayOffsets(NamedTuple):
    """The checkpointed offsets of a replica when it became a stray."""

    recovery_point: int
    log_start: int


def replica_of(name: str) -> TopicPartition | None:
    """Return the partition of a replica's directory with this name; None for another name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return None
    if not (number.isascii() and number.isdigit()) or str(int(number[:10])) != number:
        return None
    return TopicPartition(topic, int(number))


def aside_of(name: str) -> tuple[str, str] | None:
    """Return (name of the replica, reason of the rename) for a renamed replica's directory.

    The reason is `delete`, `stray` or `future`. Returns None for any other directory name.
    """
    match = _ASIDE.fullmatch(name)
    return (match[1], match[3]) if match else None


def segment_file_of(name: str) -> tuple[int, str] | None:
    """Return (offset, kind) of a segment's file; None for another name."""
    match = _SEGMENT.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def log_name(base_offset: int, kind: str = "log") -> str:
    """Return the name of a segment's file."""
    return f"{base_offset:020d}.{kind}"


def read_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets of a log directory's checkpoint by partition."""
    found: dict[TopicPartition, int] = {}
    for number, line in _entries(data):
        fields = line.split()
        if len(fields) != 3 or not all(_is_number(field) for field in fields[1:]):
            raise IllegibleFileError(f"line {number}: {line!r} is not `topic partition offset`")
        tp = TopicPartition(fields[0], int(fields[1]))
        if tp in found:
            raise IllegibleFileError(f"line {number}: a second entry of {tp}")
        found[tp] = int(fields[2])
    return found


def read_epochs(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return the (epoch, start offset) pairs of a leader-epoch checkpoint, both rising."""
    found: list[tuple[int, int]] = []
    for number, line in _entries(data):
        fields = line.split()
        if len(fields) != 2 or not all(_is_number(field) for field in fields):
            raise IllegibleFileError(f"line {number}: {line!r} is not `epoch offset`")
        entry = int(fields[0]), int(fields[1])
        if found and (entry[0] <= found[-1][0] or entry[1] < found[-1][1]):
            raise IllegibleFileError(f"line {number}: {line!r} cannot follow epoch {found[-1][0]}")
        found.append(entry)
    return tuple(found)


def read_owner(data: bytes) -> DirectoryOwner:
    """Return the owner that a meta.properties names."""
    values: dict[str, str] = {}
    for line in _text(data).splitlines():
        if line.strip() and line.strip()[0] not in "#!":
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise IllegibleFileError(f"version is {version!r}, only 0 and 1 are known")
    broker = values.get("broker.id", values.get("node.id"))
    if broker is not None and not _is_number(broker):
        raise IllegibleFileError(f"the broker's id is {broker!r}, which is no number")
    number = None if broker is None else int(broker)
    return DirectoryOwner(values.get("cluster.id"), number, values.get("directory.id"))


def read_topic_id(data: bytes) -> str:
    """Return the topic id of a partition.metadata file, as text."""
    for line in _text(data).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "version" and value.strip() != "0":
            raise IllegibleFileError(f"version is {value.strip()!r}, only 0 is known")
        if key.strip() == "topic_id" and value.strip():
            if not is_topic_id(value.strip()):
                raise IllegibleFileError(f"{value.strip()!r} is no topic id")
            return value.strip()
    raise IllegibleFileError("there is no line `topic_id: ID`")


def is_topic_id(text: str) -> bool:
    """Return whether a text is a topic id: 16 bytes in base64, not all zeros."""
    try:
        data = base64.b64decode(f"{text}==", b"-_", validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(text) == 22 and len(data) == 16 and any(data)


def read_new_replicas(data: bytes) -> dict[str, str]:
    """Return the topic ids of new replicas by directory name; skip incomplete lines."""
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, topic_id = line.partition(" ")
        if topic_id == "-":
            found.pop(name, None)
        elif is_topic_id(topic_id):
            found[name] = topic_id
    return found


def read_moved_from(data: bytes) -> tuple[str, ...]:
    """Return the log directories that may still have an older copy of a replica that moved."""
    lines = _text(data).splitlines()
    return tuple(line for line in lines if line and not line.isdecimal())


def read_clean_marker(data: bytes) -> None:
    """Check the marker of a clean shutdown; older brokers leave the file empty."""
    epoch = _json_object(data).get("brokerEpoch") if data else -1
    if type(epoch) is not int:
        raise IllegibleFileError(f"brokerEpoch is {epoch!r}, which is no broker epoch")


def read_stray_state(data: bytes) -> StrayOffsets:
    """Return the offsets in a stray's state file."""
    content = _json_object(data)

    def offset_of(key: str) -> int:
        offset = content.get(key)
        if type(offset) is not int or offset < 0:
            raise IllegibleFileError(f"{key} is {offset!r}, which is no offset")
        return offset

    return StrayOffsets(offset_of("recovery_point"), offset_of("log_start_offset"))


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(_text(data))
    except (ValueError, RecursionError):
        raise IllegibleFileError("it is not JSON") from None
    if not isinstance(content, dict):
        raise IllegibleFileError("it is no JSON object")
    return content


def _entries(data: bytes) -> list[tuple[int, str]]:
    """Return the numbered lines after a checkpoint's version and count; none for an empty file."""
    if not data:
        return []
    lines = _text(data).splitlines()
    if lines[0].strip() != "0":
        raise IllegibleFileError(f"line 1: version {lines[0]!r}, only 0 is known")
    if len(lines) < 2 or not _is_number(lines[1]) or int(lines[1]) != len(lines) - 2:
        count = lines[1] if len(lines) > 1 else "nothing"
        raise IllegibleFileError(
            f"line 2 counts {count}, but {max(0, len(lines) - 2)} lines follow"
        )
    return list(enumerate(lines[2:], 3))


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise IllegibleFileError(f"it is not UTF-8: {error}") from None


def _is_number(text: str) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) <= 19
