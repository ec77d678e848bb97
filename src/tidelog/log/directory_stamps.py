"""Writes of a broker's stamp, the id of its last metadata-store transaction, to its log directories
(E8).

Each directory has at most one write of a stamp under way; a newer stamp waits until that write
ends. A directory that hangs delays neither the other directories nor the broker's registration. If
the write of a stamp fails, for example on a full disk, the directory keeps its previous stamp. An
old stamp in a log directory is harmless: only a metadata store with a still older stamp counts as
restored from an older copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidelog.core.completion import Completion
from tidelog.core.ports import Files, Work
from tidelog.core.types import NO_STAMP
from tidelog.log.directory_disk import DirectoryDisk
from tidelog.log.directory_files import META_PROPERTIES, format_meta_properties


class DirectoryStamps:
    """The writer of a broker's stamp (its last metadata-store transaction) to its log
    directories.
    """

    def __init__(self, directories: Callable[[], Sequence[DirectoryDisk]]) -> None:
        """`directories` returns the log directories in use, without failed ones."""
        self._directories = directories
        self._data = b""
        #: Directories to which a write of the broker's stamp is under way.
        self._writing: dict[str, None] = {}
        self._is_written: Completion[None] | None = None

    def keep(self, cluster_id: str, broker_id: int, stamp: int, marks: Sequence[str] = ()) -> None:
        """Begin to write a stamp and the `marks` of restored metadata stores to all directories."""
        if stamp == NO_STAMP:
            return
        self._data = format_meta_properties(cluster_id, broker_id, stamp, marks)
        for directory in self._directories():
            self._write(directory)

    async def written(self) -> None:
        """Wait until each directory has the stamp or has failed to write it."""
        while self._writing:
            if self._is_written is None:
                self._is_written = Completion()
            await self._is_written

    def _write(self, directory: DirectoryDisk) -> None:
        if directory.failure is not None or directory.path in self._writing:
            return
        self._writing[directory.path] = None
        path, data = f"{directory.path}/{META_PROPERTIES}", self._data

        def replace(files: Files) -> None:
            files.replace_file(path, data, sync=True)

        write = directory.lane.submit(replace, Work.SLOW, "stamp")
        write.then(partial(self._ended, directory, data))

    def _ended(self, directory: DirectoryDisk, data: bytes, write: Completion[None]) -> None:
        del self._writing[directory.path]
        if write.error is not None:
            directory.failed(write.error)
        if data != self._data:
            self._write(directory)
        is_written = self._is_written
        if not self._writing and is_written is not None:
            self._is_written = None
            is_written.resolve(None)
