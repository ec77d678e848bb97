"""Lists the APIs that this project speaks, with the versions of each.

What a broker advertises in ApiVersions is derived from here. Client-facing ranges hold what current
client families need (docs/compatibility.md); inter-broker ones what Kafka 3.9 sends.
"""

from __future__ import annotations

from typing import Final

from tidelog.wire.messages import (
    allocate_producer_ids,
    alter_partition,
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    leader_and_isr,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    stop_replica,
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
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ALTER_PARTITION: Final = 56
DESCRIBE_CLUSTER: Final = 60
ALLOCATE_PRODUCER_IDS: Final = 67

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
        find_coordinator.API,
        api_versions.API,
        create_topics.API,
        delete_topics.API,
        init_producer_id.API,
        offset_for_leader_epoch.API,
        alter_partition.API,
        describe_cluster.API,
        allocate_producer_ids.API,
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
    "FIND_COORDINATOR",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "INIT_PRODUCER_ID",
    "OFFSET_FOR_LEADER_EPOCH",
    "ALTER_PARTITION",
    "DESCRIBE_CLUSTER",
    "ALLOCATE_PRODUCER_IDS",
]
