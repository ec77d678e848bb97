"""Rolled-back versions: commits whose recorded offsets no longer match the table's rows.

A RESTORE of another tool is a commit that brings back the files of an earlier version. The undone
commits stay in the table's log with their recorded offsets (`CommitNote`), although the rows at
these offsets are gone. A backup of a commit file, put back over the newest commit file, has the
opposite effect: the table has rows at offsets that no commit records. After a RESTORE or a restored
commit file, an ingest must not continue from the recorded offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.state import LakeCommit

#: Maximum number of partitions that an error message names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class NotedCommits:
    """The `newest` commit with recorded offsets, and the newest whose offsets match the rows."""

    newest: LakeCommit | None = None
    effective: LakeCommit | None = None
    #: The version to which the table was restored, below 0 if unknown; None without a restore.
    restored: int | None = None

    @property
    def is_rolled_back(self) -> bool:
        """Whether the table was restored to a version without the newest commit's rows."""
        is_newest = self.effective is not None and self.effective is self.newest
        return self.restored is not None and not is_newest


def noted_commits(commits: Iterable[LakeCommit]) -> NotedCommits:
    """Return the newest commit with recorded offsets, and the newest whose offsets match the rows.

    `commits` begin with the newest.
    """
    newest: LakeCommit | None = None
    restored: int | None = None
    for commit in commits:
        if restored is not None and commit.version > restored:
            newest = newest or (commit if commit.note is not None else None)
        elif commit.restored is not None:
            restored = commit.restored
        elif commit.note is not None:
            return NotedCommits(newest or commit, commit, restored)
    return NotedCommits(newest, None, restored)


def rollback_of(commits: NotedCommits, location: str) -> str:
    """Return why the newest recorded offsets no longer match the rows; empty if they do."""
    newest = commits.newest
    if newest is not None and newest.note is not None and newest.is_misplaced:
        return (
            f"{location} has the commit of version {newest.note.version} in the place of version"
            f" {newest.version}: it was put back from a backup. Put the table's log right, or"
            " ingest to another table; `tidelog pipeline prove` names the rows"
        )
    if not commits.is_rolled_back:
        return ""
    if commits.newest is None or commits.newest.note is None:
        return (
            f"{location} was restored to an earlier version, and its log no longer has the commits"
            " of ingests; ingest to another table"
        )
    effective = commits.effective.note if commits.effective is not None else None
    ends = {} if effective is None else {run.partition: run.end for run in effective.partitions}
    gone = [
        f"partition {run.partition} from {ends.get(run.partition, run.start)} to {run.end}"
        for run in commits.newest.note.partitions
        if ends.get(run.partition, run.start) < run.end
    ]
    more = f" and of {len(gone) - _NAMED} more partitions" if len(gone) > _NAMED else ""
    offsets = f": offsets of {', '.join(gone[:_NAMED])}{more} are gone" if gone else ""
    known = commits.restored is not None and commits.restored >= 0
    target = f"version {commits.restored}" if known else "an earlier version"
    version = commits.newest.version
    return (
        f"{location} was restored to {target} after an ingest had committed version {version}"
        f"{offsets}. Restore it to version {version}, or ingest to another table"
    )
