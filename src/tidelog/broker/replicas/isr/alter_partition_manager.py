"""The queue of ISR changes on their way to the controller (A1, A2, A5, A8, A10).

Leaders propose changes (`replication.leader`) and do not wait for them; this queue sends the
changes. Only one AlterPartition request is in flight at a time. Changes queued during a request go
with the next request; a later change of a partition replaces an unsent change. The queue retries a
request that the controller did not process (NOT_CONTROLLER, STALE_BROKER_EPOCH), or that got no
response. A retried request goes to the current controller, after 50 ms and then after growing
pauses. After a retry or an unknown outcome, each leader decides whether it requests the same change
again or a newer change, which supersedes the earlier one (A8). The queue drops a change that the
partition's leader has withdrawn.
"""

from __future__ import annotations

import logging
from typing import Any

from tidelog.broker.peers import PeerConnection
from tidelog.broker.replicas.hosting.isr_change_queue import IsrChangeQueue
from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.broker.replicas.isr import alter_partition_requests as requests
from tidelog.broker.services import Services
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError
from tidelog.replication.isr import IsrChange
from tidelog.wire.messages.alter_partition import AlterPartitionResponse, ResponsePartitionData
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.registry import ALTER_PARTITION, API_VERSIONS

_API_VERSIONS_VERSION = 3
_FIRST_RETRY_MS = 50
_MAX_RETRY_MS = 800
_PURPOSE = "isr-changes"


#: Changes of one request, by topic (id or name, as in the request) and partition number.
_Sent = dict[tuple[requests.TopicKey, int], tuple[Partition, IsrChange]]


class AlterPartitionManager(IsrChangeQueue):
    """The queue that sends one broker's ISR changes to the controller."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._in_flight = False
        #: Number of the current request.
        self._attempt = 0
        #: The controller to which the current request went: (epoch, broker id).
        self._asked: tuple[int, int] = (-1, -1)
        self._awaited: _Sent = {}
        self._versions = requests.ControllerVersions(requests.HIGHEST_VERSION)
        #: Whether the queue is scheduled to send, at the end of the current event or of a pause.
        self._due = False
        self._failures = 0

    def retry(self, partition: Partition, change: IsrChange, after_ms: int = 0) -> None:
        """Send a change again after a pause, if the controller neither accepted nor rejected it.

        If the controller holds the change back for `after_ms` milliseconds (A11), the pause before
        the retry begins after that time. The delay `after_ms` holds back this change only, not the
        changes of other partitions.
        """
        if after_ms > 0:
            self._services.serving_timers.after(after_ms, lambda: self.retry(partition, change))
            return
        if self._closed:
            return
        self._queue.setdefault(partition.topic_partition, (partition, change))
        self._later()

    def controller_changed(self) -> None:
        """Send the changes to the new controller, if the broker's metadata names it (A2).

        After a change of the controller the queue ignores the response of the earlier controller.
        """
        if self._in_flight and self._asked != self._controller():
            self._attempt += 1
            self._failures = 0
            self._services.tracer.mark("isr_changes_put_to_new_controller")
            awaited = self._awaited
            self._unanswered(awaited, "the controller has changed", len(awaited))

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
        services, controller = self._services, self._controller()
        try:
            version = self._versions.version(controller)
        except KafkaError as error:
            services.tracer.log("server", logging.WARNING, f"ISR changes wait: {error}")
            self._later()
            return
        changes = self._taken(version)
        if not changes:
            return
        self._in_flight = True
        self._awaited = changes
        self._asked = controller
        self._attempt += 1
        try:
            connection = services.peers.connection(services.view.controller_id, _PURPOSE)
        except ConnectionLost as error:
            self._put_back(changes)
            self._unanswered({}, str(error), len(changes))
            return
        if self._versions.must_ask(controller):
            self._put_back(changes)
            self._ask_versions(connection)
            return
        for partition, change in changes.values():
            partition.role.change_sent(change)
        self._request(connection, version, changes)

    def _taken(self, version: int) -> _Sent:
        """Empty the queue; return the changes that should be sent."""
        queue, self._queue = self._queue, {}
        changes: _Sent = {}
        for partition, change in queue.values():
            leadership = partition.leadership
            if leadership is not None and leadership.is_to_be_sent(change):
                topic, number = partition.topic_partition
                key = requests.topic_key(version, partition.topic_id, topic)
                changes[key, number] = (partition, change)
        return changes

    def _put_back(self, changes: _Sent) -> None:
        """Queue again the changes that were not sent."""
        for partition, change in changes.values():
            self._queue.setdefault(partition.topic_partition, (partition, change))

    def _request(self, connection: PeerConnection, version: int, changes: _Sent) -> None:
        services, attempt = self._services, self._attempt
        named = {
            key: requests.RequestedChange(
                partition.topic_id, partition.topic_partition, change, _minimum(partition)
            )
            for key, (partition, change) in changes.items()
        }
        connection.send(
            ALTER_PARTITION,
            version,
            requests.make(version, services.broker_id, services.broker_epoch, named),
            services.config.request_timeout_ms,
            lambda answer, error: self._answered(attempt, version, changes, answer, error),
        )

    def _ask_versions(self, connection: PeerConnection) -> None:
        """Ask a controller for its API versions after it left a request without a response."""
        attempt, asked = self._attempt, self._asked
        self._awaited = {}

        def answered(answer: Any, error: Exception | None) -> None:
            if self._closed or attempt != self._attempt:
                return
            if error is not None:
                self._unanswered({}, f"no response to ApiVersions: {error}", len(self._queue))
                return
            self._versions.learn(asked, answer)
            self._in_flight = False
            self._soon()

        connection.send(
            API_VERSIONS,
            _API_VERSIONS_VERSION,
            ApiVersionsRequest("tidelog", ""),
            self._services.config.request_timeout_ms,
            answered,
        )

    def _answered(
        self, attempt: int, version: int, changes: _Sent, answer: Any, error: Exception | None
    ) -> None:
        if self._closed or attempt != self._attempt:
            if error is None and not self._closed:
                self._services.tracer.mark("isr_answer_after_new_controller")
            return
        if error is not None:
            self._versions.unanswered(self._asked)
            self._unanswered(changes, str(error), len(changes))
            return
        self._versions.responded(self._asked)
        response: AlterPartitionResponse = answer
        if response.error_code:
            self._unanswered(changes, _error(response.error_code).name, len(changes))
            return
        self._in_flight = False
        self._failures = 0
        for topic in response.topics:
            key = requests.topic_key(version, topic.topic_id, topic.topic_name)
            for outcome in topic.partitions:
                sent = changes.pop((key, outcome.partition_index), None)
                if sent is not None:
                    _settle(*sent, outcome)
        for partition, change in changes.values():
            # The response omits `change`: its outcome is unknown, or the controller holds it back.
            partition.role.change_unanswered(change, response.held_ms)
        if self._queue:
            self._soon()

    def _unanswered(self, changes: _Sent, why: str, count: int) -> None:
        """After a pause, let each leader decide again, because its change has no outcome (A2).

        `count` is the number of waiting changes, for the log.
        """
        self._in_flight = False
        services = self._services
        services.tracer.mark("isr_change_asked_again")
        services.tracer.event("isr_changes_unanswered", count=count, why=why)
        services.tracer.log("server", logging.INFO, f"retrying {count} ISR changes: {why}")
        self._later()
        for partition, change in changes.values():
            partition.role.change_unanswered(change)


def _minimum(partition: Partition) -> int:
    leadership = partition.leadership
    assert leadership is not None, "only the change of a leader is sent"
    return leadership.minimum


def _settle(partition: Partition, change: IsrChange, outcome: ResponsePartitionData) -> None:
    """Pass the controller's outcome of one change to its leader."""
    if outcome.error_code:
        partition.role.change_refused(change, _error(outcome.error_code))
        return
    partition.role.change_accepted(
        change,
        tuple(outcome.isr),
        outcome.leader_epoch,
        outcome.partition_epoch,
        outcome.has_eligible,
    )


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
