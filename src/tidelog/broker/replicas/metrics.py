"""The metrics of replicas, their leaders and their log directories.

A metric that corresponds to a Kafka metric has the name that exporters give to that metric.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import (
    BOUNDS_MS,
    LATENCY_BOUNDS_US,
    US_PER_MS,
    Metric,
    counter,
    gauge,
    histogram,
)

PARTITIONS_DAMAGED: Final = gauge(
    "tidelog_log_damaged_partitions",
    "replicas of this broker whose log has a damaged batch, not refetched yet",
)
#: Metrics that correspond to Kafka's `byte-rate` of kafka.server:type=LeaderReplication and
#: type=FollowerReplication, with the names that exporters use.
LEADER_REPLICATION_BYTE_RATE: Final = gauge(
    "kafka_server_leaderreplication_byte_rate",
    "bytes a second sent to followers of throttled partitions",
)
FOLLOWER_REPLICATION_BYTE_RATE: Final = gauge(
    "kafka_server_followerreplication_byte_rate", "bytes a second fetched of throttled partitions"
)
#: Metrics that correspond to Kafka's `ReassigningPartitions` of kafka.server:type=ReplicaManager,
#: and to `ReassignmentBytesInPerSec` and `ReassignmentBytesOutPerSec` of
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
#: Metrics that correspond to Kafka's `OfflineReplicaCount` of kafka.server:type=ReplicaManager, and
#: to `OfflineLogDirectoryCount` of kafka.log:type=LogManager.
OFFLINE_REPLICAS: Final = gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "replicas of this broker in log directories that failed while it ran",
)
OFFLINE_LOG_DIRECTORIES: Final = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "log directories of this broker that have failed",
)
#: Metrics that correspond to Kafka's `MaxLag` of kafka.server:type=ReplicaAlterLogDirsManager, and
#: to `byte-rate` of kafka.server:type=AlterLogDirsReplication.
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


def _traffic(name: str, meaning: str) -> Metric:
    return counter(
        f"kafka_server_brokertopicmetrics_{name}_total", f"{meaning}; topic `` is all", "topic"
    )


#: Metrics of Kafka's kafka.server:type=BrokerTopicMetrics.
BYTES_IN: Final = _traffic("bytesin", "bytes of records that clients produced")
BYTES_OUT: Final = _traffic("bytesout", "bytes of records sent to consumers")
MESSAGES_IN: Final = _traffic("messagesin", "records that clients produced")
PRODUCES: Final = _traffic("totalproducerequests", "partitions of Produce requests")
FETCHES: Final = _traffic("totalfetchrequests", "partitions in responses to consumers' fetches")
FAILED_PRODUCES: Final = _traffic("failedproducerequests", "partitions of refused Produce requests")
FAILED_FETCHES: Final = _traffic("failedfetchrequests", "partitions of refused Fetch requests")
REPLICATION_BYTES_IN: Final = _traffic("replicationbytesin", "bytes fetched by followers here")
REPLICATION_BYTES_OUT: Final = _traffic("replicationbytesout", "bytes sent to followers")
INVALID_CRCS: Final = _traffic("invalidmessagecrcrecords", "produced batches with a wrong checksum")
#: Counters of each partition that clients have produced to or fetched from since the broker's
#: start.
PARTITION_BYTES: Final = tuple(
    counter(f"tidelog_partition_{name}_total", meaning, "topic", "partition")
    for name, meaning in (
        ("bytes_in", "bytes of records that clients produced to a partition of this broker"),
        ("bytes_out", "bytes of records of a partition that this broker sent to consumers"),
    )
)
TOPICS_SUMMED: Final = gauge(
    "tidelog_metrics_topics_summed",
    "topics beyond the limit of series, counted together as `(other topics)`",
)
ACKNOWLEDGED_MS: Final = histogram(
    "tidelog_produce_acknowledged_ms",
    "time from a Produce request's handler to its response, by acks",
    "acks",
    bounds=LATENCY_BOUNDS_US,
    scale=US_PER_MS,
)


def _replicas(name: str, meaning: str) -> Metric:
    return gauge(f"kafka_server_replicamanager_{name}", meaning)


#: Metrics of Kafka's kafka.server:type=ReplicaManager.
LEADERS: Final = _replicas("leadercount", "partitions that this broker leads")
PARTITIONS: Final = _replicas("partitioncount", "replicas of this broker")
UNDER_REPLICATED: Final = _replicas(
    "underreplicatedpartitions", "partitions led here with fewer members of the ISR than replicas"
)
UNDER_MIN_ISR: Final = _replicas(
    "underminisrpartitioncount", "partitions led here with an ISR below min.insync.replicas"
)
AT_MIN_ISR: Final = _replicas(
    "atminisrpartitioncount", "partitions led here with an ISR of just min.insync.replicas"
)
LEADER_ISR_SHRINKS: Final = counter(
    "kafka_server_replicamanager_isrshrinks_total", "ISRs of leaders here that lost a member"
)
LEADER_ISR_EXPANDS: Final = counter(
    "kafka_server_replicamanager_isrexpands_total", "ISRs of leaders here that gained a member"
)
FAILED_ISR_UPDATES: Final = counter(
    "kafka_server_replicamanager_failedisrupdates_total",
    "ISR changes of leaders here that the controller refused",
)


def _of_partition(family: str, name: str, meaning: str) -> Metric:
    return gauge(f"{family}_{name}", meaning, "topic", "partition")


#: Metrics of Kafka's kafka.cluster:type=Partition; only the leader shows them.
CLUSTER_PARTITION: Final = tuple(
    _of_partition("kafka_cluster_partition", name, meaning)
    for name, meaning in (
        ("underreplicated", "1 if the ISR has fewer members than the partition has replicas"),
        ("underminisr", "1 if the ISR is below min.insync.replicas"),
        ("atminisr", "1 if the ISR has just min.insync.replicas members"),
        ("replicascount", "replicas of the partition"),
        ("insyncreplicascount", "members of the ISR"),
    )
)
#: Metrics of Kafka's kafka.log:type=Log; every replica shows them.
LOG: Final = tuple(
    _of_partition("kafka_log_log", name, meaning)
    for name, meaning in (
        ("size", "bytes of a replica's log"),
        ("logstartoffset", "first offset of a replica's log"),
        ("logendoffset", "offset after the last record of a replica's log"),
        ("numlogsegments", "segments of a replica's log"),
    )
)
#: Metrics with the names that kafka_exporter uses; only the leader shows them.
TOPIC_PARTITION: Final = tuple(
    _of_partition("kafka_topic_partition", name, meaning)
    for name, meaning in (
        ("current_offset", "high watermark of the partition"),
        ("oldest_offset", "first offset of the partition"),
        ("in_sync_replica", "members of the ISR"),
        ("replicas", "replicas of the partition"),
        ("leader", "broker that leads the partition"),
        ("leader_is_preferred", "1 if the first replica leads"),
        ("under_replicated_partition", "1 if the ISR has fewer members than replicas"),
    )
)
#: Metrics with the names that kminion uses; only the leader shows them.
MINION_PARTITION: Final = tuple(
    gauge(f"kminion_kafka_topic_partition_{name}", meaning, "topic_name", "partition_id")
    for name, meaning in (
        ("high_water_mark", "high watermark of the partition"),
        ("low_water_mark", "first offset of the partition"),
    )
)
MINION_LOG_DIRS: Final = gauge(
    "kminion_kafka_broker_log_dir_size_total_bytes",
    "bytes of all logs of this broker",
    "broker_id",
    "address",
    "port",
    "rack_id",
)
PARTITIONS_LEFT_OUT: Final = gauge(
    "tidelog_metrics_partitions_left_out",
    "replicas beyond the limit of series; their sizes are summed as `(other topics)`",
)
FETCHER_LAG: Final = gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "records that a follower here is behind its leader's high watermark",
    "clientid",
    "topic",
    "partition",
)
FETCHER_MAX_LAG: Final = gauge(
    "kafka_server_replicafetchermanager_maxlag", "most records that a follower here is behind"
)
PURGATORY: Final = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "partitions of Produce requests that wait for followers, and sessions whose fetch waits",
    "delayedoperation",
)
DIRECTORY_OPERATIONS: Final = counter(
    "tidelog_log_directory_operations_total",
    "file operations of a log directory: appends and reads from the disk",
    "directory",
    "kind",
)
DIRECTORY_SLOW_OPERATIONS: Final = counter(
    "tidelog_log_directory_slow_operations_total",
    "file operations above log.dir.slow.threshold.ms",
    "directory",
    "kind",
)
LANE_WAIT: Final = gauge(
    "tidelog_lane_wait_ms",
    "age of the oldest file operation of a log directory that has not ended",
    "directory",
    "kind",
)
