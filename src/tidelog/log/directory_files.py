"""Small files of a log directory: their formats, and the replacement of many files at once.

meta.properties names the owner of a directory, partition.metadata has the topic id of a replica,
and the clean marker proves a clean shutdown. The parsers raise ValueError with the reason for any
invalid content. A damaged clean marker counts as missing, so the next start recovers the directory
as after a crash (rule E3).

`Files.replace_file` syncs each file before the rename and the directory after the rename, which
takes 20 s for the files of a thousand logs. `replace_all` writes all contents to temporary files,
syncs the volume, renames the files, and syncs the volume again. A crash during `replace_all` leaves
some old files and some temporary files; the next start removes the temporary files. Sources:
MetaProperties, PartitionMetadataFile, CleanShutdownFileHandler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.core.ports import Files, Lane, Work
from tidelog.core.types import (
    NO_STAMP,
    CleanEpochs,
    TopicId,
    topic_id_from_text,
    topic_id_to_text,
)
from tidelog.log import names

META_PROPERTIES = "meta.properties"
#: A key in meta.properties that only tidelog has: the broker's last transaction (stamp) in its
#: metadata store (E8).
_STAMP_KEY = "tidelog.store.stamp"
#: A key in meta.properties that only tidelog has: names of marks, the newest last. A mark is a node
#: in a metadata store, by which a broker marks the store as restored from an older copy (E8).
_MARKS_KEY = "tidelog.store.marks"
_MARK = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
#: Number of files that one operation replaces.
_FILES_PER_OPERATION = 256
#: A file to replace: its path and its new content.
Replacement = tuple[str, bytes]


class MetaProperties(NamedTuple):
    """The content of meta.properties: the owner of a log directory. A field is None if the file
    lacks it.
    """

    cluster_id: str | None
    broker_id: int | None
    #: The broker's last stamp: its last transaction in the metadata store (E8).
    stamp: int = NO_STAMP
    #: Names of marks, the newest last. A mark is a node in a metadata store, by which a broker
    #: marks the store as restored from an older copy (E8).
    marks: tuple[str, ...] = ()


def format_meta_properties(
    cluster_id: str, broker_id: int, stamp: int = NO_STAMP, marks: Sequence[str] = ()
) -> bytes:
    """Return the content of `meta.properties` in version 0, the version of brokers with ZooKeeper.

    Kafka's brokers ignore the keys for `stamp` and `marks`, which only tidelog has.
    """
    lines = ["#", f"broker.id={broker_id}", f"cluster.id={cluster_id}", "version=0"]
    if stamp != NO_STAMP:
        lines.append(f"{_STAMP_KEY}={stamp}")
    if marks:
        lines.append(f"{_MARKS_KEY}={','.join(marks)}")
    return "".join(f"{line}\n" for line in lines).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Read meta.properties of version 0 or 1. Raises ValueError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    values: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise ValueError(f"version is {version[:40]!r}, only 0 and 1 are known")
    broker = values.get("broker.id" if version == "0" else "node.id")
    if broker is not None and not (broker.isascii() and broker.isdigit() and len(broker) <= 10):
        raise ValueError(f"the broker's id is {broker[:40]!r}, not a number")
    stamp = values.get(_STAMP_KEY, "")
    if stamp and not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 19):
        raise ValueError(f"{_STAMP_KEY} is {stamp[:40]!r}, not a transaction id")
    marks = tuple(filter(None, values.get(_MARKS_KEY, "").split(",")))
    for mark in marks:
        if not _MARK.fullmatch(mark):
            raise ValueError(f"{_MARKS_KEY} has {mark[:40]!r}, which is no transaction and time")
    return MetaProperties(
        values.get("cluster.id"),
        None if broker is None else int(broker),
        int(stamp) if stamp else NO_STAMP,
        marks,
    )


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """Return the content of `partition.metadata`, which names a partition's topic id."""
    return f"version: 0\ntopic_id: {topic_id_to_text(topic_id)}\n".encode()


def parse_partition_metadata(data: bytes) -> TopicId:
    """Return the topic id in a `partition.metadata`. Raises ValueError."""
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if len(lines) < 2 or lines[0].strip() != "version: 0":
        raise ValueError("the first line is not `version: 0`")
    key, separator, value = lines[1].partition(":")
    if key.strip() != "topic_id" or not separator:
        raise ValueError("the second line is not `topic_id: ID`")
    topic_id = topic_id_from_text(value.strip())
    if not any(topic_id):
        raise ValueError("the topic id is all zeros")
    return topic_id


def format_clean_shutdown(epochs: CleanEpochs) -> bytes:
    """Return the content of the clean-shutdown marker: the broker epochs `epochs`.

    Kafka writes only `brokerEpoch`; only tidelog has the field `earlierEpochs`.
    """
    content = {
        "version": 0,
        "brokerEpoch": epochs.last,
        "earlierEpochs": list(epochs.earlier),
    }
    return json.dumps(content, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> CleanEpochs:
    """Return the broker epochs in a clean-shutdown marker. Raises ValueError if it is invalid."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    last = _marked_epoch("brokerEpoch", content.get("brokerEpoch"))
    earlier = content.get("earlierEpochs", [])
    if not isinstance(earlier, list):
        raise ValueError(f"earlierEpochs is {str(earlier)[:40]}, not a list of broker epochs")
    return CleanEpochs(last, tuple(_marked_epoch("earlierEpochs", each) for each in earlier))


def _marked_epoch(key: str, epoch: object) -> int:
    if type(epoch) is not int or not -1 <= epoch < 2**63:
        raise ValueError(f"{key} has {str(epoch)[:40]}, not a broker epoch")
    return epoch


def write_beside(files: Files, path: str, data: bytes) -> None:
    """Write the new content of `path` to a temporary file beside `path`. Raises OSError."""
    handle = files.open(path + names.TEMPORARY, write=True, create=True)
    try:
        files.truncate(handle, 0)
        written = 0
        while written < len(data):
            written += files.pwritev(handle, [data[written:]], written)
    finally:
        files.close(handle)


async def put_in_place(lane: Lane, paths: Sequence[str]) -> None:
    """Sync the volume, and rename the temporary files of `paths` to their final names.

    Raises StorageError.
    """
    root = lane.directory
    await lane.submit(lambda files: files.sync_volume(root), Work.SLOW, "sync volume")
    if not paths:
        return
    for first in range(0, len(paths), _FILES_PER_OPERATION):
        some = paths[first : first + _FILES_PER_OPERATION]
        await lane.submit(lambda files, some=some: _rename(files, some), Work.SLOW, "rename")  # type: ignore[misc]
    await lane.submit(lambda files: files.sync_volume(root), Work.SLOW, "sync volume")


async def replace_all(lane: Lane, replacements: Iterable[Replacement]) -> None:
    """Replace files durably.

    The sync of the volume makes all its other files durable, too. Raises StorageError.
    """
    paths: dict[str, None] = {}
    some: list[Replacement] = []
    for replacement in replacements:
        some.append(replacement)
        paths[replacement[0]] = None
        if len(some) == _FILES_PER_OPERATION:
            await _write(lane, some)
            some = []
    if some:
        await _write(lane, some)
    await put_in_place(lane, list(paths))


async def _write(lane: Lane, some: Sequence[Replacement]) -> None:
    def write(files: Files) -> None:
        for path, data in some:
            write_beside(files, path, data)

    await lane.submit(write, Work.SLOW, "write beside")


def _rename(files: Files, paths: Sequence[str]) -> None:
    for path in paths:
        files.rename(path + names.TEMPORARY, path)
