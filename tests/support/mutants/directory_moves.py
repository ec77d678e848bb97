"""Mutants of moves between the log directories of a broker (D11).

Each puts a future replica in place before it is a replica in full, or loses sight of the present
one.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.replication.directory_move import StepKind

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks
_PROFILE: Final = "directory_moves"
_REPLACEMENT: Final = "tidelog.log.replacement:Replacement"


@_breaks(
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


@_breaks("D11", f"{_REPLACEMENT}.write_down", profile=_PROFILE)
def swapped_before_synced(_: Any) -> Any:
    """A future replica takes the place of the present one before its records are on the disk."""

    async def write_down(attempt: Any) -> None:
        attempt._future.epochs = attempt._current.epochs.copy()

    return write_down
