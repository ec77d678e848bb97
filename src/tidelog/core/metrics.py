"""Numbers that a broker keeps of itself, under the names that dashboards use.

A metric is declared here with its meaning; an undeclared one cannot be counted. Labels are few and
bounded (brokers of the cluster, phases of failovers). Finished labels are dropped, so that nothing
grows. Reads no clock and writes nothing: other modules publish the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

COMMANDS_OVERDUE: Final = "tidelog_controller_commands_overdue"
COMMANDS_REPEATED: Final = "tidelog_controller_commands_repeated_total"
COMMANDS_DROPPED: Final = "tidelog_controller_commands_dropped_total"
PARTITIONS_UNLED: Final = "tidelog_controller_partitions_unled"
ISR_SHRINKS: Final = "tidelog_controller_isr_shrinks_total"
ISR_EXPANDS: Final = "tidelog_controller_isr_expands_total"
LEADERS_AWAITED: Final = "tidelog_controller_leaders_awaited_total"
FAILOVERS: Final = "tidelog_controller_failovers_total"
FAILOVER_MS: Final = "tidelog_controller_failover_ms_total"
TAKEOVERS: Final = "tidelog_takeovers_total"
TAKEOVER_MS: Final = "tidelog_takeover_ms_total"
EVENTS_DROPPED: Final = "tidelog_cluster_events_dropped_total"
PARTITIONS_DAMAGED: Final = "tidelog_log_damaged_partitions"
#: `byte-rate` of kafka.server:type=LeaderReplication and type=FollowerReplication, under the names
#: that exporters of Kafka's metrics give them.
LEADER_REPLICATION_BYTE_RATE: Final = "kafka_server_leaderreplication_byte_rate"
FOLLOWER_REPLICATION_BYTE_RATE: Final = "kafka_server_followerreplication_byte_rate"
#: `ReassigningPartitions` of kafka.server:type=ReplicaManager, and `ReassignmentBytesInPerSec` and
#: `ReassignmentBytesOutPerSec` of kafka.server:type=BrokerTopicMetrics, of all topics.
REASSIGNING_PARTITIONS: Final = "kafka_server_replicamanager_reassigningpartitions"
REASSIGNMENT_BYTES_IN: Final = "kafka_server_brokertopicmetrics_reassignmentbytesin_total"
REASSIGNMENT_BYTES_OUT: Final = "kafka_server_brokertopicmetrics_reassignmentbytesout_total"
#: `OfflineReplicaCount` of kafka.server:type=ReplicaManager, and `OfflineLogDirectoryCount` of
#: kafka.log:type=LogManager.
OFFLINE_REPLICAS: Final = "kafka_server_replicamanager_offlinereplicacount"
OFFLINE_LOG_DIRECTORIES: Final = "kafka_log_logmanager_offlinelogdirectorycount"
#: `MaxLag` of kafka.server:type=ReplicaAlterLogDirsManager, and `byte-rate` of
#: kafka.server:type=AlterLogDirsReplication.
DIRECTORY_MOVE_MAX_LAG: Final = "kafka_server_replicaalterlogdirsmanager_maxlag"
DIRECTORY_MOVE_BYTE_RATE: Final = "kafka_server_alterlogdirsreplication_byte_rate"
FULL_LOG_DIRECTORIES: Final = "tidelog_log_directory_full"
SLOW_LOG_DIRECTORIES: Final = "tidelog_log_directory_slow"
USABLE_BYTES: Final = "tidelog_log_directory_usable_bytes"

METRICS: Final[Mapping[str, str]] = {
    COMMANDS_OVERDUE: "1 while a broker acknowledges no command for controller.socket.timeout.ms",
    COMMANDS_REPEATED: "commands resent because a broker did not acknowledge them or rejected them",
    COMMANDS_DROPPED: "command backlogs of a broker that were replaced by the full state",
    PARTITIONS_UNLED: "partitions whose published leader has not acknowledged its role yet",
    ISR_SHRINKS: "replicas that left an ISR, by cause; counted by the controller",
    ISR_EXPANDS: "replicas that joined an ISR; counted by the controller",
    LEADERS_AWAITED: "changes of what partitions without a leader wait for",
    FAILOVERS: "failovers by this controller, by phase; `detect` counts those that were detected",
    FAILOVER_MS: "total duration of these failovers, by phase",
    TAKEOVERS: "sampled leaderships of this broker in which a phase ended, by phase",
    TAKEOVER_MS: "total time from the role to the phase's end in these leaderships, by phase",
    EVENTS_DROPPED: "events missing in __cluster_events: too many waited, or none could be sent",
    PARTITIONS_DAMAGED: "replicas of this broker whose log has a damaged batch, not refetched yet",
    LEADER_REPLICATION_BYTE_RATE: "bytes a second sent to followers of throttled partitions",
    FOLLOWER_REPLICATION_BYTE_RATE: "bytes a second fetched of throttled partitions",
    REASSIGNING_PARTITIONS: "partitions led by this broker while replicas are added or removed",
    REASSIGNMENT_BYTES_IN: "bytes that added replicas of this broker fetched, of all topics",
    REASSIGNMENT_BYTES_OUT: "bytes that this broker sent to added replicas, of all topics",
    OFFLINE_REPLICAS: "replicas of this broker in log directories that failed while it ran",
    OFFLINE_LOG_DIRECTORIES: "log directories of this broker that have failed",
    DIRECTORY_MOVE_MAX_LAG: "most records that a future replica is behind the present one",
    DIRECTORY_MOVE_BYTE_RATE: "bytes a second copied between log directories",
    FULL_LOG_DIRECTORIES: "1 while a log directory, the label, is read-only as its disk is full",
    SLOW_LOG_DIRECTORIES: "1 while a log directory, the label, is slow",
    USABLE_BYTES: "usable bytes of a log directory, the label, at the last look while it was full",
}

#: A metric, and the value of its label.
Key = tuple[str, str]


class Metrics:
    """The numbers of one broker, by metric and value of the label (empty: none)."""

    def __init__(self) -> None:
        self._values: dict[Key, int] = {}

    def add(self, name: str, count: int = 1, label: object = "") -> None:
        """Add to a counter; KeyError for a metric that is not declared."""
        METRICS[name]
        key = (name, str(label))
        self._values[key] = self._values.get(key, 0) + count

    def put(self, name: str, value: int, label: object = "") -> None:
        """Set the value of a metric; KeyError for a metric that is not declared."""
        METRICS[name]
        self._values[name, str(label)] = value

    def drop(self, name: str, label: object = "") -> None:
        """Remove a metric's value; harmless where it has none."""
        self._values.pop((name, str(label)), None)

    def value(self, name: str, label: object = "") -> int:
        """Return the number, 0 where nothing was counted."""
        return self._values.get((name, str(label)), 0)

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Return (metric, value of the label, number), sorted."""
        return iter(
            [(name, label, self._values[name, label]) for name, label in sorted(self._values)]
        )
