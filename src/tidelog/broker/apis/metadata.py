"""Metadata (key 3), versions 0 to 13.

The response has brokers, controller, topics with leaders, ISRs, offline replicas and topic ids,
from published state only (V82). Brokers are named by their endpoints of the client's listener, as
in Kafka. A broker without that listener is left out, and its partitions get LISTENER_NOT_FOUND
(below version 6: LEADER_NOT_AVAILABLE). Unknown topics are created where
`auto.create.topics.enable` and the request allow it. The broker asks the controller and responds
LEADER_NOT_AVAILABLE, and the client repeats its request. A request may ask for authorized
operations: of the cluster in versions 8 to 10, of topics from 8 on (KIP-430). The response as a
whole has no error: no broker has reason to send a client back to its bootstrap servers (KIP-1102).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic, validate_topic_name
from tidelog.core.types import ZERO_TOPIC_ID
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=3, min_version=0, max_version=13)

#: Earlier versions that carry ids must not ask by them: their responses need a name.
_ASKING_BY_ID_VERSION = 12
#: From here on responses distinguish a leader without the client's listener from a missing one.
_LISTENER_ERROR_VERSION = 6


class _Leaders:
    """The live brokers at their endpoints of the client's listener."""

    __slots__ = ("_is_alive", "_without_listener", "endpoints")

    def __init__(self, context: ApiContext, request: Request[MetadataRequest]) -> None:
        view, listener = context.services.view, request.connection.listener
        found = (
            (broker_id, view.endpoint(broker_id, listener)) for broker_id in sorted(view.brokers)
        )
        #: In the order of the brokers' ids; a broker without that listener is left out.
        self.endpoints = {
            broker_id: endpoint for broker_id, endpoint in found if endpoint is not None
        }
        self._is_alive = view.is_alive
        distinguishes_listener = request.header.api_version >= _LISTENER_ERROR_VERSION
        self._without_listener = (
            ErrorCode.LISTENER_NOT_FOUND
            if distinguishes_listener
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def error(self, leader: int) -> ErrorCode:
        """Return why a client of this listener cannot reach the leader; NONE where it can."""
        if leader in self.endpoints:
            return ErrorCode.NONE
        if self._is_alive(leader):
            return self._without_listener
        return ErrorCode.LEADER_NOT_AVAILABLE


def handle(context: ApiContext, request: Request[MetadataRequest]) -> MetadataResponse:
    """Return the topics of the request; None (version 0: empty) asks for all."""
    message = request.message
    version = request.header.api_version
    view = context.services.view
    response = MetadataResponse(
        cluster_id=context.services.identity.cluster_id, controller_id=view.controller_id
    )
    leaders = _Leaders(context, request)
    for broker_id, endpoint in leaders.endpoints.items():
        rack = view.brokers[broker_id].rack
        response.brokers.append(
            MetadataResponseBroker(broker_id, endpoint.host, endpoint.port, rack)
        )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    response.topics = _topics(context, leaders, message, version)
    if message.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return response


def _topics(
    context: ApiContext, leaders: _Leaders, message: MetadataRequest, version: int
) -> list[MetadataResponseTopic]:
    asked = message.topics
    if asked is None or (version == 0 and not asked):
        return [_topic(leaders, topic) for _, topic in sorted(context.services.view.topics.items())]
    answers = []
    may_create = (
        message.allow_auto_topic_creation and context.services.config.auto_create_topics_enable
    )
    missing: dict[str, None] = {}
    # A topic named several times gets one response, as in Kafka.
    once = {(wanted.topic_id, wanted.name): wanted for wanted in asked}
    for wanted in once.values():
        answer = _asked(context, leaders, wanted, version)
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and may_create:
            assert wanted.name is not None
            missing[wanted.name] = None
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        answers.append(answer)
    if missing:
        context.auto_creation.create(missing)
    return answers


def _asked(
    context: ApiContext, leaders: _Leaders, wanted: MetadataRequestTopic, version: int
) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_TOPIC_ID:
        if version < _ASKING_BY_ID_VERSION:
            return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, wanted.name or "")
        by_id = context.services.view.topic_name(wanted.topic_id)
        if by_id is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return _topic(leaders, context.services.view.topics[by_id])
    name = wanted.name
    if name is None:
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, "")
    topic = context.services.view.topics.get(name)
    if topic is not None:
        return _topic(leaders, topic)
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return MetadataResponseTopic(error.code, name)
    return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _topic(leaders: _Leaders, topic: TopicView) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=[
            _partition(leaders, number, partition)
            for number, partition in sorted(topic.partitions.items())
        ],
    )


def _partition(
    leaders: _Leaders, number: int, partition: PartitionView
) -> MetadataResponsePartition:
    error = leaders.error(partition.leader)
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=-1 if error else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=partition.offline_replicas,
    )


def error_response(
    request: Request[MetadataRequest], error: ErrorCode, message: str | None = None
) -> MetadataResponse:
    """Return `error` for each named topic; a request for all topics names none.

    Versions below 12 have no null for the name of a topic that was requested by id.
    """
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.message.topics or ()
        ]
    )
