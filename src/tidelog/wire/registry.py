"""The registry of all implemented APIs and their versions.

A broker's handlers (`broker/apis`) declare the versions that the broker serves and advertises,
within the ranges of this registry. Ranges of client APIs contain the versions that Kafka 3.9 serves
and current clients need. Ranges of inter-broker APIs contain the versions that Kafka 3.9 sends.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from tidelog.wire import messages
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
#: First key of the APIs that only tidelog has (G5); Kafka's keys are far below.
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


def _declared() -> dict[int, Api]:
    """Return the APIs that the modules of `messages` declare, by key, in ascending order."""
    names = [module.name for module in pkgutil.iter_modules(messages.__path__)]
    modules = [importlib.import_module(f"{messages.__name__}.{name}") for name in names]
    by_key: dict[int, Api] = {module.API.key: module.API for module in modules}
    if len(by_key) != len(names):
        raise AssertionError("two modules of wire/messages declare the same API key")
    return dict(sorted(by_key.items()))


#: All APIs by API key, in ascending order.
API: Final = _declared()
