"""The metrics of replicas, their leaders and their log directories.

A metric with the meaning of a Kafka metric has the name that exporters give to Kafka's.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import BOUNDS_MS, counter, gauge, histogram

PARTITIONS_DAMAGED: Final = gauge(
    "tidelog_log_damaged_partitions",
    "replicas of this broker whose log has a damaged batch, not refetched yet",
)
#: Kafka's `byte-rate` of kafka.server:type=LeaderReplication and type=FollowerReplication, under
#: the names that exporters use.
LEADER_REPLICATION_BYTE_RATE: Final = gauge(
    "kafka_server_leaderreplication_byte_rate",
    "bytes a second sent to followers of throttled partitions",
)
FOLLOWER_REPLICATION_BYTE_RATE: Final = gauge(
    "kafka_server_followerreplication_byte_rate", "bytes a second fetched of throttled partitions"
)
#: Kafka's `ReassigningPartitions` of kafka.server:type=ReplicaManager, and
#: `ReassignmentBytesInPerSec` and `ReassignmentBytesOutPerSec` of
#: kafka.server:type=BrokerTopicMetrics, over all topics.
REASSIGNING_PARTITIONS: Final = gauge(
    "kafka_server_replicamanager_reassigningpartitions",
    "partitions led by this broker while replicas are added or removed",
)
REASSIGNMENT_BYTES_IN: Final = counter(
    "kafka_server_brokertopicmetrics_reassignmentbytesin_total",
    "bytes that added replicas of this broker fetched, of all topics",
)
REASSIGNMENT_BYTES_OUT: Final = counter(
    "kafka_server_brokertopicmetrics_reassignmentbytesout_total",
    "bytes that this broker sent to added replicas, of all topics",
)
#: Kafka's `OfflineReplicaCount` of kafka.server:type=ReplicaManager, and `OfflineLogDirectoryCount`
#: of kafka.log:type=LogManager.
OFFLINE_REPLICAS: Final = gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "replicas of this broker in log directories that failed while it ran",
)
OFFLINE_LOG_DIRECTORIES: Final = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "log directories of this broker that have failed",
)
#: Kafka's `MaxLag` of kafka.server:type=ReplicaAlterLogDirsManager, and `byte-rate` of
#: kafka.server:type=AlterLogDirsReplication.
DIRECTORY_MOVE_MAX_LAG: Final = gauge(
    "kafka_server_replicaalterlogdirsmanager_maxlag",
    "most records that a future replica is behind the present one",
)
DIRECTORY_MOVE_BYTE_RATE: Final = gauge(
    "kafka_server_alterlogdirsreplication_byte_rate",
    "bytes a second copied between log directories",
)
FULL_LOG_DIRECTORIES: Final = gauge(
    "tidelog_log_directory_full",
    "1 while a log directory is read-only as its disk is full",
    "directory",
)
SLOW_LOG_DIRECTORIES: Final = gauge(
    "tidelog_log_directory_slow", "1 while a log directory is slow", "directory"
)
USABLE_BYTES: Final = gauge(
    "tidelog_log_directory_usable_bytes",
    "usable bytes of a log directory at the last look while it was full",
    "directory",
)
TAKEOVER_MS: Final = histogram(
    "tidelog_takeover_ms",
    "time from the role to the end of a phase, in sampled leaderships of this broker",
    "phase",
    bounds=BOUNDS_MS,
)
