"""Roles that this broker gives up after slow reads (F11), for log damage (V68) or a bad disk.

A directory is unfit when it is full or slow (D13, D14; `unfit_directories`). The broker looks for
roles to give up whenever it checks its followers' progress, when a read finds damage, and while a
log directory is unfit. The broker asks the controller to elect another ISR member, and to remove a
damaged replica from the ISR. The damaged replica truncates its log when a command shows that it is
not in the ISR (`RoleChanges.become_follower`). The broker does not retry a request without a
response, because the next search finds the same roles again.

A leader that is alone in its ISR keeps a damaged log, and its readers get CORRUPT_MESSAGE. If the
controller does not know RelinquishLeadership, the broker reports a damaged replica as offline
(`DamagedReplicas`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.directories.unfit_directories import UnfitDirectories
from tidelog.broker.replicas.metrics import PARTITIONS_DAMAGED
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
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
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.core.types import TopicId, TopicPartition
    from tidelog.log.log_state import Damage

_VERSION = 0
_API_VERSIONS_VERSION = 3
_PURPOSE = "slow-reads"
#: Maximum number of partitions that one log line names.
_MAX_NAMED = 5
#: Pause in milliseconds between two requests that report the same damage to the controller.
DAMAGE_PAUSE_MS: Final = 500
#: Number of attempts to report that a directory is no longer full or slow.
_FIT_ATTEMPTS: Final = 5
#: Pause in milliseconds between two attempts to report that a directory is no longer full or slow.
_FIT_PAUSE_MS: Final = 1_000
_SLOW = (
    "the controller elected no other leader in place of one with slow reads: {};"
    " asking again while its reads take too long"
)
_UNFIT = (
    "the controller elected no other leader in place of one on a full or slow disk: {};"
    " asking again while the disk is full or slow"
)
_DAMAGED = (
    "the controller has not taken this broker out of the ISR of a partition with a damaged log: {};"
    " asking again"
)


class Relinquishing:
    """Requests of one broker to give up leaderships and ISR memberships: of damaged replicas, slow
    reads, and full or slow directories.
    """

    def __init__(self, services: Services, give_up: Callable[[Partition], None]) -> None:
        """`give_up` handles a damaged replica if the controller serves no RelinquishLeadership."""
        self._services = services
        self._give_up = give_up
        self._is_asking = False
        #: Returns the replicas in which reads found damage while a request was in flight; checked
        #: after the request.
        self._found_meanwhile: Callable[[], Sequence[Partition]] | None = None
        self._is_closed = False
        #: The requests and reports about full and slow directories.
        self.unfit = UnfitDirectories(services)
        #: Monotonic time of the last request about each damaged partition.
        self._asked_ms: dict[TopicPartition, int] = {}
        #: By partition: the last logged damage of a leader that is the only member of its ISR, and
        #: so keeps its role.
        self._kept: dict[TopicPartition, Damage] = {}

    def look(self, partitions: Iterable[Partition]) -> None:
        """Give up damaged replicas and, if that is enabled, leaderships with slow reads."""
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
        self._begin(slow, damaged, self.unfit.due(hosted, [*slow, *damaged]))

    def close(self) -> None:
        """Stop sending requests about full or slow directories."""
        self._is_closed = True

    def directory_unfit(self, partitions: Sequence[Partition]) -> None:
        """Give up leaderships in full and slow directories, unless a recent request did so."""
        if self._may_ask() and not self._is_asking:  # else the next disk probe sends the request
            self._begin([], [], self.unfit.due(partitions, []))

    def directory_fit(self) -> None:
        """Report that a directory is no longer full or slow, so its replicas may lead again."""
        if self._may_ask():
            self.unfit.forget()
            self._services.tasks.spawn("replicas: report space", self._report_fit())

    def _may_ask(self) -> bool:
        services = self._services
        return (
            not self._is_closed
            and services.identity.is_registered
            and not services.fence.is_fenced
            and services.view.controller_id >= 0
        )

    def damage_found(self, partitions: Callable[[], Sequence[Partition]]) -> None:
        """Give up damaged replicas at once, except replicas that a recent request named."""
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
        """Count and report damaged replicas; return replicas that another replica can replace."""
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
        self, slow: list[Partition], damaged: list[Partition], unfit: list[Partition]
    ) -> None:
        services = self._services
        if not slow and not damaged and not unfit:
            return
        self._report_unfit(unfit)
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
        services.tasks.spawn("replicas: relinquish", self._ask(slow, damaged, unfit))

    def _report_unfit(self, unfit: list[Partition]) -> None:
        services = self._services
        self.unfit.asked(unfit)
        led = [partition for partition in unfit if partition.is_leader]
        full = [partition for partition in led if partition.log.directory.space.is_full]
        slow = [partition for partition in led if partition not in full]
        if full:
            services.tracer.mark("leadership_given_up_when_full")
            self._log_asking(full, "full")
        if slow:
            services.tracer.mark("leadership_given_up_when_disk_is_slow")
            self._log_asking(slow, "slow")

    def _log_asking(self, led: list[Partition], why: str) -> None:
        services = self._services
        services.tracer.log(
            "server",
            logging.WARNING,
            f"{_names(led)}: the disk of the leader is {why}: asking controller"
            f" {services.view.controller_id} for another leader from the ISR",
        )

    async def _report_fit(self) -> None:
        """Withdraw all reports by a request without partitions; repeat the request on failure."""
        services = self._services
        request = RelinquishLeadershipRequest(services.broker_id, services.broker_epoch)
        for _ in range(_FIT_ATTEMPTS):
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
                await services.tasks.sleep(_FIT_PAUSE_MS)
            else:
                # The controller has now forgotten all reports of unfit directories, so the broker
                # must report directories that are still slow again.
                self.unfit.forget_reports()
                return

    async def _ask(
        self, slow: list[Partition], damaged: list[Partition], unfit: list[Partition]
    ) -> None:
        services = self._services
        text = _DAMAGED if damaged else _UNFIT if unfit else _SLOW
        request = _request(services, [*slow, *damaged, *unfit], self.unfit)
        try:
            connection = services.peers.connection(services.view.controller_id, _PURPOSE)
            if (damaged or unfit) and not await self._is_known_to(connection):
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
        """Return whether the controller serves RelinquishLeadership, unlike Kafka's controllers.

        Raises TidelogError if the controller does not respond.
        """
        response: ApiVersionsResponse = await connection.call(
            API_VERSIONS,
            _API_VERSIONS_VERSION,
            ApiVersionsRequest("tidelog", ""),
            self._services.config.request_timeout_ms,
        )
        return any(each.api_key == RELINQUISH_LEADERSHIP for each in response.api_keys)

    def _fall_back(self, damaged: list[Partition]) -> None:
        """Report damaged replicas as offline, except leaders that are alone in their ISR."""
        for partition in damaged:
            if partition.has_role and not _is_alone(partition):
                self._give_up(partition)

    def _failed(self, text: str, reason: str) -> None:
        self._services.tracer.log("server", logging.WARNING, text.format(reason))


def _is_alone(partition: Partition) -> bool:
    """Return whether the replica leads and is the only ISR member."""
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


def _request(
    services: Services, due: list[Partition], unfit: UnfitDirectories
) -> RelinquishLeadershipRequest:
    topics: dict[TopicId, RelinquishedTopic] = {}
    for partition in due:
        topic = topics.setdefault(partition.topic_id, RelinquishedTopic(partition.topic_id))
        damage = partition.log.damage
        topic.partitions.append(
            RelinquishedPartition(
                partition.topic_partition.partition,
                partition.leader_epoch,
                -1 if damage is None else damage.offset,
                unfit.is_unfit(partition.log.directory),
            )
        )
    return RelinquishLeadershipRequest(
        services.broker_id, services.broker_epoch, list(topics.values())
    )
