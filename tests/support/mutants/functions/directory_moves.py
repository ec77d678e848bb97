"""Mutants of moves between the log directories of a broker, a client's and planned ones.

Each puts a future replica in place before it is a replica in full, plans into a directory that is
closed, or never comes to rest.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.replication.directory_move import StepKind

_PROFILE: Final = "directory_moves"
_REPLACEMENT: Final = "tidelog.log.replacement:Replacement"


@mutant(
    "D11",
    "tidelog.broker.replicas.placement.directory_move:next_step",
    f"{_REPLACEMENT}.write_down",
    "tidelog.log.partition_log:PartitionLog.succeed",
    profile=_PROFILE,
)
def swapped_before_caught_up(next_step: Any, _: Any, __: Any) -> Any:
    """A future replica takes the place of the present one when it lacks the last records."""

    def nearly(present: Any, future: Any) -> Any:
        step = next_step(present, future)
        is_near = present.log_end_offset - step.offset <= 8
        return step._replace(kind=StepKind.CAUGHT_UP) if is_near else step

    async def write_down(attempt: Any) -> None:
        await attempt._future.flush()
        await attempt._target.checkpoint()

    def succeed(log: Any, former: Any) -> None:
        log.config = former.config
        former._appends.refuse_planned(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is replaced")
        )

    return nearly, write_down, succeed


@mutant("D11", f"{_REPLACEMENT}.write_down", profile=_PROFILE)
def swapped_before_synced(_: Any) -> Any:
    """A future replica takes the place of the present one before its records are on the disk."""

    async def write_down(attempt: Any) -> None:
        attempt._future.epochs = attempt._current.epochs.copy()

    return write_down


_PLANNED: Final = "drained_directories"


@mutant(
    "D12",
    "tidelog.broker.replicas.placement.log_dir_placement:LogDirPlacement._why_closed",
    "tidelog.broker.replicas.placement.planned_directory_moves:PlannedDirectoryMoves._is_closed",
    "tidelog.broker.replicas.placement.directory_moves:DirectoryMoves._check_cordon",
    profile=_PLANNED,
)
def drain_places_into_cordon(*_: Any) -> Any:
    """A drain moves replicas into directories that are cordoned or drained themselves."""
    return (
        lambda placement, directory, leaving: "",
        lambda planned, path: False,
        lambda moves, path: None,
    )


@mutant(
    "D15",
    "tidelog.log.log_dir_balance:_next",
    profile=_PLANNED,
)
def balance_without_hysteresis(_: Any) -> Any:
    """Balancing begins at any difference, and moves the largest replica whatever that brings."""

    def move(volumes: Any, threshold: float, goal: float, is_under_way: bool) -> Any:
        if any(each.is_touched for each in volumes) or len(volumes) < 2:
            return None
        high = max(volumes, key=lambda each: each.fill)
        low = min(volumes, key=lambda each: each.fill)
        if high.fill <= low.fill or not low.open or not high.replicas:
            return None
        return high, low, high.replicas[-1]

    return move
