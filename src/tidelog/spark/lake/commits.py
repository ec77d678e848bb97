"""Queries of a table's log: which commits wrote rows, dead-letter files or new columns.

A commit of tidelog carries a note with the id of its run, the offsets of its rows, and its
dead-letter files.

The functions work for every table format, because they read the log only through `Lake`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import Final

from tidelog.spark.lake.state import TableError
from tidelog.spark.lake.table import Lake

#: The version of a table's first commit with rows. If the log's oldest commit is newer, the log may
#: lack commits with rows.
_FIRST_VERSION: Final = 1


def landed_runs(lake: Lake, after: int) -> list[str]:
    """Return the ids of the runs that committed after a version, newest first; raise TableError."""
    return [commit.note.run for commit in lake.commits(after) if commit.note is not None]


def first_known(lake: Lake) -> int:
    """Return the oldest version whose commit the table's log still has. Raises TableError."""
    return min((commit.version for commit in lake.commits()), default=lake.newest() + 1)


def offsets_before(lake: Lake, columns: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return, by column and partition, the offset below which rows may lack the column.

    A run adds a column before it writes rows with it. If older commits were cleaned from the log,
    the oldest remaining commit may have added its columns. Raises TableError.
    """
    commits = lake.commits()
    noted = [commit for commit in commits if commit.note is not None]
    names = cache(lambda version: lake.schema(version).names)
    found: dict[str, dict[int, int]] = {}
    for column in columns:
        # Columns are never removed, so a binary search finds the newest version without the column.
        place = bisect_left(noted, 1, key=lambda each: column not in names(each.version))
        if noted and place == len(noted) and commits[-1].version > _FIRST_VERSION:
            place -= 1
        note = noted[place].note if place < len(noted) else None
        found[column] = {run.partition: run.end for run in note.partitions} if note else {}
    return found


def dead_letters(lake: Lake) -> list[str]:
    """Return the paths of the dead-letter files that commits in the table's log name."""
    notes = (commit.note for commit in lake.commits())
    return [path for note in notes if note is not None for path in note.dead_letters]


def version_at(lake: Lake, time_ms: int) -> int:
    """Return the version that was the newest at a time in ms since 1970. Raises TableError."""
    for since_ms, version in lake.history():
        if since_ms <= time_ms:
            return version
    raise TableError(f"{lake.location} has no version of that time in its log any more")


def version_with(lake: Lake, partition: int, offset: int) -> int:
    """Return the first version with all records of a partition below `offset`; raise TableError."""
    found = reached = None
    for commit in lake.commits():
        if commit.note is None:
            continue
        ends = (run.end for run in commit.note.partitions if run.partition == partition)
        end = next(ends, None)
        reached = end if reached is None else reached
        if end is None or end < offset:
            break
        found = commit.version
    if found is None:
        has = "nothing" if reached is None else f"offsets below {reached}"
        raise TableError(
            f"{lake.location} has {has} of partition {partition}, not offsets below {offset}"
        )
    return found
