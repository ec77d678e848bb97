"""The file that says in whose place a replica was put by a move between directories (D11).

It names every log directory in which an older copy may still be: the one that the replica came
from, and those where an earlier removal was refused. A start takes the replica that names the
other's directory for the newer copy, however long the other one is: the newer one may have been
truncated. A replica that moves away and back may leave two copies that name each other. Then the
number of moves decides. The file goes when no older copy is left.
"""

from __future__ import annotations

from typing import NamedTuple


class MovedFrom(NamedTuple):
    """The content of the file."""

    #: Directories of older copies, the latest one last.
    paths: tuple[str, ...]
    #: Number of moves of the replica since it had one copy.
    moves: int = 1

    def is_newer_than(self, own_path: str, other_path: str, other: MovedFrom | None) -> bool:
        """Return whether a replica in `own_path` took the place of the one in `other_path`."""
        if other_path not in self.paths:
            return False
        return other is None or own_path not in other.paths or self.moves > other.moves


def after_move(source: str, before: MovedFrom | None, target: str) -> MovedFrom:
    """Return the content for a replica that moves from `source`, where it had that of `before`."""
    if before is None:
        return MovedFrom((source,))
    older = [path for path in before.paths if path not in (source, target)]
    return MovedFrom((*older, source), before.moves + 1)


def format_moved_from(content: MovedFrom) -> bytes:
    """Return the bytes of the file."""
    return "".join(f"{line}\n" for line in (*content.paths, content.moves)).encode()


def parse_moved_from(data: bytes) -> MovedFrom | None:
    """Read the file, of which an earlier version had one path alone; None for an empty one."""
    *paths, last = data.decode("utf-8", "replace").split("\n")[:-1] or [""]
    if not last.isdecimal():
        return MovedFrom((*paths, last)) if last else None
    return MovedFrom(tuple(paths), int(last)) if paths else None
