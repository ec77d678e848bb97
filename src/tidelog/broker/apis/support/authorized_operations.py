"""Authorized operations of KIP-430: the operations that a client may carry out, as a bit field.

Bit N stands for the operation with code N in Kafka's `AclOperation`. Brokers have no authorizer, so
every client may carry out every operation that the type of a resource supports.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.authorization import Operation


def bit_field(*operations: Operation) -> int:
    """Return the bit field of these operations."""
    return sum(1 << operation for operation in operations)


#: All operations that a type of resource supports, as Kafka's `AclEntry` lists them.
CLUSTER_OPERATIONS: Final = bit_field(
    Operation.CREATE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
TOPIC_OPERATIONS: Final = bit_field(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DESCRIBE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = bit_field(Operation.READ, Operation.DESCRIBE, Operation.DELETE)
