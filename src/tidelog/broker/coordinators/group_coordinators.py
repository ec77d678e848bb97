"""Consumer groups on this broker: the coordinators of `__consumer_offsets`.

`tidelog.group` makes the decisions, and `runtime` carries them out. This module adds what only
groups need: expiry of offsets, deletion of the offsets of deleted topics, and the list of groups. A
client whose connection is lost stays a member of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators import offset_records
from tidelog.broker.coordinators.led_partition import LedPartition, TopicSettings
from tidelog.broker.coordinators.recreated_topics import check_topics, incarnation
from tidelog.broker.coordinators.runtime import CoordinatorRuntime
from tidelog.broker.server.requests import Request
from tidelog.core.config import BrokerConfig
from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.errors import ErrorCode, ProtocolError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import ZERO_TOPIC_ID, TopicId
from tidelog.group.asked import Asked, refusal
from tidelog.group.classic.classic_group import ClassicGroup, GroupState
from tidelog.group.partition import GroupPartition, is_nameable
from tidelog.group.records import PartitionIncarnation, Record
from tidelog.group.settings import GroupSettings
from tidelog.records.builder import NewRecord
from tidelog.wire.data.consumer_protocol import SUBSCRIPTION
from tidelog.wire.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from tidelog.broker.cluster_view import Gone
    from tidelog.broker.services import Services

_MINUTE_MS = 60_000
_REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class GroupCoordinators(CoordinatorRuntime[GroupPartition]):
    """The coordinators of consumer groups on one broker, one per led partition."""

    topic = CONSUMER_OFFSETS
    noun = "groups"

    def __init__(
        self,
        services: Services,
        submit_appends: Callable[[], object],
        request_failed: Callable[[Request[Any], Exception], Any],
    ) -> None:
        """`submit_appends` starts the writing of planned appends.

        `request_failed` returns the response to a request whose handling raised an error.
        """
        super().__init__(services, submit_appends, request_failed)
        self._group_settings = _group_settings(services.config)
        self._incarnation_of = partial(incarnation, services.view)

    def start(self) -> None:
        """Start the periodic check for expired offsets."""
        self._expire_later()

    # Methods that `CoordinatorRuntime` calls.

    def new_shard(self, partition: int, leader_epoch: int) -> GroupPartition:
        """Return the coordinator for the groups of a partition."""
        return GroupPartition(partition, leader_epoch, self._group_settings)

    def encode(self, record: Record, now_ms: int) -> NewRecord:
        """Encode a record; raise SchemaError if a string in the record is too long."""
        return offset_records.encode(record, now_ms)

    def decode(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> Record | None:
        """Decode a record, None for an unknown kind; raises ProtocolError."""
        return offset_records.decode(key, value, headers)

    def settings(self) -> TopicSettings:
        """Return the settings of `__consumer_offsets`."""
        config = self.services.config
        return TopicSettings(
            config.offsets_topic_compression_codec,
            config.offsets_commit_timeout_ms,
            config.offsets_load_buffer_size,
        )

    def key_of(self, asked: Asked[Any]) -> str:
        """Return the id of the group that a request concerns; the id selects the coordinator."""
        return asked.group_id

    def refuse(self, asked: Asked[Any], error: ErrorCode) -> Any:
        """Return the response that carries `error` for the whole request."""
        return refusal(asked, error)

    def check(self, asked: Asked[Any]) -> ErrorCode:
        """Return INVALID_GROUP_ID if the group's id is not allowed, else NONE."""
        return ErrorCode.NONE if is_nameable(asked) else ErrorCode.INVALID_GROUP_ID

    async def complete_load(self, led: LedPartition[GroupPartition]) -> bool:
        """Delete the offsets of topics and partitions that were deleted before the load (G6)."""
        return await check_topics(self.services, led.shard, led.name)

    def leadership_ends(self, shard: GroupPartition) -> None:
        """Mark in the trace each group that loses its coordinator during a rebalance."""
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup) and group.state in _REBALANCING:
                self.services.tracer.mark("coordinator_moved_during_rebalance")

    # Methods that only the coordinators of groups have.

    def asked(
        self, request: Request[Any], group_id: str, message: Any = None, **client: str
    ) -> Asked[Any]:
        """Return a request about one group in the form that its coordinator takes.

        `message` is the group's part of a request about several groups, and `client` has the fields
        of `Asked` that describe the client of a JoinGroup.
        """
        return Asked(
            self.ticket(),
            group_id,
            request.message if message is None else message,
            request.header.api_version,
            incarnation_of=self._incarnation_of,
            **client,
        )

    def list_groups(
        self, states: Iterable[str], types: Iterable[str]
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """Return all groups in any of `states` and of any of `types`; an empty filter admits all.

        The error is COORDINATOR_LOAD_IN_PROGRESS while a partition of groups is still being loaded.
        """
        error = ErrorCode.NONE
        found: list[ListedGroup] = []
        for shard in self.shards.loaded():
            if shard.phase is CoordinatorPhase.LOADING:
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            else:
                found.extend(shard.list_groups(states, types))
        return error, found

    def ended(self, gone: Gone) -> None:
        """Delete the offsets of topics and partitions that no longer exist (V71)."""
        topics = {name: (topic_id,) for name, topic_id in gone.topics.items()}
        partitions = {
            each: PartitionIncarnation(self._topic_id(each.topic), first_leader_epoch)
            for each, first_leader_epoch in gone.partitions.items()
        }
        for led in self.led():
            if topics:
                self.carry_out(led, led.shard.topics_deleted(topics, self.now()))
            if partitions:
                self.carry_out(led, led.shard.partitions_removed(partitions, self.now()))

    def _topic_id(self, name: str) -> TopicId:
        topic = self.services.view.topics.get(name)
        return ZERO_TOPIC_ID if topic is None else topic.topic_id

    def _expire_later(self) -> None:
        interval_ms = self.services.config.offsets_retention_check_interval_ms
        self.services.serving_timers.after(interval_ms, self._expire)

    def _expire(self) -> None:
        self.services.tasks.spawn("expire offsets", self._expire_all())
        self._expire_later()

    async def _expire_all(self) -> None:
        for led in self.led():
            self.carry_out(led, led.shard.expire_offsets(self.now()))
            await self.services.tasks.sleep(0)


def _group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        subscription_topics=_subscription_topics,
    )


def _subscription_topics(metadata: bytes) -> Sequence[str] | None:
    """Return the topics that a consumer subscribes to, None if the metadata is unreadable."""
    try:
        return SUBSCRIPTION.decode(metadata).topics
    except ProtocolError:
        return None
