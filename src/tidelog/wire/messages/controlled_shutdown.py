"""ControlledShutdown (key 7), versions 0 to 3: a stopping broker transfers its leaderships.

Version 0 is the only request without a client id in its header. Version 2 brought the broker epoch
(KIP-380); version 3 is the first flexible version. Kafka 3.9 sends version 3 without negotiation.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class ControlledShutdownRequest:
    """A broker's request to stop, fenced by its `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)


@dataclass(slots=True)
class RemainingPartition:
    """A partition that the stopping broker still leads."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@dataclass(slots=True)
class ControlledShutdownResponse:
    """The partitions that the stopping broker still leads; it may stop when there are none."""

    error_code: int = int16("0+")
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition, "0+")


API = Api(
    key=7,
    name="ControlledShutdown",
    request=ControlledShutdownRequest,
    response=ControlledShutdownResponse,
    min_version=0,
    max_version=3,
    first_flexible_version=3,
    inter_broker=True,
)
