"""The commit protocol of lake tables, as pure decisions.

A run reads the table, stages files with the records after the table's last offsets, and commits
files and offsets on top of the version that it has read. The store accepts one commit for each
version. After any answer but a success, the run reads the table again, and `next_step` decides.

A vacuum deletes files that no commit refers to; these files may belong to a run that has yet to
commit. Before it deletes files, the vacuum commits a *fence*: a version number in the table's
state. No run that began at a version below the fence can commit afterwards. The commit of such a
run conflicts with the commit that set the fence; the run then reads the table again and finds the
fence. Clocks and the ages of files can only make a run lose its work; they never decide what the
table contains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from tidelog.core.dataclass import dataclass

#: The version of a table that does not exist.
NO_VERSION: Final = -1


class CommitAnswer(Enum):
    """The answer of a store to a commit."""

    COMMITTED = "committed"
    #: The table already has a commit with this version. It may be the run's own commit, whose first
    #: answer was lost.
    CONFLICT = "conflict"
    #: The answer was lost: the commit may exist, appear later, or never appear.
    LOST = "lost"


class CommitObstacle(Enum):
    """The reason why a run cannot commit its files and must start over."""

    FENCED = "a vacuum has given up the run"
    OVERTAKEN = "another run has landed these offsets, or has changed the rows of an upsert"
    REPLACED = "the files to replace are no longer part of the table"


@dataclass(frozen=True, slots=True)
class PlannedOffsets:
    """Offsets `[start, end)` of a partition, and the table's next offset when they were planned."""

    partition: int
    #: The table's next offset for the partition when the run was planned; None if the table had no
    #: offset of the partition.
    expected: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """A run's staged files: an ingest adds files with new offsets, a merge replaces files.

    An upsert does both: it adds new offsets, and replaces files that have rows which the new rows
    replace.
    """

    run: str
    #: The table's version when the run began.
    began: int
    offsets: tuple[PlannedOffsets, ...] = ()
    #: Paths of files that the commit removes.
    inputs: tuple[str, ...] = ()
    #: Whether the run has compared its rows with all rows of the table. `offsets` then has all
    #: partitions of the table, and no other offsets may land before the run's commit.
    is_upsert: bool = False


@dataclass(frozen=True, slots=True)
class TableView:
    """The state of the table from which `next_step` decides."""

    version: int
    #: By partition: the offset that the next committed row of the partition must have.
    following: Mapping[int, int]
    #: Runs that began when the table had a lower version than this cannot commit.
    fence: int
    #: The runs that committed after the version on top of which the attempt was last sent.
    landed: Collection[str]
    #: Paths of all files that the table has at `version`. The caller leaves them out for a commit
    #: attempt without `inputs`: only such input files must still be in the table.
    files: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class CommitAgain:
    """Decision: send the commit again, on top of `version` of the table."""

    version: int


@dataclass(frozen=True, slots=True)
class LandedBefore:
    """Decision: do nothing more, because the table contains the attempt.

    An earlier commit of the attempt succeeded, and only its answer was lost.
    """


@dataclass(frozen=True, slots=True)
class StartOver:
    """Decision: delete the staged files, and begin a new run with the table as it is now."""

    obstacle: CommitObstacle


NextStep = CommitAgain | LandedBefore | StartOver


def next_step(attempt: CommitAttempt, view: TableView) -> NextStep:
    """Return what a run does next, given the state of the table after an unsuccessful commit.

    The files of an attempt that starts over may be deleted: each of its commits was for a version
    that exists by now, so no commit of the attempt can succeed later.
    """
    if attempt.run in view.landed:
        return LandedBefore()
    if attempt.began < view.fence:
        return StartOver(CommitObstacle.FENCED)
    if any(view.following.get(each.partition) != each.expected for each in attempt.offsets):
        return StartOver(CommitObstacle.OVERTAKEN)
    compared = sum(each.expected is not None for each in attempt.offsets)
    if attempt.is_upsert and len(view.following) != compared:
        return StartOver(CommitObstacle.OVERTAKEN)
    if any(path not in view.files for path in attempt.inputs):
        return StartOver(CommitObstacle.REPLACED)
    return CommitAgain(view.version)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of a run, as a listing of the table's store shows it."""

    path: str
    run: str
    began: int
    modified_ms: int = 0


def fence_for(staged: Iterable[StagedFile], running: Collection[str], version: int) -> int:
    """Return the highest fence that a commit on top of `version` can set without stopping a run of
    `running`.

    The caller must commit the fence before it deletes files of runs that began below it.
    """
    began = [each.began for each in staged if each.run in running]
    return min([*began, version + 1])


def abandoned(
    staged: Sequence[StagedFile], fence: int, referenced: Collection[str]
) -> list[StagedFile]:
    """Return the staged files that may be deleted once `fence` is part of the table.

    `staged` lists the staged files as they were before `fence` was committed. `referenced` has the
    files of all versions that readers may still use, and of the fence's version.
    """
    return [each for each in staged if each.began < fence and each.path not in referenced]
