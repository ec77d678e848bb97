"""A survey of all log directories before the broker opens them (D6).

`tidelog.log.known_log_dirs` decides which directories the broker can use. Each directory holds a
list of all directories of its broker. A broker that never had more than one directory neither reads
nor writes this list.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from errno import ENXIO
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.errors import ConfigError, StorageError
from tidelog.core.ports import Files, Work
from tidelog.log import known_log_dirs
from tidelog.log.directory_files import META_PROPERTIES
from tidelog.log.known_log_dirs import FoundLogDir, KnownLogDir

if TYPE_CHECKING:
    from tidelog.broker.services import Services
    from tidelog.core.ports import Lane
    from tidelog.log.log_directory import LogDirectory

#: The broker records a directory's size again when the size differs from the recorded size by more
#: than the recorded size divided by `_CHANGE`.
_CHANGE: Final = 8
_ROOM_KEY: Final = "log.dirs.room.check.enable"


class LogDirSurvey:
    """The survey that one broker makes of its log directories before it opens them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._found: dict[str, FoundLogDir] = {}
        self._written: dict[str, KnownLogDir] = {}

    async def look(self, lanes: Mapping[str, Lane]) -> dict[str, StorageError]:
        """Survey the directories; return, by path, why a directory cannot be used."""
        errors: dict[str, StorageError] = {}
        for path, lane in lanes.items():
            try:
                found, problem = await lane.submit(partial(_look, path=path), Work.SLOW, "survey")
            except StorageError as error:
                if not error.is_device_failure:
                    raise
                errors[path] = error
                continue
            self._found[path] = found
            if problem:
                self._log(
                    logging.WARNING, f"{path}/{known_log_dirs.NAME} is not believed: {problem}"
                )
        known = self._known()
        for path in known_log_dirs.missing_mounts(self._found):
            del self._found[path]
            errors[path] = StorageError(
                path, "open", path, ENXIO, self._services.clock.wall_ms(),
                f"the volume that was mounted at {known[path].mount_point} is not there, and the"
                f" directory is empty: mount it, or, where the disk is gone for good, remove {path}"
                f" from {known_log_dirs.NAME} in the other log directories",
            )  # fmt: skip
        return errors

    def check_room(self, failed: Sequence[str]) -> None:
        """Raise ConfigError if replicas of a removed or replaced directory do not fit elsewhere."""
        lacking = known_log_dirs.lacking_room(self._found, failed)
        if lacking is None:
            return
        text = (
            f"log.dirs: {', '.join(lacking.log_dirs)} held replicas of {lacking.needed_bytes}"
            " bytes, which have to be copied again, and the log directories have room for"
            f" {lacking.usable_bytes}"
        )
        if self._services.config.log_dirs_room_check_enable:
            raise ConfigError(f"{text}: make room, or set {_ROOM_KEY}=false to start all the same")
        self._log(logging.WARNING, f"{text}; {_ROOM_KEY} is false")

    async def write(
        self, directories: Sequence[LogDirectory]
    ) -> list[tuple[LogDirectory, StorageError]]:
        """Write a changed list of all directories into each of them; return failed directories.

        If a directory fails during the write, the next write repeats the list in every directory.
        """
        if len(self._found) < 2 and not self._knows_others():
            return []
        known = {
            path: each
            for path, each in self._known().items()
            if path in self._services.config.log_dirs
        }
        for directory in directories:
            found = self._found.get(directory.path)
            if found is not None:
                size_bytes = sum(log.size_bytes for log in directory.logs.values())
                known[directory.path] = KnownLogDir(found.mount_point, size_bytes)
        if not _has_changed(self._written, known):
            return []
        data = known_log_dirs.format_known(known)
        failures: list[tuple[LogDirectory, StorageError]] = []
        for directory in directories:
            path = f"{directory.path}/{known_log_dirs.NAME}"
            try:
                await directory.lane.submit(
                    partial(_replace, path=path, data=data), Work.SLOW, "note log directories"
                )
            except StorageError as error:
                failures.append((directory, error))
        if failures:
            return failures
        self._written = known
        # The written lists no longer have the directories that were removed from `log.dirs`, so
        # these directories cause no error from now on.
        self._found = {path: each._replace(known=known) for path, each in self._found.items()}
        return []

    def _known(self) -> dict[str, KnownLogDir]:
        return known_log_dirs.united(each.known for each in self._found.values())

    def _knows_others(self) -> bool:
        return any(path not in self._found for path in self._known())

    def _log(self, level: int, text: str) -> None:
        self._services.tracer.log("server", level, text)


def _look(files: Files, path: str) -> tuple[FoundLogDir, str]:
    """Return the state of a log directory, and why its file of known log directories is unreadable.

    The reason is empty if the file is readable or missing.
    """
    files.mkdir(path)
    present = files.listdir(path)
    known: Mapping[str, KnownLogDir] = {}
    problem = ""
    if known_log_dirs.NAME in present:
        try:
            known = known_log_dirs.parse_known(files.read_file(f"{path}/{known_log_dirs.NAME}"))
        except ValueError as error:
            problem = str(error)
    place = files.volume_place(path)
    found = FoundLogDir(
        is_new=META_PROPERTIES not in present,
        mount_point=place.mount_point,
        device=place.device,
        usable_bytes=files.volume_size(path).usable_bytes,
        known=known,
    )
    return found, problem


def _replace(files: Files, path: str, data: bytes) -> None:
    files.replace_file(path, data, sync=True)


def _has_changed(before: Mapping[str, KnownLogDir], now: Mapping[str, KnownLogDir]) -> bool:
    if before.keys() != now.keys():
        return True
    return any(
        before[path].mount_point != each.mount_point
        or abs(before[path].size_bytes - each.size_bytes) * _CHANGE > before[path].size_bytes
        for path, each in now.items()
    )
