"""Metadata (key 3), versions 0 to 13.

Brokers, controller, topics with leaders, ISRs, offline replicas and topic ids, from published state
only (V82). Unknown topics are created where `auto.create.topics.enable` and the request allow it:
the controller is asked, the client is told LEADER_NOT_AVAILABLE and asks again, as Kafka does.
Authorized operations are not told (no authorizer yet); the answer as a whole has no error, as no
broker has reason to send a client back to its bootstrap servers (KIP-1102).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.requests import Card, Request
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
    from tidelog.broker.broker import Broker

CARD = Card(api_key=3, min_version=0, max_version=13)

#: Earlier versions that carry ids must not ask by them: their answers need a name.
_ASKING_BY_ID_VERSION = 12


def handle(broker: Broker, request: Request) -> MetadataResponse:
    """The topics asked for; None (version 0: empty) asks for all."""
    message: MetadataRequest = request.message
    version = request.header.api_version
    view = broker.view
    response = MetadataResponse(cluster_id=broker.cluster_id, controller_id=view.controller_id)
    for broker_id, info in sorted(view.brokers.items()):
        endpoint = broker.client_endpoint(broker_id)
        if endpoint is not None:
            response.brokers.append(
                MetadataResponseBroker(broker_id, endpoint.host, endpoint.port, info.rack)
            )
    asked = message.topics
    if asked is None or (version == 0 and not asked):
        response.topics = [_topic(broker, topic) for _, topic in sorted(view.topics.items())]
        return response
    may_create = message.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    missing: dict[str, None] = {}
    # A topic named several times is answered once, as Kafka does.
    once = {(wanted.topic_id, wanted.name): wanted for wanted in asked}
    for wanted in once.values():
        answer = _asked(broker, wanted, version)
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and may_create:
            assert wanted.name is not None
            missing[wanted.name] = None
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        response.topics.append(answer)
    if missing:
        broker.auto_creation.create(missing)
    return response


def _asked(broker: Broker, wanted: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_TOPIC_ID:
        if version < _ASKING_BY_ID_VERSION:
            return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, wanted.name or "")
        by_id = broker.view.topic_name(wanted.topic_id)
        if by_id is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return _topic(broker, broker.view.topics[by_id])
    name = wanted.name
    if name is None:
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, "")
    topic = broker.view.topics.get(name)
    if topic is not None:
        return _topic(broker, topic)
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return MetadataResponseTopic(error.code, name)
    return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _topic(broker: Broker, topic: TopicView) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=[
            _partition(broker, number, partition)
            for number, partition in sorted(topic.partitions.items())
        ],
    )


def _partition(broker: Broker, number: int, partition: PartitionView) -> MetadataResponsePartition:
    has_leader = partition.leader >= 0 and broker.view.is_alive(partition.leader)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=partition.offline_replicas,
    )
