"""Metadata (key 3), versions 0 to 13: brokers, controller and topics.

The response has each topic's id, leaders, ISRs and offline replicas, as the controller last sent
them to this broker (V82). The response has each broker's endpoint on the client's listener, as in
Kafka. A broker without an endpoint on the client's listener is omitted, and its partitions get
LISTENER_NOT_FOUND (below version 6: LEADER_NOT_AVAILABLE). Unknown topics are created if
`auto.create.topics.enable` and the request allow it. The broker asks the controller to create an
unknown topic and responds LEADER_NOT_AVAILABLE, so the client retries. A request may ask for
authorized operations: of the cluster in versions 8 to 10, of topics from version 8 on (KIP-430).
tidelog's brokers never set the top-level error of version 13 (KIP-1102).

If the broker of a leader has just ended, the response waits briefly for the next leader (V83). The
response to a request that names topics also lists brokers that ended seconds ago, because
librdkafka cannot use a partition whose leader is not listed. The response to a request for all
topics lists live brokers only, because administrators' tools show these brokers as live.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.apis.support.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.held_answers import Question
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
)
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic, validate_topic_name
from tidelog.core.types import ZERO_TOPIC_ID, BrokerInfo
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

CARD = Card(
    api_key=3,
    min_version=0,
    max_version=13,
    rights=(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
)

#: The first version in which clients may request topics by id, because responses of earlier
#: versions need every topic's name.
_ASKING_BY_ID_VERSION = 12
#: From this version on, a partition whose leader lacks the client's listener gets another error
#: than a partition without a leader.
_LISTENER_ERROR_VERSION = 6


class _Leaders:
    """The brokers that a client can reach: live, and with an endpoint on its listener."""

    __slots__ = ("_is_alive", "_reachable", "_without_listener")

    def __init__(self, context: ApiContext, request: Request[MetadataRequest]) -> None:
        view, listener = context.services.view, request.connection.listener
        self._reachable = {
            broker_id
            for broker_id in view.brokers
            if view.endpoint(broker_id, listener) is not None
        }
        self._is_alive = view.is_alive
        distinguishes_listener = request.header.api_version >= _LISTENER_ERROR_VERSION
        self._without_listener = (
            ErrorCode.LISTENER_NOT_FOUND
            if distinguishes_listener
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def error(self, leader: int) -> ErrorCode:
        """Return why a client of this listener cannot reach the leader; NONE if it can."""
        if leader in self._reachable:
            return ErrorCode.NONE
        if self._is_alive(leader):
            return self._without_listener
        return ErrorCode.LEADER_NOT_AVAILABLE


def handle(context: ApiContext, request: Request[MetadataRequest]) -> Pending | MetadataResponse:
    """Return metadata of the request's topics; null (version 0: an empty list) means all topics."""
    answer: Pending | MetadataResponse = context.held_answers.answer(
        request, lambda: _question(context, request), lambda: _response(context, request)
    )
    return answer


def _question(context: ApiContext, request: Request[MetadataRequest]) -> Question:
    asked = _named(request)
    return Question(None if asked is None else [_name(context, wanted) for wanted in asked])


def _named(request: Request[MetadataRequest]) -> list[MetadataRequestTopic] | None:
    """Return the topics that a request names; None if it asks for all topics."""
    asked = request.message.topics
    return asked or (None if request.header.api_version == 0 else asked)


def _name(context: ApiContext, wanted: MetadataRequestTopic) -> str:
    return wanted.name or context.services.view.topic_name(wanted.topic_id) or ""


def _response(context: ApiContext, request: Request[MetadataRequest]) -> MetadataResponse:
    """Return the response, made from the current view."""
    message = request.message
    view = context.services.view
    response = MetadataResponse(
        cluster_id=context.services.identity.cluster_id, controller_id=view.controller_id
    )
    leaders = _Leaders(context, request)
    brokers = view.brokers
    if _named(request):
        brokers = {**context.held_answers.kept(), **brokers}
    response.brokers = _brokers(brokers, request.connection.listener)
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    response.topics = _topics(context, leaders, request)
    if message.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return response


def _brokers(brokers: Mapping[int, BrokerInfo], listener: str) -> list[MetadataResponseBroker]:
    """Return the brokers that have this listener, in the order of their ids."""
    return [
        MetadataResponseBroker(broker_id, endpoint.host, endpoint.port, broker.rack)
        for broker_id, broker in sorted(brokers.items())
        for endpoint in broker.endpoints
        if endpoint.listener == listener
    ]


def _topics(
    context: ApiContext, leaders: _Leaders, request: Request[MetadataRequest]
) -> list[MetadataResponseTopic]:
    message, version, asked = request.message, request.header.api_version, _named(request)
    if asked is None:
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
    """Return `error` for each named topic; for a request of all topics the list is empty.

    Versions below 12 allow no null name for a topic that was requested by id.
    """
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.message.topics or ()
        ]
    )
