"""Roles that this broker must give up: slow reads (F11), a damaged log (V68), a full disk (D14).

Looks for such replicas each time followers are examined, when a read finds damage, and while a log
directory is full. Asks the controller to elect another member of the ISR, and to take a damaged
replica out of the ISR. The replica truncates its log when a command says that it is no member
(`Partition.become_follower`). A request without a response is not repeated before the next look,
which finds what is still due.

A leader that is alone in its ISR keeps a damaged log: its readers get CORRUPT_MESSAGE. A controller
that does not know the request gets a damaged replica as an offline one (`DamagedReplicas`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.metrics import PARTITIONS_DAMAGED
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedTopic,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import API_VERSIONS, RELINQUISH_LEADERSHIP

if TYPE_CHECKING:
    from tidelog.broker.peers import PeerConnection
    from tidelog.broker.replicas.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.core.types import TopicId, TopicPartition
    from tidelog.log.log_state import Damage

_VERSION = 0
_API_VERSIONS_VERSION = 3
_PURPOSE = "slow-reads"
#: Partitions that one log line names.
_MAX_NAMED = 5
#: Reads that find the same damage again make no further request before.
DAMAGE_PAUSE_MS: Final = 500
#: Pause before the broker asks again for another leader in place of one on a full disk.
FULL_PAUSE_MS: Final = 5_000
#: Attempts to report that a full disk has space again, and the pause between them.
_SPACE_ATTEMPTS: Final = 5
_SPACE_PAUSE_MS: Final = 1_000
_SLOW = (
    "the controller elected no other leader in place of one with slow reads: {};"
    " asking again while its reads take too long"
)
_FULL = (
    "the controller elected no other leader in place of one on a full disk: {};"
    " asking again while the disk is full"
)
_DAMAGED = (
    "the controller has not taken this broker out of the ISR of a partition with a damaged log: {};"
    " asking again"
)


class Relinquishing:
    """The roles that one broker gives up."""

    def __init__(self, services: Services, give_up: Callable[[Partition], None]) -> None:
        """`give_up` has a damaged replica replaced where the controller cannot be asked."""
        self._services = services
        self._give_up = give_up
        self._is_asking = False
        #: Damage was found while a request was under way.
        self._found_meanwhile: Callable[[], Sequence[Partition]] | None = None
        #: When another leader in place of one on a full disk was last asked for, monotonic, by
        #: partition and leader epoch.
        self._full_asked_ms: dict[tuple[TopicPartition, int], int] = {}
        #: When each damaged partition was last asked for, monotonic.
        self._asked_ms: dict[TopicPartition, int] = {}
        #: The damage that was reported of leaders that are alone in their ISR.
        self._kept: dict[TopicPartition, Damage] = {}

    def look(self, partitions: Iterable[Partition]) -> None:
        """Give up damaged replicas, and leaderships with slow reads where that is enabled."""
        services = self._services
        hosted = list(partitions)
        damaged = self._damaged(hosted)
        if self._is_asking:
            return
        now_ms = services.clock.monotonic_ms()
        slow: list[Partition] = []
        if services.config.leader_relinquish_on_slow_reads_enable:
            slow = [
                partition
                for partition in hosted
                if partition not in damaged
                and partition.leadership is not None
                and partition.leadership.must_relinquish(now_ms)
            ]
        if slow:
            services.tracer.mark("leadership_relinquished")
            services.tracer.log("server", logging.WARNING, _report(slow, now_ms))
        self._begin(slow, damaged, self._on_full_disks(hosted, [*slow, *damaged]))

    def directory_full(self, partitions: Sequence[Partition]) -> None:
        """Give up leaderships on full disks, except those asked for a moment ago (D14)."""
        if not self._is_asking:  # otherwise the next probe asks
            self._begin([], [], self._on_full_disks(partitions, []))

    def space_returned(self) -> None:
        """Report that a full disk has space: its replicas may lead again."""
        self._full_asked_ms.clear()
        self._services.tasks.spawn("replicas: report space", self._report_space())

    def _on_full_disks(
        self, partitions: Iterable[Partition], others: Sequence[Partition]
    ) -> list[Partition]:
        """Return leaders on full disks that are due, without `others`."""
        now_ms = self._services.clock.monotonic_ms()
        asked = self._full_asked_ms = {
            key: asked_ms
            for key, asked_ms in self._full_asked_ms.items()
            if now_ms - asked_ms < FULL_PAUSE_MS
        }
        return [
            partition
            for partition in partitions
            if partition.log.directory.space.is_full
            and partition.leadership is not None
            and partition.leadership.can_be_replaced
            and (partition.topic_partition, partition.leader_epoch) not in asked
            and partition not in others
        ]

    def damage_found(self, partitions: Callable[[], Sequence[Partition]]) -> None:
        """Give up damaged replicas at once, except those asked for a moment ago."""
        damaged = self._damaged(partitions())
        if self._is_asking:
            self._found_meanwhile = partitions
            return
        since_ms = self._services.clock.monotonic_ms() - DAMAGE_PAUSE_MS
        due = [
            partition
            for partition in damaged
            if self._asked_ms.get(partition.topic_partition, since_ms) <= since_ms
        ]
        self._begin([], due, [])

    def _damaged(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Count the damaged replicas and report them; return those that others can replace."""
        services = self._services
        found = [partition for partition in partitions if partition.log.damage is not None]
        services.metrics.put(PARTITIONS_DAMAGED, len(found))
        if not found:
            self._kept.clear()
            self._asked_ms.clear()
            return []
        alone = [partition for partition in found if _is_alone(partition)]
        kept = self._kept
        self._kept = {
            partition.topic_partition: partition.log.damage
            for partition in alone
            if partition.log.damage is not None
        }
        for topic_partition, damage in self._kept.items():
            if kept.get(topic_partition) != damage:
                services.tracer.log(
                    "server",
                    logging.ERROR,
                    f"partition {topic_partition}: the log is damaged from offset {damage.offset}"
                    f" on, and no other replica is in sync: it is kept as it is, and readers of"
                    f" damaged batches get CORRUPT_MESSAGE ({damage.reason})",
                )
        return [partition for partition in found if partition.has_role and partition not in alone]

    def _begin(
        self, slow: list[Partition], damaged: list[Partition], full: list[Partition]
    ) -> None:
        services = self._services
        if not slow and not damaged and not full:
            return
        if full:
            self._report_full(full)
        if damaged:
            services.tracer.mark("damage_reported")
        now_ms = services.clock.monotonic_ms()
        for partition in damaged:
            self._asked_ms[partition.topic_partition] = now_ms
            damage = partition.log.damage
            assert damage is not None, f"{partition.topic_partition} is not damaged"
            services.tracer.log(
                "server",
                logging.ERROR,
                f"partition {partition.topic_partition}: the log is damaged from offset"
                f" {damage.offset} on: asking controller {services.view.controller_id} to take this"
                " broker out of the ISR; the log is then truncated there and refetched"
                f" ({damage.reason})",
            )
        self._is_asking = True
        services.tasks.spawn("replicas: relinquish", self._ask(slow, damaged, full))

    def _report_full(self, full: list[Partition]) -> None:
        services = self._services
        now_ms = services.clock.monotonic_ms()
        for partition in full:
            self._full_asked_ms[partition.topic_partition, partition.leader_epoch] = now_ms
        services.tracer.mark("leadership_given_up_when_full")
        services.tracer.log(
            "server",
            logging.WARNING,
            f"{_names(full)}: the disk of the leader is full: asking controller"
            f" {services.view.controller_id} for another leader from the ISR",
        )

    async def _report_space(self) -> None:
        """Send a request without partitions until the controller responds."""
        services = self._services
        request = RelinquishLeadershipRequest(services.broker_id, services.broker_epoch)
        for _ in range(_SPACE_ATTEMPTS):
            try:
                connection = services.peers.connection(services.view.controller_id, _PURPOSE)
                if await self._is_known_to(connection):
                    response: RelinquishLeadershipResponse = await connection.call(
                        RELINQUISH_LEADERSHIP,
                        _VERSION,
                        request,
                        services.config.request_timeout_ms,
                    )
                    if response.error_code == ErrorCode.NOT_CONTROLLER:
                        raise KafkaError(ErrorCode.NOT_CONTROLLER)
            except TidelogError:
                await services.tasks.sleep(_SPACE_PAUSE_MS)
            else:
                return

    async def _ask(
        self, slow: list[Partition], damaged: list[Partition], full: list[Partition]
    ) -> None:
        services = self._services
        text = _DAMAGED if damaged else _FULL if full else _SLOW
        request = _request(services, [*slow, *damaged, *full])
        try:
            connection = services.peers.connection(services.view.controller_id, _PURPOSE)
            if (damaged or full) and not await self._is_known_to(connection):
                self._fall_back(damaged)
                return
            response: RelinquishLeadershipResponse = await connection.call(
                RELINQUISH_LEADERSHIP, _VERSION, request, services.config.request_timeout_ms
            )
        except TidelogError as error:
            self._failed(text, str(error))
        else:
            if response.error_code:
                self._failed(text, ErrorCode(response.error_code).name)
            reasons = [
                outcome.error_message or ErrorCode(outcome.error_code).name
                for topic in response.topics
                for outcome in topic.partitions
                if outcome.error_code
            ]
            for reason in reasons[:_MAX_NAMED]:
                self._failed(text, reason)
        finally:
            self._is_asking = False
            found, self._found_meanwhile = self._found_meanwhile, None
            if found is not None:
                self.damage_found(found)

    async def _is_known_to(self, connection: PeerConnection) -> bool:
        """Return whether the controller serves the request; Kafka's closes the connection over it.

        Raises TidelogError where there is no response.
        """
        response: ApiVersionsResponse = await connection.call(
            API_VERSIONS,
            _API_VERSIONS_VERSION,
            ApiVersionsRequest("tidelog", ""),
            self._services.config.request_timeout_ms,
        )
        return any(each.api_key == RELINQUISH_LEADERSHIP for each in response.api_keys)

    def _fall_back(self, damaged: list[Partition]) -> None:
        """Give the damaged replicas up that others in the ISR can replace."""
        for partition in damaged:
            if partition.has_role and not _is_alone(partition):
                self._give_up(partition)

    def _failed(self, text: str, reason: str) -> None:
        self._services.tracer.log("server", logging.WARNING, text.format(reason))


def _is_alone(partition: Partition) -> bool:
    """Return whether the replica leads, and no other is in the ISR."""
    return partition.leadership is not None and len(partition.leadership.isr.committed) == 1


def _names(due: list[Partition]) -> str:
    names = ", ".join(str(partition.topic_partition) for partition in due[:_MAX_NAMED])
    return names + (f" and {len(due) - _MAX_NAMED} more" if len(due) > _MAX_NAMED else "")


def _report(due: list[Partition], now_ms: int) -> str:
    leaderships = [partition.leadership for partition in due]
    longest_ms = max(each.reads_under_way.age_ms(now_ms) for each in leaderships if each)
    limit_ms = next(each.max_lag_ms for each in leaderships if each)
    return (
        f"reads of {_names(due)} have waited {longest_ms} ms for the disk (limit {limit_ms} ms):"
        " asking the controller for another leader from the ISR"
    )


def _request(services: Services, due: list[Partition]) -> RelinquishLeadershipRequest:
    topics: dict[TopicId, RelinquishedTopic] = {}
    for partition in due:
        topic = topics.setdefault(partition.topic_id, RelinquishedTopic(partition.topic_id))
        damage = partition.log.damage
        topic.partitions.append(
            RelinquishedPartition(
                partition.topic_partition.partition,
                partition.leader_epoch,
                -1 if damage is None else damage.offset,
                partition.log.directory.space.is_full,
            )
        )
    return RelinquishLeadershipRequest(
        services.broker_id, services.broker_epoch, list(topics.values())
    )
