"""Local clusters: brokers as background processes of this machine, on one directory.

with LocalCluster("/tmp/cluster", brokers=3) as cluster:
    print(cluster.bootstrap)
    cluster.kill(1)
    cluster.start(1)
"""

from __future__ import annotations

from tidelog.local.cluster import LocalCluster
from tidelog.local.errors import LocalClusterError
from tidelog.local.status import BrokerStatus, ClusterStatus, PartitionStatus

__all__ = [
    "BrokerStatus",
    "ClusterStatus",
    "LocalCluster",
    "LocalClusterError",
    "PartitionStatus",
]
