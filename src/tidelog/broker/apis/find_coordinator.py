"""FindCoordinator (key 10), versions 0 to 6: which broker coordinates a group.

It is the leader of the group's partition of `__consumer_offsets` (G2), as published. Where the
topic does not exist yet it is made (`offsets.topic.*`), and the client is told
COORDINATOR_NOT_AVAILABLE, which it tries again; likewise while the partition has no live leader.
Not supported yet: transactional ids, which are told the same, and share groups (key type 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_GROUP_ID_CHARS
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=10, min_version=0, max_version=6, note="groups only")

GROUP, TRANSACTION = 0, 1
_BATCHED_VERSION = 4


def handle(broker: Broker, request: Request) -> FindCoordinatorResponse:
    """The coordinator of each key, from published state."""
    message: FindCoordinatorRequest = request.message
    if request.header.api_version >= _BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=[_find(broker, message.key_type, key) for key in message.coordinator_keys]
        )
    found = _find(broker, message.key_type, message.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(broker: Broker, key_type: int, key: str) -> Coordinator:
    if key_type == TRANSACTION:
        return _none(
            key,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "this broker has no transaction coordinator yet",
        )
    if key_type != GROUP:
        return _none(key, ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 or 1 expected")
    if len(key) > MAX_GROUP_ID_CHARS:
        return _none(
            key,
            ErrorCode.INVALID_GROUP_ID,
            f"a group id of {len(key)} characters; at most {MAX_GROUP_ID_CHARS} are taken",
        )
    if broker.auto_creation.offsets_topic() is None:
        reason = broker.auto_creation.no_offsets_topic
        message = f"cannot be made yet: {reason}" if reason else "is being made"
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} {message}")
    partition = TopicPartition(CONSUMER_OFFSETS, broker.groups.partition_of(key))
    view = broker.view.partition(partition)
    endpoint = None if view is None else broker.client_endpoint(view.leader)
    if view is None or endpoint is None:
        return _none(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{partition} has no live leader now"
        )
    return Coordinator(key, view.leader, endpoint.host, endpoint.port, ErrorCode.NONE, None)


def _none(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, message)
