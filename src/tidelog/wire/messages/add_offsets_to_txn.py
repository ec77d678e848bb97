"""AddOffsetsToTxn (key 25), versions 0 to 4: a group whose offsets a transaction commits.

Version 2 may respond with PRODUCER_FENCED, version 3 is flexible, version 4 may respond with
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, int16, int32, int64, string


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    """The request to add a consumer group's offsets to a producer's transaction."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    """The outcome of an AddOffsetsToTxn request."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


API = Api(
    key=25,
    name="AddOffsetsToTxn",
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
    min_version=0,
    max_version=4,
    first_flexible_version=3,
)
