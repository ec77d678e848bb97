"""EndTxn (key 26), versions 0 to 5: commit or abort a transaction.

Version 2 may respond with PRODUCER_FENCED, version 3 is flexible, version 4 may respond with
TRANSACTION_ABORTABLE. From version 5 on, the epoch rises with each transaction, and the response
names the producer id and epoch of the next one (KIP-890).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, boolean, int16, int32, int64, string


@dataclass(slots=True)
class EndTxnRequest:
    """The request to end a transaction, by a commit if `committed`, else by an abort."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@dataclass(slots=True)
class EndTxnResponse:
    """The outcome of ending a transaction."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", -1, ignorable=True)
    producer_epoch: int = int16("5+", -1, ignorable=True)


API = Api(
    key=26,
    name="EndTxn",
    request=EndTxnRequest,
    response=EndTxnResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=3,
)
