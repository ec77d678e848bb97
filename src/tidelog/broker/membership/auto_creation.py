"""The creation of topics on first use, by clients or by this broker itself.

This broker asks the controller to create the topic; it has at most one request per topic in flight.
A topic that is created because a client uses it gets the cluster's defaults. As in Kafka's
AutoTopicCreationManager, `__consumer_offsets` has its own partition count, replication factor and
configuration (`offsets.topic.*`). The same holds for `__cluster_events` (`cluster.events.*`). A
caller gets no outcome; it repeats the call until the broker's view of the cluster shows the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidelog.broker.cluster_view import TopicView
from tidelog.broker.services import Services
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.names import CLUSTER_EVENTS, CONSUMER_OFFSETS
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.registry import CREATE_TOPICS

_VERSION = 7
_TIMEOUT_MS = 15_000
_DAY_MS = 24 * 3_600_000


class AutoCreation:
    """The part of one broker that asks the controller to create topics on first use."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Topics whose creation was requested and has no response yet.
        self._asked: dict[str, None] = {}
        #: Why the last attempt to create `__consumer_offsets` failed; empty otherwise.
        self.no_offsets_topic = ""

    def create(self, names: Iterable[str]) -> None:
        """Request the creation of these topics, except topics with a request in flight."""
        if not self._services.view.is_known:
            # before the first UpdateMetadata, the topics may exist without this broker's knowledge
            return
        wanted = [name for name in dict.fromkeys(names) if name not in self._asked]
        if wanted:
            self._asked.update(dict.fromkeys(wanted))
            self._services.tasks.spawn("create topics on first use", self._create(wanted))

    def offsets_topic(self) -> TopicView | None:
        """Return `__consumer_offsets`; if it does not exist, request its creation and return None.

        The coordinator of groups responds COORDINATOR_NOT_AVAILABLE until the topic exists. As in
        Kafka, auto.create.topics.enable has no effect on `__consumer_offsets`.
        """
        topic = self._services.view.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            self.create([CONSUMER_OFFSETS])
        return topic

    def wanted(self, name: str) -> CreatableTopic:
        """Return the settings with which a topic of this name is created."""
        config = self._services.config
        if name == CLUSTER_EVENTS:
            return self._events_topic()
        if name != CONSUMER_OFFSETS:
            return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        return CreatableTopic(
            name=name,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs=[CreatableTopicConfig(key, value) for key, value in settings.items()],
        )

    def _events_topic(self) -> CreatableTopic:
        """Return the topic `__cluster_events`: one partition, so that all events have one order.

        Each segment holds one day, so that no event stays much longer than configured.
        """
        config = self._services.config
        live = max(1, len(self._services.view.brokers))
        settings = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": str(config.cluster_events_retention_ms),
            "segment.ms": str(_DAY_MS),
        }
        return CreatableTopic(
            name=CLUSTER_EVENTS,
            num_partitions=1,
            replication_factor=min(config.cluster_events_topic_replication_factor, live),
            configs=[CreatableTopicConfig(key, value) for key, value in settings.items()],
        )

    async def _create(self, names: list[str]) -> None:
        services = self._services
        request = CreateTopicsRequest(
            topics=[self.wanted(name) for name in names], timeout_ms=_TIMEOUT_MS
        )
        try:
            connection = services.peers.connection(services.view.controller_id, "admin")
            answer: CreateTopicsResponse = await connection.call(
                CREATE_TOPICS, _VERSION, request, _TIMEOUT_MS
            )
        except TidelogError as error:
            self._log(f"cannot create topics {names}: {error}")
        else:
            for result in answer.topics:
                self._answered(result)
        finally:
            for name in names:
                del self._asked[name]

    def _answered(self, result: CreatableTopicResult) -> None:
        """Log why a creation failed, and report the reason to clients that look for a coordinator.

        Clients that look for a coordinator ask repeatedly, so the broker does not log the same
        reason twice in a row.
        """
        is_there = result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        reason = "" if is_there else result.error_message or f"error {result.error_code}"
        is_news = reason != ""
        if result.name == CONSUMER_OFFSETS:
            is_news = reason not in ("", self.no_offsets_topic)
            self.no_offsets_topic = reason
        if is_news:
            self._log(f"topic {result.name} was not created: {reason}")

    def _log(self, message: str) -> None:
        self._services.tracer.log("server", logging.WARNING, message)
