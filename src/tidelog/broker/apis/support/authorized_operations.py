"""Authorized operations of KIP-430: the operations that a client is allowed, as a bit field.

Bit N stands for the operation with code N in Kafka's `AclOperation`. Brokers have no authorizer, so
every client is allowed every operation that the type of a resource supports.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.authorization import AclOperation


def bit_field(*operations: AclOperation) -> int:
    """Return the bit field of these operations."""
    return sum(1 << operation for operation in operations)


#: All operations that the cluster, a topic or a group supports, as in Kafka's `AclEntry`.
CLUSTER_OPERATIONS: Final = bit_field(
    AclOperation.CREATE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
TOPIC_OPERATIONS: Final = bit_field(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = bit_field(AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE)
