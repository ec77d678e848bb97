"""Local clusters: brokers as background processes of this machine, on one directory.

with LocalCluster("/tmp/cluster", brokers=3) as cluster:
    print(cluster.bootstrap)
    cluster.kill(1)
    cluster.start(1)

`cluster` has the class LocalCluster, `layout` the files of a cluster's directory, `errors` the
errors. `starting` starts a broker; `forking` starts the brokers of tests as forks of a
`fork_server`. `processes` identifies the brokers to signal, `zookeeper` runs a ZooKeeper server,
for which `java` finds a Java. `ports` and `listeners` choose addresses. `readiness` proves that the
cluster accepts a write. `admin_ports` reads the admin ports of brokers. `cluster_reading` reads the
state that plans of moves need. `console_process` runs the web console. `status`, `health` and
`lost_replicas` show the cluster from outside; `doctor` finds causes of faults. `remedy_commands`
quotes names in the commands that `health` and `doctor` recommend.
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
