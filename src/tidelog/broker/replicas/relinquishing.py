"""Leaders of this broker that cannot serve reads step back (F11).

Looks for leaderships whose oldest read from the disk has taken longer than
`replica.lag.time.max.ms`, each time followers are examined. Asks the controller to elect another
member of the ISR. A request without a response is not repeated before the next look, which finds
the leaderships that are still due.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedTopic,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import RELINQUISH_LEADERSHIP

if TYPE_CHECKING:
    from tidelog.broker.replicas.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.core.types import TopicId

_VERSION = 0
_PURPOSE = "slow-reads"
#: Partitions that one log line names.
_MAX_NAMED = 5


class Relinquishing:
    """The leaderships that one broker gives away."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._is_asking = False

    def look(self, partitions: Iterable[Partition]) -> None:
        """Give the leaderships away whose reads take too long, where that is enabled."""
        services = self._services
        if self._is_asking or not services.config.leader_relinquish_on_slow_reads_enable:
            return
        now_ms = services.clock.monotonic_ms()
        due = [
            partition
            for partition in partitions
            if partition.leadership is not None and partition.leadership.must_relinquish(now_ms)
        ]
        if not due:
            return
        self._is_asking = True
        services.tracer.mark("leadership_relinquished")
        services.tracer.log("server", logging.WARNING, _report(due, now_ms))
        services.tasks.spawn("replicas: relinquish", self._ask(_request(services, due)))

    async def _ask(self, request: RelinquishLeadershipRequest) -> None:
        services = self._services
        try:
            connection = services.peers.connection(services.view.controller_id, _PURPOSE)
            response: RelinquishLeadershipResponse = await connection.call(
                RELINQUISH_LEADERSHIP, _VERSION, request, services.config.request_timeout_ms
            )
        except TidelogError as error:
            self._failed(str(error))
        else:
            if response.error_code:
                self._failed(ErrorCode(response.error_code).name)
            for topic in response.topics:
                for outcome in topic.partitions:
                    if outcome.error_code:
                        self._failed(outcome.error_message or ErrorCode(outcome.error_code).name)
        finally:
            self._is_asking = False

    def _failed(self, reason: str) -> None:
        self._services.tracer.log(
            "server",
            logging.WARNING,
            f"the controller elected no other leader in place of one with slow reads: {reason};"
            " asking again while its reads take too long",
        )


def _report(due: list[Partition], now_ms: int) -> str:
    names = ", ".join(str(partition.topic_partition) for partition in due[:_MAX_NAMED])
    more = f" and {len(due) - _MAX_NAMED} more" if len(due) > _MAX_NAMED else ""
    leaderships = [partition.leadership for partition in due]
    longest_ms = max(each.reads_under_way.age_ms(now_ms) for each in leaderships if each)
    limit_ms = next(each.max_lag_ms for each in leaderships if each)
    return (
        f"reads of {names}{more} have waited {longest_ms} ms for the disk (limit {limit_ms} ms):"
        " asking the controller for another leader from the ISR"
    )


def _request(services: Services, due: list[Partition]) -> RelinquishLeadershipRequest:
    topics: dict[TopicId, RelinquishedTopic] = {}
    for partition in due:
        topic = topics.setdefault(partition.topic_id, RelinquishedTopic(partition.topic_id))
        topic.partitions.append(
            RelinquishedPartition(partition.topic_partition.partition, partition.leader_epoch)
        )
    return RelinquishLeadershipRequest(
        services.broker_id, services.broker_epoch, list(topics.values())
    )
