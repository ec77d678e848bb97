"""The topic ids of replicas created since the start, durable with one sync for all of a command.

A sync of each new `partition.metadata` would take 4 s for a thousand replicas. Without one, a power
loss can tear the file until the log's first flush, and the records belong to no known topic: the
topic may have been deleted and created again meanwhile (V23). So a creation appends its ids to one
file in the log directory's root and syncs that. The next start gives the ids to directories that
have no legible id of their own. It makes the volume durable and removes the file.

Each line is a directory's name and its topic id. The last line of a name counts; without an id it
takes the ones before it back. A line that a failed write cut short has no whole id and is skipped:
each append begins with a new line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.ports import Files
from tidelog.core.types import TopicId, TopicPartition, topic_id_from_text, topic_id_to_text
from tidelog.log import names

#: From this size on the file starts over, after one sync of the volume: about 20,000 replicas.
MAX_BYTES = 1 << 20
#: Stands for the topic id in a line that takes those before it back.
_NONE: Final = "-"


def append(files: Files, root: str, replicas: Iterable[tuple[TopicPartition, TopicId]]) -> None:
    """Note the ids of replicas whose files are written; durable with the root. Raises OSError."""
    _write(
        files,
        root,
        [f"{names.directory_name(key)} {topic_id_to_text(topic_id)}" for key, topic_id in replicas],
    )


def take_back(files: Files, root: str, replicas: Iterable[TopicPartition]) -> None:
    """Take back what is noted of earlier replicas of these names. Raises OSError.

    Durable before a directory of the name is made again: a creation that is cut short before its
    own note must not take the topic of the replica before (V23).
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
            # Every replica has its own id on disk then.
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
    """Return the ids in the file; lines without a partition and a whole id are skipped."""
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
