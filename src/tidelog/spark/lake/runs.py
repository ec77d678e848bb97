"""Commits of staged files, repeated until the table has the files or the run must start over.

`protocol` decides each step; this module sends the commits, and waits after a lost answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.commits import landed_runs
from tidelog.spark.lake.partitioning import check_new, check_same
from tidelog.spark.lake.protocol import (
    NO_VERSION,
    CommitAnswer,
    CommitAttempt,
    CommitObstacle,
    LandedBefore,
    PlannedOffsets,
    StartOver,
    TableView,
    next_step,
)
from tidelog.spark.lake.state import (
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
    TableError,
    check_origin,
)
from tidelog.spark.lake.table import Lake

if TYPE_CHECKING:
    import pyarrow as pa

#: Maximum number of commits that one run or vacuum tries. Each conflict means that another run has
#: committed.
MOST_COMMITS: Final = 100
#: The shortest wait after a commit without an answer; LONGEST_WAIT_S is the longest.
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run: the table's state, and any obstacle that makes the run start over."""

    state: LakeState
    obstacle: CommitObstacle | None = None


def opened(
    table: Lake,
    origin: Origin,
    schema: Callable[[], pa.Schema],
    partition_by: Sequence[str] = (),
) -> LakeState:
    """Return the state of a topic's table, which is created if it does not exist.

    Raises TableError, also for a table of another topic or with other partition columns, and for a
    table that was rolled back.
    """
    state = table.read()
    if state.version == NO_VERSION:
        columns = schema()
        check_new(columns, partition_by)
        table.create(origin, columns, partition_by)  # another run may have created the table first
        state = table.read()
    if state.origin is None:
        raise TableError(f"{table.location} could not be created; run it again")
    check_origin(state.origin, origin, table.location)
    check_same(table.location, state.partition_by, partition_by)
    if state.rollback:
        raise TableError(state.rollback)
    return state


def attempt_of(run: str, state: LakeState, change: TableChange) -> CommitAttempt:
    """Return the commit attempt for a change that was planned from `state`."""
    following = state.following()
    planned = [
        PlannedOffsets(each.partition, following.get(each.partition), each.start, each.end)
        for each in change.offsets
    ]
    is_upsert = bool(planned) and state.origin is not None and bool(state.origin.upsert_key)
    if is_upsert:
        new = {each.partition for each in planned}
        planned += [
            PlannedOffsets(number, end, end, end)
            for number, end in following.items()
            if number not in new
        ]
    inputs = tuple(file.path for file in change.removed)
    return CommitAttempt(run, state.version, tuple(planned), inputs, is_upsert)


def commit_run(
    table: Lake,
    state: LakeState,
    change: TableChange,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> RunOutcome:
    """Commit a change that was planned from `state`. Raises TableError.

    After an outcome with an obstacle, the caller may delete the change's files.
    """
    attempt = attempt_of(change.run, state, change)
    wait_s = FIRST_WAIT_S
    for _ in range(MOST_COMMITS):
        answer = table.commit(state, change)
        if answer is CommitAnswer.COMMITTED:
            return RunOutcome(table.read() if state.head else _after(state, change))
        if answer is CommitAnswer.LOST:
            sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        state = table.read()
        step = next_step(attempt, _view(table, state, attempt))
        if isinstance(step, LandedBefore):
            return RunOutcome(state)
        if isinstance(step, StartOver):
            has_landed = not table.referenced().isdisjoint(file.path for file in change.added)
            # If the files are in the table, the run's commit succeeded, although the table's log no
            # longer has the commit's offsets.
            return RunOutcome(state, None if has_landed else step.obstacle)
    raise TableError(
        f"{table.location} refused {MOST_COMMITS} commits, or did not answer them. Run it again: it"
        " goes on from the offsets that the table has"
    )


def _view(table: Lake, state: LakeState, attempt: CommitAttempt) -> TableView:
    return TableView(
        version=state.version,
        following=state.following(),
        fence=state.fence,
        landed=landed_runs(table, attempt.began),
        files=[file.path for file in table.files()] if attempt.inputs else (),
    )


def _after(state: LakeState, change: TableChange) -> LakeState:
    """Return the state after the commit of a change."""
    joined: dict[int, PartitionRun] = state.after(change.offsets)
    fence = max(state.fence, change.fence)
    return replace(state, version=state.version + 1, partitions=joined, fence=fence)
