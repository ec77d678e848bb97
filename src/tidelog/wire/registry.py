"""Lists the APIs that this project speaks, with the versions of each.

What a broker serves and advertises is told by the cards of its handlers (`broker/apis`), within
these ranges. Client-facing ranges hold what Kafka 3.9 serves and current client families need;
inter-broker ones what Kafka 3.9 sends.
"""

from __future__ import annotations

from typing import Final

from tidelog.wire.messages import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_strays,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_strays,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_partitions,
    request_commands,
    stop_replica,
    sync_group,
    update_metadata,
)
from tidelog.wire.schema import Api

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
ALTER_PARTITION: Final = 56
DESCRIBE_CLUSTER: Final = 60
ALLOCATE_PRODUCER_IDS: Final = 67
DESCRIBE_TOPIC_PARTITIONS: Final = 75
#: APIs of ours have keys from here on (G5); Kafka's are far below.
FIRST_OWN_KEY: Final = 20_000
REMOVE_PARTITIONS: Final = FIRST_OWN_KEY
LIST_STRAYS: Final = FIRST_OWN_KEY + 1
ALTER_STRAYS: Final = FIRST_OWN_KEY + 2
REQUEST_COMMANDS: Final = FIRST_OWN_KEY + 3

#: All APIs by key, in ascending order of keys.
API: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        produce.API,
        fetch.API,
        list_offsets.API,
        metadata.API,
        leader_and_isr.API,
        stop_replica.API,
        update_metadata.API,
        controlled_shutdown.API,
        offset_commit.API,
        offset_fetch.API,
        find_coordinator.API,
        join_group.API,
        heartbeat.API,
        leave_group.API,
        sync_group.API,
        describe_groups.API,
        list_groups.API,
        api_versions.API,
        create_topics.API,
        delete_topics.API,
        delete_records.API,
        init_producer_id.API,
        offset_for_leader_epoch.API,
        describe_configs.API,
        alter_configs.API,
        alter_replica_log_dirs.API,
        describe_log_dirs.API,
        create_partitions.API,
        delete_groups.API,
        elect_leaders.API,
        incremental_alter_configs.API,
        alter_partition_reassignments.API,
        list_partition_reassignments.API,
        offset_delete.API,
        alter_partition.API,
        describe_cluster.API,
        allocate_producer_ids.API,
        describe_topic_partitions.API,
        remove_partitions.API,
        list_strays.API,
        alter_strays.API,
        request_commands.API,
    )
}

__all__ = [
    "API",
    "Api",
    "PRODUCE",
    "FETCH",
    "LIST_OFFSETS",
    "METADATA",
    "LEADER_AND_ISR",
    "STOP_REPLICA",
    "UPDATE_METADATA",
    "CONTROLLED_SHUTDOWN",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "FIND_COORDINATOR",
    "JOIN_GROUP",
    "HEARTBEAT",
    "LEAVE_GROUP",
    "SYNC_GROUP",
    "DESCRIBE_GROUPS",
    "LIST_GROUPS",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DELETE_RECORDS",
    "INIT_PRODUCER_ID",
    "OFFSET_FOR_LEADER_EPOCH",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "ALTER_REPLICA_LOG_DIRS",
    "DESCRIBE_LOG_DIRS",
    "CREATE_PARTITIONS",
    "DELETE_GROUPS",
    "ELECT_LEADERS",
    "INCREMENTAL_ALTER_CONFIGS",
    "ALTER_PARTITION_REASSIGNMENTS",
    "LIST_PARTITION_REASSIGNMENTS",
    "OFFSET_DELETE",
    "ALTER_PARTITION",
    "DESCRIBE_CLUSTER",
    "ALLOCATE_PRODUCER_IDS",
    "DESCRIBE_TOPIC_PARTITIONS",
    "FIRST_OWN_KEY",
    "REMOVE_PARTITIONS",
    "LIST_STRAYS",
    "ALTER_STRAYS",
    "REQUEST_COMMANDS",
]
