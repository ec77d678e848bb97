"""Deletion of files that dead runs have staged, behind a fence (`protocol`).

A run counts as running while its newest file is younger than a limit, by the clock of the table's
store. A run that is slower, or that has no file yet, loses its work at the fence and starts over.
This vacuum leaves two kinds of files. The table's own vacuum deletes files that a commit has
removed, after its retention. Files of repeated tasks stay beside the files that their run has
committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.commits import first_known, landed_runs
from tidelog.spark.lake.protocol import CommitAnswer, StagedFile, abandoned, fence_for
from tidelog.spark.lake.runs import MOST_COMMITS
from tidelog.spark.lake.staging import new_run, staged_files
from tidelog.spark.lake.state import TableChange, TableError
from tidelog.spark.lake.stores import LakeStore
from tidelog.spark.lake.table import Lake

#: Default age in ms of a run's newest file from which the run counts as dead.
DEAD_AFTER_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The result of a vacuum, which deletes files of runs that died before their commit."""

    #: Paths of the deleted files.
    deleted: tuple[str, ...] = ()
    #: Ids of runs without a commit that count as running.
    running: tuple[str, ...] = ()
    #: The version whose commit set the fence; None if there were no abandoned files.
    version: int | None = None


def vacuum_staged(
    table: Lake, stores: Sequence[LakeStore], *, dead_after_ms: int = DEAD_AFTER_MS
) -> VacuumReport:
    """Delete the files of dead runs without a commit. Raises TableError.

    `stores` are all stores with files of runs: the table's own store, and the store of its dead
    letters.
    """
    for _ in range(MOST_COMMITS):
        # List the staged files first: a file that is staged later may belong to a running run.
        listed = [staged_files(store) for store in stores]
        state = table.read()
        if state.origin is None:
            raise TableError(f"{table.location} is no table: there is nothing to vacuum")
        known = [_uncommitted(table, staged) for staged in listed]
        recent = (
            _recent_runs(store, left, dead_after_ms)
            for store, left in zip(stores, known, strict=True)
        )
        running = tuple(sorted(set().union(*recent)))
        uncommitted = [each for left in known for each in left]
        fence = fence_for(uncommitted, running, state.version)
        if not any(each.began < fence for each in uncommitted):
            return VacuumReport(running=running)
        answer = table.commit(state, TableChange(new_run(), fence=fence))
        if answer is CommitAnswer.COMMITTED:
            referenced = table.referenced()
            deleted: list[str] = []
            for store, left in zip(stores, known, strict=True):
                doomed = [each.path for each in abandoned(left, fence, referenced)]
                store.delete(doomed)
                deleted += doomed
            return VacuumReport(tuple(deleted), running, state.version + 1)
    raise TableError(
        f"{table.location} refused {MOST_COMMITS} commits, or did not answer them; no file was"
        " deleted"
    )


def _uncommitted(table: Lake, staged: Sequence[StagedFile]) -> list[StagedFile]:
    """Return the files of runs that surely have no commit.

    If the log was cleaned since a run began, the run may have committed, so its files are left out.
    """
    known = first_known(table)
    recent = [each for each in staged if each.began + 1 >= known]
    if not recent:
        return []
    landed = set(landed_runs(table, min(each.began for each in recent)))
    referenced = table.referenced()
    landed |= {each.run for each in recent if each.path in referenced}
    return [each for each in recent if each.run not in landed]


def _recent_runs(store: LakeStore, left: Sequence[StagedFile], dead_after_ms: int) -> set[str]:
    """Return the runs with a file younger than `dead_after_ms`."""
    if not left:
        return set()
    oldest_ms = store.now_ms() - dead_after_ms
    return {each.run for each in left if each.modified_ms >= oldest_ms}
