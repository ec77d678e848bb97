"""DescribeCluster (key 60), versions 0 and 1: brokers, controller and cluster id (KIP-700).

Both versions are flexible. Version 1 requests brokers or controllers (KIP-919).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class DescribeClusterRequest:
    """The request to describe the cluster; `endpoint_type` is 1 for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", 1)


@dataclass(slots=True)
class DescribeClusterBroker:
    """A live broker of the described cluster."""

    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class DescribeClusterResponse:
    """The cluster; authorized operations are a bit field, -2147483648 if not requested."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    endpoint_type: int = int8("1+", 1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", -1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", -0x80000000)


API = Api(
    key=60,
    name="DescribeCluster",
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=0,
)
