"""`log.dirs`: the log directories of a broker (D1), checked before anything is opened.

Two directories that are one, or one inside another, would have the same files counted, cleaned and
failed twice. Links are followed later, by the lock in each directory.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

from tidelog.core.config_keys import comma_list
from tidelog.core.errors import ConfigError

#: Kafka's default of log.dir.
DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"


def read_log_dirs(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return `log.dirs`, else `log.dir`, else Kafka's default.

    Raises ConfigError where none is named, one is named twice, or one lies inside another.
    """
    key = "log.dirs" if properties.get("log.dirs", "").strip() else "log.dir"
    value = properties.get(key, DEFAULT_LOG_DIR)
    directories = [entry if entry == "/" else entry.rstrip("/") for entry in comma_list(value)]
    if not directories:
        raise ConfigError(f"{key}={value!r} names no directory: a comma list expected")
    found: dict[str, str] = {}
    for directory in directories:
        plain = posixpath.normpath(directory)
        if plain in found:
            raise ConfigError(
                f"{key}={value!r} names a directory twice: {found[plain]} and {directory}"
            )
        found[plain] = directory
    for plain, directory in found.items():
        parent = posixpath.dirname(plain)
        while parent not in found and parent != posixpath.dirname(parent):
            parent = posixpath.dirname(parent)
        if parent in found and parent != plain:
            raise ConfigError(
                f"{key}={value!r}: {directory} lies inside {found[parent]};"
                " directories that are apart expected"
            )
    return tuple(directories)
