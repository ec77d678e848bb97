"""FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a group.

The coordinator is the leader of the group's partition of `__consumer_offsets`, as the controller
last published it (G2). The response has the leader's endpoint on the client's listener. If the
topic does not exist, the broker requests its creation (`offsets.topic.*`) and responds
COORDINATOR_NOT_AVAILABLE, so the client retries. A group whose partition has no live leader also
gets COORDINATOR_NOT_AVAILABLE. If the leader's broker has just ended, the response waits briefly
for the next leader (V83).

Transactional ids have no coordinator. The broker refuses transactional ids with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because all clients stop at that error. After most other
errors, librdkafka retries for as long as its application waits. A cluster with Kafka brokers may
have the topic `__transaction_state`. If `__transaction_state` exists, the response names the leader
of the transactional id's partition. If that leader is a Kafka broker, it coordinates the
transactional id. Share groups (key type 2) are not supported.
"""

from __future__ import annotations

import logging

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.held_answers import Question
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_GROUP_ID_CHARS
from tidelog.core.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

CARD = Card(
    api_key=10,
    min_version=0,
    max_version=6,
    note="groups only",
    rights=(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID),
)

GROUP, TRANSACTION = 0, 1
#: The first version whose requests hold several keys.
_BATCHED_VERSION = 4
_NO_TRANSACTIONS = "brokers have no transaction coordinator: transactions are not served"


def handle(
    context: ApiContext, request: Request[FindCoordinatorRequest]
) -> Pending | FindCoordinatorResponse:
    """Return the coordinator of each key, from published state."""
    answer: Pending | FindCoordinatorResponse = context.held_answers.answer(
        request, lambda: _question(context, request), lambda: _response(context, request)
    )
    return answer


def _question(context: ApiContext, request: Request[FindCoordinatorRequest]) -> Question:
    """Return the partitions to which the request's keys belong, if this broker knows them."""
    message = request.message
    name = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}.get(message.key_type, "")
    topic = context.services.view.topics.get(name)
    if topic is None or not topic.partitions:
        return Question()
    is_batch = request.header.api_version >= _BATCHED_VERSION
    keys = message.coordinator_keys if is_batch else [message.key]
    partitions = len(topic.partitions)
    return Question(
        partitions={TopicPartition(name, coordinating_partition(key, partitions)) for key in keys}
    )


def _response(
    context: ApiContext, request: Request[FindCoordinatorRequest]
) -> FindCoordinatorResponse:
    """Return the response, made from the current view."""
    message = request.message
    listener = request.connection.listener
    if message.key_type == TRANSACTION and TRANSACTION_STATE not in context.services.view.topics:
        context.services.tracer.log(
            "request",
            logging.WARNING,
            f"refusing client {request.header.client_id!r} a transactional id: {_NO_TRANSACTIONS}",
        )
    if request.header.api_version >= _BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=[
                _find(context, listener, message.key_type, key) for key in message.coordinator_keys
            ]
        )
    found = _find(context, listener, message.key_type, message.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: ApiContext, listener: str, key_type: int, key: str) -> Coordinator:
    if key_type == TRANSACTION:
        states = context.services.view.topics.get(TRANSACTION_STATE)
        if states is None or not states.partitions:
            return _none(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)
        number = coordinating_partition(key, len(states.partitions))
        return _leader(context, listener, TopicPartition(TRANSACTION_STATE, number), key)
    if key_type != GROUP:
        return _none(key, ErrorCode.INVALID_REQUEST, f"key type {key_type}: 0 or 1 expected")
    if len(key) > MAX_GROUP_ID_CHARS:
        return _none(
            key,
            ErrorCode.INVALID_GROUP_ID,
            f"a group id of {len(key)} characters; at most {MAX_GROUP_ID_CHARS} are allowed",
        )
    if context.auto_creation.offsets_topic() is None:
        reason = context.auto_creation.no_offsets_topic
        message = f"cannot be created yet: {reason}" if reason else "is being created"
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} {message}")
    partition = TopicPartition(CONSUMER_OFFSETS, context.groups.partition_of(key))
    return _leader(context, listener, partition, key)


def _leader(context: ApiContext, listener: str, partition: TopicPartition, key: str) -> Coordinator:
    """Return the leader of the partition to which a key belongs."""
    view = context.services.view.partition(partition)
    endpoint = None if view is None else context.services.view.endpoint(view.leader, listener)
    if view is None or endpoint is None:
        reason = "has no live leader now"
        if view is not None and context.services.view.is_alive(view.leader):
            reason = f"is led by broker {view.leader}, which has no listener {listener}"
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{partition} {reason}")
    return Coordinator(key, view.leader, endpoint.host, endpoint.port, ErrorCode.NONE, None)


def _none(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, message)
