"""InitProducerId (key 22), versions 0 to 5: an id and epoch for an idempotent producer.

Version 2 is flexible. Version 3 lets a producer keep its id after INVALID_PRODUCER_EPOCH (KIP-360).
Version 4 may respond with PRODUCER_FENCED (KIP-588), version 5 with TRANSACTION_ABORTABLE
(KIP-890).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, int16, int32, int64, string


@dataclass(slots=True)
class InitProducerIdRequest:
    """The request for a producer id; without `transactional_id`, only for idempotence."""

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", -1)
    producer_epoch: int = int16("3+", -1)


@dataclass(slots=True)
class InitProducerIdResponse:
    """The producer id and epoch, or -1 with an error."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", -1)
    producer_epoch: int = int16("0+")


API = Api(
    key=22,
    name="InitProducerId",
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=2,
)
