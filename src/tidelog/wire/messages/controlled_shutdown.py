"""ControlledShutdown (key 7), version 3: a broker asks the controller to take its leaderships.

Kafka 3.9 sends version 3, the first flexible one, without negotiation. The broker epoch came with
version 2 (KIP-380).
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class ControlledShutdownRequest:
    """Fenced by the sender's `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)


@dataclass(slots=True)
class RemainingPartition:
    """A partition that the broker still leads."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@dataclass(slots=True)
class ControlledShutdownResponse:
    """The broker may stop once no partitions remain."""

    error_code: int = int16("0+")
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition, "0+")


API = Api(
    key=7,
    name="ControlledShutdown",
    request=ControlledShutdownRequest,
    response=ControlledShutdownResponse,
    min_version=3,
    max_version=3,
    first_flexible_version=3,
    inter_broker=True,
)
