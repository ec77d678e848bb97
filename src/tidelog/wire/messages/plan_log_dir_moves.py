"""PlanLogDirMoves (key 20007), version 0: a broker's plan of moves between its log directories.

Only tidelog has this flexible API (D12, D15, G5). PlanLogDirMoves only returns a plan, and moves no
replica.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string

#: The `threshold_percent` that stands for the broker's configured threshold.
OWN_THRESHOLD = -1


@dataclass(slots=True)
class PlanLogDirMovesRequest:
    """The request for a plan of replica moves between log directories.

    With `log_dirs`, the plan drains (empties) the named directories. Without `log_dirs`, the plan
    balances the volumes by `threshold_percent`.
    """

    log_dirs: Sequence[str] = array("string", "0+")
    threshold_percent: int = int32("0+", OWN_THRESHOLD)


@dataclass(slots=True)
class PlannedLogDirMove:
    """A replica and its planned directory, or a null `target` with the reason."""

    topic: str = string("0+")
    partition: int = int32("0+")
    source: str = string("0+")
    target: str | None = string("0+", None, nullable="0+")
    size_bytes: int = int64("0+")
    reason: str = string("0+")


@dataclass(slots=True)
class PlanLogDirMovesResponse:
    """The planned moves, in the order in which they would begin, or the error."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    moves: list[PlannedLogDirMove] = array(PlannedLogDirMove, "0+")


API = Api(
    key=20_007,
    name="PlanLogDirMoves",
    request=PlanLogDirMovesRequest,
    response=PlanLogDirMovesResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
