"""Principals, and the rights that a request may require, named as in Kafka's authorizer.

Brokers have no authorizer yet: every client is `ANONYMOUS` and may carry out every operation. The
declaration of each API names the rights that its requests require, so that a future authorizer can
check the rights in one place, before the handlers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class ResourceType(IntEnum):
    """Types of resources, by their codes on the wire (Kafka's `ResourceType`)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """Operations on resources, by their codes on the wire (Kafka's `AclOperation`)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Right(NamedTuple):
    """A right to carry out one operation on the resources of one type, such as to alter topics."""

    operation: AclOperation
    resource_type: ResourceType


ALTER_CONFIGS_TOPIC: Final = Right(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC: Final = Right(AclOperation.ALTER, ResourceType.TOPIC)
CREATE_TOPIC: Final = Right(AclOperation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Right(AclOperation.DELETE, ResourceType.TOPIC)
DESCRIBE_CONFIGS_TOPIC: Final = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Right(AclOperation.DESCRIBE, ResourceType.TOPIC)
READ_TOPIC: Final = Right(AclOperation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Right(AclOperation.WRITE, ResourceType.TOPIC)
DELETE_GROUP: Final = Right(AclOperation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Right(AclOperation.DESCRIBE, ResourceType.GROUP)
READ_GROUP: Final = Right(AclOperation.READ, ResourceType.GROUP)
ALTER_CLUSTER: Final = Right(AclOperation.ALTER, ResourceType.CLUSTER)
ALTER_CONFIGS_CLUSTER: Final = Right(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
CREATE_CLUSTER: Final = Right(AclOperation.CREATE, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)
DESCRIBE_CONFIGS_CLUSTER: Final = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = Right(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
DESCRIBE_TRANSACTIONAL_ID: Final = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
WRITE_TRANSACTIONAL_ID: Final = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_DELEGATION_TOKEN: Final = Right(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
CREATE_TOKENS: Final = Right(AclOperation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_TOKENS: Final = Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER)


class Principal(NamedTuple):
    """The identity of a connection's peer, printed as in an access control list."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: The principal of every connection that is not authenticated, as in Kafka.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")
