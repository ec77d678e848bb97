"""The file with the topic ids of all replicas created since the broker's start; each LeaderAndIsr
command syncs the file once.

Syncing each new `partition.metadata` would take 4 s for a thousand replicas. Without a sync, a
power loss before the log's first flush can destroy `partition.metadata` and with it the topic id. A
topic id cannot be looked up by name, because the topic may have been deleted and created again
(V23). Instead of syncing each `partition.metadata`, the creation of replicas appends their topic
ids to one file in the log directory's root, and syncs this file. The next start of the broker
copies the topic ids from this file to replica directories without a readable `partition.metadata`,
syncs the volume, and removes the file.

Each line of the file has the name of a replica's directory and the topic id of the replica. If
several lines of the file name one directory, the last of them counts. A line without a topic id
revokes the earlier lines with the same name. Each append begins with a line end, so an incomplete
line of a failed write does not damage the next line. Incomplete lines are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.ports import Files
from tidelog.core.types import TopicId, TopicPartition, topic_id_from_text, topic_id_to_text
from tidelog.log import names

#: Size (about 20,000 replicas) from which the broker syncs the volume and then empties the file.
MAX_BYTES = 1 << 20
#: The text in place of a topic id, which revokes earlier lines with the same directory name.
_NONE: Final = "-"


def append(files: Files, root: str, replicas: Iterable[tuple[TopicPartition, TopicId]]) -> None:
    """Append the topic ids of `replicas` to the file of new replicas, after each
    `partition.metadata` is written. Raises OSError.
    """
    _write(
        files,
        root,
        [f"{names.directory_name(key)} {topic_id_to_text(topic_id)}" for key, topic_id in replicas],
    )


def take_back(files: Files, root: str, replicas: Iterable[TopicPartition]) -> None:
    """Durably revoke the topic ids of `replicas` in the file of new replicas. Raises OSError.

    The caller revokes the topic ids before it creates a replica directory with the same name again.
    Without the revocation, a new replica whose creation a crash interrupts would get the topic id
    of the earlier replica (V23).
    """
    path = f"{root}/{names.NEW_REPLICAS}"
    if not files.exists(path):
        return
    noted = {line.partition(b" ")[0] for line in files.read_file(path).split(b"\n")}
    wanted = (names.directory_name(key) for key in replicas)
    again = [name for name in wanted if name.encode() in noted]
    if again:
        _write(files, root, [f"{name} {_NONE}" for name in again])


def _write(files: Files, root: str, lines: Iterable[str]) -> None:
    data = "".join(f"\n{line}" for line in lines).encode()
    handle = files.open(f"{root}/{names.NEW_REPLICAS}", write=True, create=True)
    try:
        size = files.size(handle)
        if size >= MAX_BYTES:
            # The sync of the volume makes every replica's own `partition.metadata` durable, so the
            # file of new replicas can be emptied.
            files.sync_volume(root)
            files.truncate(handle, 0)
            size = 0
        written = 0
        while written < len(data):
            written += files.pwritev(handle, [data[written:]], size + written)
        files.fsync(handle)
    finally:
        files.close(handle)


def parse(data: bytes) -> dict[TopicPartition, TopicId]:
    """Return the topic ids in the file; skip lines that lack a partition or a complete topic id."""
    found: dict[TopicPartition, TopicId] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, text = line.partition(" ")
        key = names.parse_directory_name(name)
        if key is None:
            continue
        if text == _NONE:
            found.pop(key, None)
            continue
        try:
            found[key] = topic_id_from_text(text)
        except ValueError:
            continue
    return found
