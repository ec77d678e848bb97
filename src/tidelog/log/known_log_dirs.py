"""What a broker's log directories say of each other: which there were, and what they held (D6).

Each directory has one small file with all directories of the last start that worked. A start
compares it with what it finds. A directory that is empty and lies on the volume above the one it
was on is not mounted: new replicas would fill the wrong disk. One that `log.dirs` names no more, or
that is empty because its disk was replaced, must leave its replicas room on what is there now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NAME: Final = "known-log-dirs"
_VERSION: Final = 1


class KnownLogDir(NamedTuple):
    """A log directory as it was."""

    #: Where its volume was mounted: the directory itself or one above it.
    mount_point: str
    #: Of its replicas.
    size_bytes: int


class FoundLogDir(NamedTuple):
    """A log directory as a start finds it."""

    #: Nothing of a broker is in it yet.
    is_new: bool
    mount_point: str
    #: Of its volume: directories of one volume share its room.
    device: int
    usable_bytes: int
    known: Mapping[str, KnownLogDir]


class LackingRoom(NamedTuple):
    """Replicas that have to be copied again and do not fit."""

    #: Directories that held them: dropped from `log.dirs`, or empty now.
    log_dirs: Sequence[str]
    needed_bytes: int
    usable_bytes: int


def format_known(known: Mapping[str, KnownLogDir]) -> bytes:
    """Return the content of the file."""
    log_dirs = {
        path: {"mount": each.mount_point, "bytes": each.size_bytes} for path, each in known.items()
    }
    return json.dumps({"version": _VERSION, "log_dirs": log_dirs}, indent=1).encode() + b"\n"


def parse_known(data: bytes) -> dict[str, KnownLogDir]:
    """Read the file. Raises ValueError with the reason."""
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
    """Return what several directories know: the innermost mount and the greatest size count."""
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
    """Return the directories that are empty, and whose volume is not mounted where it was."""
    known = united(each.known for each in found.values())
    return [
        path
        for path, each in found.items()
        if each.is_new and path in known and len(each.mount_point) < len(known[path].mount_point)
    ]


def lacking_room(found: Mapping[str, FoundLogDir], failed: Iterable[str]) -> LackingRoom | None:
    """Return which replicas do not fit on the directories that were found; None where all do.

    What a `failed` directory held may come back with it: no room is asked for.
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
