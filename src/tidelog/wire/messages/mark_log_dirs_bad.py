"""MarkLogDirsBad (key 20006), version 0: a broker treats log directories as failed.

Only tidelog has this flexible API (D12, G5).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, string


@dataclass(slots=True)
class MarkLogDirsBadRequest:
    """The paths of the receiving broker's log directories to mark as failed."""

    log_dirs: Sequence[str] = array("string", "0+")


@dataclass(slots=True)
class MarkedLogDir:
    """The outcome for one log directory, NONE if it was marked as failed."""

    log_dir: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class MarkLogDirsBadResponse:
    """The outcomes of marking log directories, one per requested directory."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    results: list[MarkedLogDir] = array(MarkedLogDir, "0+")


API = Api(
    key=20_006,
    name="MarkLogDirsBad",
    request=MarkLogDirsBadRequest,
    response=MarkLogDirsBadResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
