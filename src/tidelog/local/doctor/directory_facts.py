"""The facts about a log directory that the doctor knows: its owner, its entries, and the process
that holds its lock.

The doctor reads the directory, and never locks or changes it. The holder of the lock comes from
/proc/locks, so the doctor does not disturb a broker that is starting.
"""

from __future__ import annotations

import os

from tidelog.core.dataclass import dataclass
from tidelog.log import names
from tidelog.log.directory_files import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    MetaProperties,
    parse_meta_properties,
)
from tidelog.log.log_directory import KNOWN_FILES


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A log directory; `trouble` is the reason why it cannot be read, or empty."""

    path: str
    trouble: str = ""
    is_missing: bool = False
    is_writable: bool = True
    #: The owner in meta.properties; None if there is no such file, or for the reason in
    #: `owner_trouble`.
    owner: MetaProperties | None = None
    owner_trouble: str = ""
    replicas: int = 0
    strays: int = 0
    futures: int = 0
    #: Entries of the directory that no broker writes, such as files of a user.
    foreign: tuple[str, ...] = ()
    is_clean: bool = False
    #: Id of the process that holds the directory's lock; None if no process holds the lock.
    holder: int | None = None


def read_directory(path: str) -> DirectoryFacts:
    """Return the facts about a log directory."""
    try:
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return DirectoryFacts(path, "there is no such directory", is_missing=True)
    except OSError as error:
        return DirectoryFacts(path, error.strerror or str(error))
    owner, owner_trouble = _owner(path, entries)
    replicas = strays = futures = 0
    foreign = []
    for name in entries:
        aside = names.parse_aside_name(name)
        if aside is not None:
            strays += aside.suffix == names.STRAY_SUFFIX
            futures += aside.suffix == names.FUTURE_SUFFIX
        elif names.parse_directory_name(name) is not None and _has_segment(f"{path}/{name}"):
            replicas += 1
        elif name not in KNOWN_FILES and not name.endswith(names.TEMPORARY):
            foreign.append(name)
    return DirectoryFacts(
        path,
        is_writable=os.access(path, os.W_OK | os.X_OK),
        owner=owner,
        owner_trouble=owner_trouble,
        replicas=replicas,
        strays=strays,
        futures=futures,
        foreign=tuple(foreign),
        is_clean=CLEAN_SHUTDOWN in entries,
        holder=_holder(path),
    )


def _has_segment(path: str) -> bool:
    """Return whether a directory has a log file; True for an unreadable directory."""
    try:
        entries = os.listdir(path)
    except NotADirectoryError:
        return False
    except OSError:
        return True
    parsed = map(names.parse_offset_name, entries)
    return any(each is not None and each[1] == names.LOG for each in parsed)


def _owner(path: str, entries: list[str]) -> tuple[MetaProperties | None, str]:
    if META_PROPERTIES not in entries:
        return None, ""
    try:
        with open(f"{path}/{META_PROPERTIES}", "rb") as file:
            return parse_meta_properties(file.read()), ""
    except OSError as error:
        return None, error.strerror or str(error)
    except ValueError as error:
        return None, str(error)


def _holder(path: str) -> int | None:
    """Return the process with an exclusive lock on the directory's `.lock`."""
    try:
        inode = os.stat(f"{path}/.lock").st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    return holder_of(inode, lines)


def holder_of(inode: int, locks: list[str]) -> int | None:
    """Return the process with an exclusive flock on an inode, by the lines of /proc/locks."""
    for line in locks:
        fields = line.split()
        if len(fields) < 6 or fields[1] != "FLOCK" or fields[3] != "WRITE":
            continue
        if fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None
