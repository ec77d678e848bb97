"""The offset table of a copy: the target offset of each source offset, or why there is none.

The table of a partition consists of pieces: source offset ranges that follow each other without a
gap, in the source and in the target. In a piece of the offset table with records, source and target
offsets differ by a constant. A piece of the offset table without records has a reason: transaction
markers, aborted records, or offsets that no longer exist.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.core.errors import TidelogError

RECORDS: Final = "records"
#: Transaction markers and other control records.
MARKERS: Final = "markers"
#: Records of aborted transactions.
ABORTED: Final = "aborted"
#: Source offsets without a record: compaction removed the record, or none was written.
ABSENT: Final = "absent"
#: Records that were deleted before they were copied; the user allowed the copy to skip them.
DELETED: Final = "deleted"


class OffsetMapError(TidelogError):
    """The error for pieces of an offset table that overlap or leave a gap; the message names the
    offsets.
    """


class Piece(NamedTuple):
    """A piece of the table: source offsets `[start, end)`, and the target offset of `start`."""

    start: int
    end: int
    target: int
    kind: str = RECORDS

    @property
    def records(self) -> int:
        """The number of records that were copied for this piece."""
        return self.end - self.start if self.kind == RECORDS else 0

    @property
    def target_end(self) -> int:
        """The target offset after the last record of the piece."""
        return self.target + self.records


class OffsetTable:
    """The offset table of one partition."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self.pieces: list[Piece] = []
        for piece in pieces:
            self.add(piece)

    @property
    def start(self) -> int | None:
        """The first source offset; None if nothing was copied."""
        return self.pieces[0].start if self.pieces else None

    @property
    def end(self) -> int | None:
        """The source offset at which the copy continues."""
        return self.pieces[-1].end if self.pieces else None

    @property
    def target_end(self) -> int | None:
        """The target offset at which the copy continues."""
        return self.pieces[-1].target_end if self.pieces else None

    @property
    def records(self) -> int:
        """The number of records that were copied for all pieces."""
        return sum(piece.records for piece in self.pieces)

    def count(self, kind: str) -> int:
        """Return the number of source offsets of a kind, such as aborted records."""
        return sum(piece.end - piece.start for piece in self.pieces if piece.kind == kind)

    def add(self, piece: Piece) -> None:
        """Append a piece to the offset table; merge it with the last piece if both are of one kind.

        Raises OffsetMapError for a piece that does not begin where the last piece ends.
        """
        if piece.end <= piece.start:
            return
        if not self.pieces:
            self.pieces.append(piece)
            return
        last = self.pieces[-1]
        if (piece.start, piece.target) != (last.end, last.target_end):
            raise OffsetMapError(
                f"source offset {piece.start} at target offset {piece.target} does not follow"
                f" source offset {last.end} at target offset {last.target_end}"
            )
        if piece.kind == last.kind:
            self.pieces[-1] = last._replace(end=piece.end)
        else:
            self.pieces.append(piece)

    def translate(self, offset: int) -> int | None:
        """Return the target offset of the first copied record at or after a source offset.

        Returns None for an offset that the copy has not reached.
        """
        if not self.pieces or offset > self.pieces[-1].end:
            return None
        at = bisect_right(self.pieces, offset, key=lambda piece: piece.start) - 1
        if at < 0:
            return self.pieces[0].target
        piece = self.pieces[at]
        if piece.kind == RECORDS:
            return piece.target + min(offset, piece.end) - piece.start
        return piece.target_end

    def between(self, start: int, end: int) -> list[Piece]:
        """Return the pieces of the table, cut to the source offsets `[start, end)`."""
        found = []
        for piece in self.pieces:
            low, high = max(piece.start, start), min(piece.end, end)
            if low < high:
                shift = low - piece.start if piece.kind == RECORDS else 0
                found.append(Piece(low, high, piece.target + shift, piece.kind))
        return found


def pieces_of(offsets: Sequence[int], target: int) -> list[Piece]:
    """Return the offset table's pieces for records copied to the offsets from `target` on."""
    found: list[Piece] = []
    for place, offset in enumerate(offsets):
        if found and found[-1].end == offset:
            found[-1] = found[-1]._replace(end=offset + 1)
            continue
        if found:
            found.append(Piece(found[-1].end, offset, target + place, ABSENT))
        found.append(Piece(offset, offset + 1, target + place))
    return found
