"""AllocateProducerIds (key 67), version 0: the controller gives a broker a block of producer ids.

The only version is flexible (KIP-730).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, int16, int32, int64


@dataclass(slots=True)
class AllocateProducerIdsRequest:
    """A broker's request for a block of producer ids, fenced by its `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)


@dataclass(slots=True)
class AllocateProducerIdsResponse:
    """The block of `producer_id_len` producer ids from `producer_id_start` on."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")


API = Api(
    key=67,
    name="AllocateProducerIds",
    request=AllocateProducerIdsRequest,
    response=AllocateProducerIdsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    inter_broker=True,
)
