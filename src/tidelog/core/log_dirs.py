"""The log directories of a broker (`log.dirs`, D1), checked before any of them is opened.

No directory may be named twice or lie inside another, or the broker would count, clean and fail the
same files twice. A process resolves symbolic links before it opens any directory (`runtime.main`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.core.config_keys import comma_list
from tidelog.core.errors import ConfigError

#: Kafka's default of log.dir.
DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"


def read_log_dirs(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of `log.dirs`, else of `log.dir`, else Kafka's default.

    Raises ConfigError if the value names no directory, names a directory twice, or names a
    directory inside another.
    """
    key = "log.dirs" if properties.get("log.dirs", "").strip() else "log.dir"
    value = properties.get(key, DEFAULT_LOG_DIR)
    directories = [entry if entry == "/" else entry.rstrip("/") for entry in comma_list(value)]
    if not directories:
        raise ConfigError(f"{key}={value!r} names no directory: a comma list expected")
    check_apart(f"{key}={value!r}", {each: each for each in directories}, directories)
    return tuple(directories)


def check_apart(text: str, places: Mapping[str, str], directories: Sequence[str]) -> None:
    """Raise ConfigError if two directories are the same, or one lies inside the other.

    `places` has for each directory the path to compare: the directory's own name, or its path after
    following symbolic links. `text` is the configuration that names the directories, for the error
    message.
    """
    found: dict[str, str] = {}
    for directory in directories:
        place = posixpath.normpath(places[directory])
        if place in found:
            raise ConfigError(
                f"{text} names a directory twice: {found[place]} and {directory}"
                f"{_behind_links(directory, place)}"
            )
        found[place] = directory
    for place, directory in found.items():
        parent = posixpath.dirname(place)
        while parent not in found and parent != posixpath.dirname(parent):
            parent = posixpath.dirname(parent)
        if parent in found and parent != place:
            raise ConfigError(
                f"{text}: {directory} lies inside {found[parent]}"
                f"{_behind_links(directory, place)}; directories that are apart expected"
            )


def _behind_links(directory: str, place: str) -> str:
    return "" if posixpath.normpath(directory) == place else f" (links lead to {place})"
