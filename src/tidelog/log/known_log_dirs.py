"""The list of a broker's log directories and their contents; each directory keeps a copy of the
list (D6).

Each directory has a small file that lists all directories of the last successful start. At its
start the broker compares the lists in its log directories with the directories that it finds. If a
log directory was on a volume of its own, and is now empty and on the parent directory's volume, its
volume is not mounted. Such a directory is not used, because new replicas would fill the wrong disk.
If a directory was removed from `log.dirs`, or its disk was replaced, the remaining directories must
have room for its replicas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NAME: Final = "known-log-dirs"
_VERSION: Final = 1


class KnownLogDir(NamedTuple):
    """A log directory as the broker found it at an earlier start."""

    #: The mount point of the directory's volume: the directory itself or a parent.
    mount_point: str
    #: Total size of the directory's replicas.
    size_bytes: int


class FoundLogDir(NamedTuple):
    """A log directory as the broker finds it at its present start."""

    #: Whether the directory contains no file of a broker yet.
    is_new: bool
    mount_point: str
    #: Device number of the directory's volume; directories on one volume share its free space.
    device: int
    usable_bytes: int
    known: Mapping[str, KnownLogDir]


class LackingRoom(NamedTuple):
    """Replicas whose log directory is missing, and which the remaining directories have no room to
    hold.
    """

    #: Former log directories of the replicas, removed from `log.dirs` or empty now.
    log_dirs: Sequence[str]
    needed_bytes: int
    usable_bytes: int


def format_known(known: Mapping[str, KnownLogDir]) -> bytes:
    """Return the content of the file that lists the log directories."""
    log_dirs = {
        path: {"mount": each.mount_point, "bytes": each.size_bytes} for path, each in known.items()
    }
    return json.dumps({"version": _VERSION, "log_dirs": log_dirs}, indent=1).encode() + b"\n"


def parse_known(data: bytes) -> dict[str, KnownLogDir]:
    """Parse the file that lists the log directories.

    Raises ValueError with the reason if the content is invalid.
    """
    try:
        read: Any = json.loads(data)
        if read["version"] != _VERSION:
            raise ValueError(f"version is {read['version']}, only {_VERSION} is known")
        known = {
            str(path): KnownLogDir(each["mount"], each["bytes"])
            for path, each in read["log_dirs"].items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it is no list of log directories: {error!r}") from None
    for path, each in known.items():
        if type(each.mount_point) is not str or type(each.size_bytes) is not int:
            raise ValueError(f"{path} has no path of its mount or no number of bytes")
    return known


def united(found: Iterable[Mapping[str, KnownLogDir]]) -> dict[str, KnownLogDir]:
    """Merge the lists of several directories; for each path, keep the deepest mount point and the
    largest size.
    """
    known: dict[str, KnownLogDir] = {}
    for each in found:
        for path, there in each.items():
            before = known.get(path, there)
            known[path] = KnownLogDir(
                max(before.mount_point, there.mount_point, key=len),
                max(before.size_bytes, there.size_bytes),
            )
    return known


def missing_mounts(found: Mapping[str, FoundLogDir]) -> list[str]:
    """Return the log directories that are empty because their volume is not mounted."""
    known = united(each.known for each in found.values())
    return [
        path
        for path, each in found.items()
        if each.is_new and path in known and len(each.mount_point) < len(known[path].mount_point)
    ]


def lacking_room(found: Mapping[str, FoundLogDir], failed: Iterable[str]) -> LackingRoom | None:
    """Return how much space the found directories lack for the missing replicas; None if these
    replicas fit.

    Replicas in `failed` directories need no room, because a failed directory may come back with all
    its replicas.
    """
    kept = set(failed)
    known = united(each.known for each in found.values())
    again = {
        path: each.size_bytes
        for path, each in known.items()
        if each.size_bytes and path not in kept and (path not in found or found[path].is_new)
    }
    volumes = {each.device: each.usable_bytes for each in found.values()}
    needed_bytes, usable_bytes = sum(again.values()), sum(volumes.values())
    if needed_bytes <= usable_bytes:
        return None
    return LackingRoom(sorted(again), needed_bytes, usable_bytes)
