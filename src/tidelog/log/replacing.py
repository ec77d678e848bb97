"""Many files of a directory replaced with two waits for the disk: old or new, never half.

`Files.replace_file` syncs each file before its name is taken over, and the name after: 4 ms a file,
20 s for those of a thousand logs. Here all contents are written beside, the volume is synced, all
names are taken over, and the volume is synced again. A crash in between leaves old files, and some
beside them that the next start removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.core.ports import Files, Lane, Work
from tidelog.log import names

#: Files replaced by one operation.
_FILES_PER_OPERATION = 256

#: (path, content)
Replacement = tuple[str, bytes]


def write_beside(files: Files, path: str, data: bytes) -> None:
    """Write what `path` will hold. Raises OSError."""
    handle = files.open(path + names.TEMPORARY, write=True, create=True)
    try:
        files.truncate(handle, 0)
        written = 0
        while written < len(data):
            written += files.pwritev(handle, [data[written:]], written)
    finally:
        files.close(handle)


async def put_in_place(lane: Lane, paths: Sequence[str]) -> None:
    """Make everything on the volume durable, and give files that were written beside their names.
    Raises StorageError."""
    root = lane.directory
    await lane.submit(lambda files: files.sync_volume(root), Work.SLOW, "sync volume")
    if not paths:
        return
    for first in range(0, len(paths), _FILES_PER_OPERATION):
        some = paths[first : first + _FILES_PER_OPERATION]
        await lane.submit(lambda files, some=some: _rename(files, some), Work.SLOW, "rename")  # type: ignore[misc]
    await lane.submit(lambda files: files.sync_volume(root), Work.SLOW, "sync volume")


async def replace_all(lane: Lane, replacements: Iterable[Replacement]) -> None:
    """Replace files; also everything else on the volume is durable afterwards. Raises
    StorageError."""
    paths: dict[str, None] = {}
    some: list[Replacement] = []
    for one in replacements:
        some.append(one)
        paths[one[0]] = None
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
