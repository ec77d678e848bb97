"""PlanLogDirMoves (key 20007), version 0: which moves a broker would make between its directories.

An API of tidelog's own (D12, D15, G5): Kafka has no request for it. Nothing moves by it. Flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, int16, int32, int64, string
from tidelog.wire.structs import dataclass

#: No threshold in a request: that of the broker's configuration holds.
OWN_THRESHOLD = -1


@dataclass(slots=True)
class PlanLogDirMovesRequest:
    """With `log_dirs`: how a drain empties them. Without any: how the volumes are balanced.

    `threshold_percent` is for balancing.
    """

    log_dirs: Sequence[str] = array("string", "0+")
    threshold_percent: int = int32("0+", OWN_THRESHOLD)


@dataclass(slots=True)
class PlannedLogDirMove:
    """A replica, and where it would move; `target` null: nowhere, for the reason."""

    topic: str = string("0+")
    partition: int = int32("0+")
    source: str = string("0+")
    target: str | None = string("0+", None, nullable="0+")
    size_bytes: int = int64("0+")
    reason: str = string("0+")


@dataclass(slots=True)
class PlanLogDirMovesResponse:
    """The moves in the order in which they would begin, or why there can be none."""

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
