"""The file `moved-from` of a replica that moved between log directories: it names the old
directories (D11).

The file names every log directory that may still have an older copy: the directory from which the
replica moved, and directories where an earlier removal failed. If the broker finds two copies of a
replica at its start, the copy whose `moved-from` file names the other copy's directory is newer.
The lengths of the copies do not show which copy is newer, because the newer copy may have been
truncated. If a replica moved away and back, two copies may name each other; the copy with the
larger number of moves is newer. The `moved-from` file is removed when no older copy of the replica
is left.
"""

from __future__ import annotations

from typing import NamedTuple


class MovedFrom(NamedTuple):
    """The content of a `moved-from` file."""

    #: Directories that may have older copies, the directory of the latest move last.
    paths: tuple[str, ...]
    #: Number of moves of the replica since it last had only one copy.
    moves: int = 1

    def is_newer_than(self, own_path: str, other_path: str, other: MovedFrom | None) -> bool:
        """Return whether a replica in `own_path` replaced the copy in `other_path`."""
        if other_path not in self.paths:
            return False
        return other is None or own_path not in other.paths or self.moves > other.moves


def after_move(source: str, before: MovedFrom | None, target: str) -> MovedFrom:
    """Return the content of the file after a move from `source` to `target`; `before` was its
    content in `source`.
    """
    if before is None:
        return MovedFrom((source,))
    older = [path for path in before.paths if path not in (source, target)]
    return MovedFrom((*older, source), before.moves + 1)


def format_moved_from(content: MovedFrom) -> bytes:
    """Return the bytes of a `moved-from` file."""
    return "".join(f"{line}\n" for line in (*content.paths, content.moves)).encode()


def parse_moved_from(data: bytes) -> MovedFrom | None:
    """Parse a `moved-from` file; return None if it is empty. In an old version, the file has only a
    path.
    """
    *paths, last = data.decode("utf-8", "replace").split("\n")[:-1] or [""]
    if not last.isdecimal():
        return MovedFrom((*paths, last)) if last else None
    return MovedFrom(tuple(paths), int(last)) if paths else None
