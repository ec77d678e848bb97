"""The queue of ISR changes on their way to the controller (A1, A2, A5, A10).

Leaders propose a change (`replication.leader`) and go on; this queue sends it. One AlterPartition
request is in flight at a time. Changes queued meanwhile go with the next request; a later change of
a partition replaces an unsent one. The queue retries a request that the controller did not consider
(NOT_CONTROLLER, STALE_BROKER_EPOCH) or whose response did not come. The retry goes to the
controller of that time, 50 ms later and with growing pauses. Changes that their leader no longer
wants drop out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.types import TopicId, TopicPartition
from tidelog.replication.isr import IsrChange
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.registry import ALTER_PARTITION

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_VERSION = 3
_FIRST_RETRY_MS = 50
_MAX_RETRY_MS = 800
_PURPOSE = "isr-changes"


class ChangingRole(Protocol):
    """The role of a replica whose leader proposed a change; other roles ignore the outcome."""

    def is_change_wanted(self, change: IsrChange) -> bool:
        """Whether the change is still to be sent, or its outcome awaited."""

    def change_sent(self, change: IsrChange) -> None:
        """Note that the change is about to leave; only for one that `is_change_wanted`."""

    def change_accepted(
        self,
        change: IsrChange,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        has_eligible: bool = False,
    ) -> None:
        """Take over the state in the controller's response."""

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """Note that the controller rejected the change."""


class ChangingReplica(Protocol):
    """A replica whose leader proposes an ISR."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""

    @property
    def topic_id(self) -> TopicId:
        """The id of the topic."""

    @property
    def role(self) -> ChangingRole:
        """The present role."""


#: Changes of one request, by topic id and partition.
_Sent = dict[tuple[TopicId, int], tuple[ChangingReplica, IsrChange]]


class AlterPartitionManager:
    """The queue of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._queue: dict[TopicPartition, tuple[ChangingReplica, IsrChange]] = {}
        self._in_flight = False
        #: The awaited request, and its controller: (epoch, broker id).
        self._attempt = 0
        self._asked: tuple[int, int] = (-1, -1)
        self._awaited: _Sent = {}
        #: A send is due: at the end of this event, or when a pause is over.
        self._due = False
        self._failures = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, partition: ChangingReplica, change: IsrChange) -> None:
        """Send a change, with all others of this event; replaces one that was not sent (A8)."""
        self._queue[partition.topic_partition] = (partition, change)
        self._soon()

    def withdraw(self, partition: ChangingReplica) -> None:
        """Drop the unsent change of a partition."""
        self._queue.pop(partition.topic_partition, None)

    def retry(self, partition: ChangingReplica, change: IsrChange) -> None:
        """Send a change again after a pause: the controller left its outcome open."""
        self._queue.setdefault(partition.topic_partition, (partition, change))
        self._later()

    def controller_changed(self) -> None:
        """Send the changes to the new controller, if the view names another one (A2).

        The response of the earlier controller is not awaited any more.
        """
        if self._in_flight and self._asked != self._controller():
            self._attempt += 1
            self._failures = 0
            self._services.tracer.mark("isr_changes_put_to_new_controller")
            self._unanswered(self._awaited, "the controller has changed")

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._queue.clear()

    # sending

    def _controller(self) -> tuple[int, int]:
        return self._services.view.controller_epoch, self._services.view.controller_id

    def _soon(self) -> None:
        if not self._due and not self._in_flight:
            self._due = True
            self._services.ports.loop.call_soon(self._send)

    def _later(self) -> None:
        if self._due or self._in_flight or self._closed:
            return
        self._due = True
        delay_ms = min(_FIRST_RETRY_MS << min(self._failures, 10), _MAX_RETRY_MS)
        self._failures += 1
        self._services.serving_timers.after(delay_ms, self._send)

    def _send(self) -> None:
        self._due = False
        if self._closed or self._in_flight:
            return
        queue, self._queue = self._queue, {}
        changes: _Sent = {}
        for partition, change in queue.values():
            if partition.role.is_change_wanted(change):
                changes[partition.topic_id, partition.topic_partition.partition] = (
                    partition,
                    change,
                )
        if not changes:
            return
        services = self._services
        self._in_flight = True
        self._awaited = changes
        self._asked = self._controller()
        self._attempt += 1
        attempt = self._attempt
        try:
            connection = services.peers.connection(services.view.controller_id, _PURPOSE)
        except ConnectionLost as error:
            self._unanswered(changes, str(error))
            return
        for partition, change in changes.values():
            partition.role.change_sent(change)
        connection.send(
            ALTER_PARTITION,
            _VERSION,
            _request(services.broker_id, services.broker_epoch, changes),
            services.config.request_timeout_ms,
            lambda answer, error: self._answered(attempt, changes, answer, error),
        )

    def _answered(self, attempt: int, changes: _Sent, answer: Any, error: Exception | None) -> None:
        if self._closed or attempt != self._attempt:
            if error is None and not self._closed:
                self._services.tracer.mark("isr_answer_after_new_controller")
            return
        if error is not None:
            self._unanswered(changes, str(error))
            return
        response: AlterPartitionResponse = answer
        if response.error_code:
            self._unanswered(changes, _error(response.error_code).name)
            return
        self._in_flight = False
        self._failures = 0
        for topic in response.topics:
            for outcome in topic.partitions:
                sent = changes.pop((topic.topic_id, outcome.partition_index), None)
                if sent is None:
                    continue
                partition, change = sent
                if outcome.error_code:
                    partition.role.change_refused(change, _error(outcome.error_code))
                else:
                    partition.role.change_accepted(
                        change,
                        tuple(outcome.isr),
                        outcome.leader_epoch,
                        outcome.partition_epoch,
                        outcome.has_eligible,
                    )
        for partition, change in changes.values():
            # The response does not name it: its outcome is unknown.
            self.retry(partition, change)
        if self._queue:
            self._soon()

    def _unanswered(self, changes: _Sent, why: str) -> None:
        """Repeat the request, with later changes: the outcome of every change is unknown (A2)."""
        self._in_flight = False
        services = self._services
        services.tracer.mark("isr_change_asked_again")
        services.tracer.event("isr_changes_unanswered", count=len(changes), why=why)
        services.tracer.log("server", logging.INFO, f"retrying {len(changes)} ISR changes: {why}")
        for partition, change in changes.values():
            if partition.role.is_change_wanted(change):
                self._queue.setdefault(partition.topic_partition, (partition, change))
        self._later()


def _request(broker_id: int, broker_epoch: int, changes: _Sent) -> AlterPartitionRequest:
    topics: dict[TopicId, RequestTopicData] = {}
    for (topic_id, number), (_, change) in changes.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = RequestTopicData(topic_id=topic_id)
        topic.partitions.append(
            RequestPartitionData(
                partition_index=number,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(member, epoch)
                    for member, epoch in zip(change.isr, change.isr_epochs, strict=True)
                ],
                leader_recovery_state=change.leader_recovery_state,
                partition_epoch=change.partition_epoch,
                shrunk=[shrink.replica_id for shrink in change.shrinks],
                causes=[shrink.cause for shrink in change.shrinks],
            )
        )
    return AlterPartitionRequest(broker_id, broker_epoch, list(topics.values()))


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
