"""The metrics of a controller, and of its commands to brokers.

The broker that is the controller counts these metrics during its term.
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

COMMANDS_OVERDUE: Final = gauge(
    "tidelog_controller_commands_overdue",
    "1 while a broker acknowledges no command for controller.socket.timeout.ms",
    "broker",
)
COMMANDS_REPEATED: Final = counter(
    "tidelog_controller_commands_repeated_total",
    "commands resent because a broker did not acknowledge them or rejected them",
    "broker",
)
COMMANDS_DROPPED: Final = counter(
    "tidelog_controller_commands_dropped_total",
    "command backlogs of a broker that were replaced by the full state",
    "broker",
)
PARTITIONS_UNLED: Final = gauge(
    "tidelog_controller_partitions_unled",
    "partitions whose published leader has not acknowledged its role yet",
)
ISR_SHRINKS: Final = counter(
    "tidelog_controller_isr_shrinks_total",
    "replicas that left an ISR, by cause; counted by the controller",
    "cause",
)
ISR_EXPANDS: Final = counter(
    "tidelog_controller_isr_expands_total", "replicas that joined an ISR; counted by the controller"
)
LEADERS_AWAITED: Final = counter(
    "tidelog_controller_leaders_awaited_total",
    "changes of what partitions without a leader wait for",
)
FAILOVER_MS: Final = histogram(
    "tidelog_controller_failover_ms",
    "duration of failovers by this controller, by phase; `detect` has those that were detected",
    "phase",
    bounds=BOUNDS_MS,
)
STORE_MS: Final = histogram(
    "tidelog_controller_store_ms",
    "time of the metadata store's calls for this controller, by operation",
    "operation",
    bounds=LATENCY_BOUNDS_US,
    scale=US_PER_MS,
)
#: The metric that corresponds to Kafka's ZooKeeperRequestLatencyMs of
#: kafka.server:type=ZooKeeperClientMetrics.
STORE_QUANTILES: Final = gauge(
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
    "time of the metadata store's calls for this controller: quantiles of the last minutes",
    "quantile",
    scale=US_PER_MS,
)
UNCLEAN_ELECTIONS: Final = counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "leaders that this controller elected from outside the ISR",
)


def _of_controller(name: str, meaning: str) -> Metric:
    return gauge(f"kafka_controller_kafkacontroller_{name}", meaning)


#: Metrics of Kafka's kafka.controller:type=KafkaController. Brokers that are not the controller
#: show 0.
ACTIVE_CONTROLLERS: Final = _of_controller("activecontrollercount", "1 if this is the controller")
CONTROLLED: Final = tuple(
    _of_controller(name, f"{meaning}; 0 unless this is the controller")
    for name, meaning in (
        ("offlinepartitionscount", "partitions without a leader"),
        ("preferredreplicaimbalancecount", "partitions whose first replica does not lead"),
        ("globaltopiccount", "topics of the cluster"),
        ("globalpartitioncount", "partitions of the cluster"),
    )
)
#: Metrics of the cluster with the names that kafka_exporter and kminion use. Only the controller
#: shows them.
BROKERS: Final = gauge("kafka_brokers", "registered brokers; shown by the controller")
BROKER_INFO: Final = gauge(
    "kafka_broker_info", "1 for each registered broker; shown by the controller", "id", "address"
)
TOPIC_PARTITIONS: Final = gauge(
    "kafka_topic_partitions", "partitions of a topic; shown by the controller", "topic"
)
MINION_CLUSTER: Final = gauge(
    "kminion_kafka_cluster_info",
    "1; shown by the controller",
    "cluster_version",
    "broker_count",
    "controller_id",
    "cluster_id",
)
MINION_BROKER: Final = gauge(
    "kminion_kafka_broker_info",
    "1 for each registered broker; shown by the controller",
    "broker_id",
    "address",
    "port",
    "rack_id",
    "is_controller",
)
MINION_TOPIC: Final = gauge(
    "kminion_kafka_topic_info",
    "1 for each topic; shown by the controller",
    "topic_name",
    "partition_count",
    "replication_factor",
)
