"""AlterStrays (key 20002), version 0: delete or restore replicas that were set aside (V35).

Only tidelog has this flexible API (G5). A broker sets a replica aside as a stray, instead of
deleting it, when the controller's list of the broker's replicas lacks the replica; the broker
deletes a stray after log.stray.delete.delay.ms.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, int64, string

#: Values of a request's `action`.
DELETE, RESTORE = 0, 1


@dataclass(slots=True)
class NamedStray:
    """A stray, identified by its log directory and the name of its own directory there."""

    log_dir: str = string("0+")
    name: str = string("0+")


@dataclass(slots=True)
class AlterStraysRequest:
    """The request to delete or restore strays of the receiving broker."""

    action: int = int8("0+")
    strays: list[NamedStray] = array(NamedStray, "0+")


@dataclass(slots=True)
class AlteredStray:
    """The outcome for one stray, with the offsets of a restored stray."""

    log_dir: str = string("0+")
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    log_start_offset: int = int64("0+", -1)
    log_end_offset: int = int64("0+", -1)


@dataclass(slots=True)
class AlterStraysResponse:
    """The outcomes of AlterStrays, one per requested stray."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    results: list[AlteredStray] = array(AlteredStray, "0+")


API = Api(
    key=20_002,
    name="AlterStrays",
    request=AlterStraysRequest,
    response=AlterStraysResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
