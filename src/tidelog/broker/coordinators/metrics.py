"""The metrics of consumer groups.

The broker that coordinates a group shows the metrics of the group.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import Metric, gauge


def _of_partition(name: str, meaning: str) -> Metric:
    return gauge(f"{name}", meaning, "consumergroup", "topic", "partition")


#: Metrics with the names that kafka_exporter uses.
CURRENT_OFFSET: Final = _of_partition(
    "kafka_consumergroup_current_offset", "offset that the group has committed"
)
LAG: Final = _of_partition(
    "kafka_consumergroup_lag",
    "records from the committed offset, or the log start if that is later, to the end",
)
LAG_SECONDS: Final = _of_partition(
    "tidelog_consumergroup_lag_seconds",
    "0 if all is read, else the age of the oldest unread record; of partitions that this broker has"
    " a replica of",
)
CURRENT_OFFSET_SUM: Final = gauge(
    "kafka_consumergroup_current_offset_sum", "committed offsets, summed", "consumergroup", "topic"
)
LAG_SUM: Final = gauge(
    "kafka_consumergroup_lag_sum", "lags of all partitions", "consumergroup", "topic"
)
MEMBERS: Final = gauge("kafka_consumergroup_members", "members of the group", "consumergroup")
WITHOUT_COMMIT: Final = gauge(
    "tidelog_consumergroup_partitions_without_commit",
    "partitions of a topic that the group reads, or has committed for, without a committed offset",
    "consumergroup",
    "topic",
)
GROUPS_LEFT_OUT: Final = gauge(
    "tidelog_metrics_groups_left_out", "groups beyond the limit, which have no series"
)
OFFSETS_LEFT_OUT: Final = gauge(
    "tidelog_metrics_group_offsets_left_out",
    "committed offsets beyond the limit of series; they count in the sums",
)
#: Metrics with the names that kminion uses.
MINION_GROUP: Final = gauge(
    "kminion_kafka_consumer_group_info",
    "1 if the group is stable",
    "group_id",
    "protocol",
    "protocol_type",
    "state",
    "coordinator_id",
)
MINION_MEMBERS: Final = gauge(
    "kminion_kafka_consumer_group_members", "members of the group", "group_id"
)
MINION_LAG: Final = gauge(
    "kminion_kafka_consumer_group_topic_partition_lag",
    "as kafka_consumergroup_lag",
    "group_id",
    "topic_name",
    "partition_id",
)
MINION_TOPIC_LAG: Final = gauge(
    "kminion_kafka_consumer_group_topic_lag",
    "as kafka_consumergroup_lag_sum",
    "group_id",
    "topic_name",
)
