"""The APIs that this project implements, with the versions of each.

The cards of a broker's handlers (`broker/apis`) declare the versions that it serves and advertises,
within these ranges. Client-facing ranges hold the versions that Kafka 3.9 serves and current client
families need. Inter-broker ranges hold the versions that Kafka 3.9 sends.
"""

from __future__ import annotations

from typing import Final

from tidelog.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_strays,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_metrics,
    describe_producers,
    describe_replicas,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_replica_log_info,
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
    list_transactions,
    mark_log_dirs_bad,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    plan_log_dir_moves,
    produce,
    relinquish_leadership,
    remove_partitions,
    renew_delegation_token,
    request_commands,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
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
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
ALTER_PARTITION: Final = 56
UPDATE_FEATURES: Final = 57
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
ALLOCATE_PRODUCER_IDS: Final = 67
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
DESCRIBE_TOPIC_PARTITIONS: Final = 75
GET_REPLICA_LOG_INFO: Final = 93
#: tidelog's own APIs have keys from here on (G5); Kafka's are far below.
FIRST_OWN_KEY: Final = 20_000
REMOVE_PARTITIONS: Final = FIRST_OWN_KEY
LIST_STRAYS: Final = FIRST_OWN_KEY + 1
ALTER_STRAYS: Final = FIRST_OWN_KEY + 2
REQUEST_COMMANDS: Final = FIRST_OWN_KEY + 3
DESCRIBE_REPLICAS: Final = FIRST_OWN_KEY + 4
RELINQUISH_LEADERSHIP: Final = FIRST_OWN_KEY + 5
MARK_LOG_DIRS_BAD: Final = FIRST_OWN_KEY + 6
PLAN_LOG_DIR_MOVES: Final = FIRST_OWN_KEY + 7
DESCRIBE_METRICS: Final = FIRST_OWN_KEY + 8

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
        sasl_handshake.API,
        api_versions.API,
        create_topics.API,
        delete_topics.API,
        delete_records.API,
        init_producer_id.API,
        offset_for_leader_epoch.API,
        add_partitions_to_txn.API,
        add_offsets_to_txn.API,
        end_txn.API,
        txn_offset_commit.API,
        describe_acls.API,
        create_acls.API,
        delete_acls.API,
        describe_configs.API,
        alter_configs.API,
        alter_replica_log_dirs.API,
        describe_log_dirs.API,
        sasl_authenticate.API,
        create_partitions.API,
        create_delegation_token.API,
        renew_delegation_token.API,
        expire_delegation_token.API,
        describe_delegation_token.API,
        delete_groups.API,
        elect_leaders.API,
        incremental_alter_configs.API,
        alter_partition_reassignments.API,
        list_partition_reassignments.API,
        offset_delete.API,
        describe_client_quotas.API,
        alter_client_quotas.API,
        describe_user_scram_credentials.API,
        alter_user_scram_credentials.API,
        update_features.API,
        alter_partition.API,
        describe_cluster.API,
        describe_producers.API,
        describe_transactions.API,
        list_transactions.API,
        allocate_producer_ids.API,
        consumer_group_heartbeat.API,
        consumer_group_describe.API,
        describe_topic_partitions.API,
        get_replica_log_info.API,
        remove_partitions.API,
        list_strays.API,
        alter_strays.API,
        request_commands.API,
        describe_replicas.API,
        relinquish_leadership.API,
        mark_log_dirs_bad.API,
        plan_log_dir_moves.API,
        describe_metrics.API,
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
    "SASL_HANDSHAKE",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DELETE_RECORDS",
    "INIT_PRODUCER_ID",
    "OFFSET_FOR_LEADER_EPOCH",
    "ADD_PARTITIONS_TO_TXN",
    "ADD_OFFSETS_TO_TXN",
    "END_TXN",
    "TXN_OFFSET_COMMIT",
    "DESCRIBE_ACLS",
    "CREATE_ACLS",
    "DELETE_ACLS",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "ALTER_REPLICA_LOG_DIRS",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_METRICS",
    "SASL_AUTHENTICATE",
    "CREATE_PARTITIONS",
    "CREATE_DELEGATION_TOKEN",
    "RENEW_DELEGATION_TOKEN",
    "EXPIRE_DELEGATION_TOKEN",
    "DESCRIBE_DELEGATION_TOKEN",
    "DELETE_GROUPS",
    "ELECT_LEADERS",
    "INCREMENTAL_ALTER_CONFIGS",
    "ALTER_PARTITION_REASSIGNMENTS",
    "LIST_PARTITION_REASSIGNMENTS",
    "OFFSET_DELETE",
    "DESCRIBE_CLIENT_QUOTAS",
    "ALTER_CLIENT_QUOTAS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "ALTER_PARTITION",
    "UPDATE_FEATURES",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_TRANSACTIONS",
    "LIST_TRANSACTIONS",
    "ALLOCATE_PRODUCER_IDS",
    "CONSUMER_GROUP_HEARTBEAT",
    "CONSUMER_GROUP_DESCRIBE",
    "DESCRIBE_TOPIC_PARTITIONS",
    "GET_REPLICA_LOG_INFO",
    "FIRST_OWN_KEY",
    "REMOVE_PARTITIONS",
    "LIST_STRAYS",
    "ALTER_STRAYS",
    "REQUEST_COMMANDS",
    "DESCRIBE_REPLICAS",
    "RELINQUISH_LEADERSHIP",
    "MARK_LOG_DIRS_BAD",
    "PLAN_LOG_DIR_MOVES",
]
