"""Consumer groups on this broker: the shell around the decisions of `tidelog.group`.

This broker coordinates each partition of `__consumer_offsets` that it leads, under its leader epoch
and no other (G1). It loads the partition when the leadership begins, and gives it up the moment the
leadership ends. The group's coordinator answers requests. Its effects run one after the other, so
that records reach the log in the order of the decisions, whatever requests come meanwhile. A client
whose connection is lost stays a member: only its response is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.appends import RecordWriter
from tidelog.broker.coordinators.loading import load
from tidelog.broker.coordinators.recreated_topics import check_topics
from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.timers import Timeout
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ErrorCode, ProtocolError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import ZERO_TOPIC_ID, TopicId
from tidelog.group.answers import Answer, ListedGroup, refusal
from tidelog.group.effects import (
    Append,
    CancelTimer,
    Effect,
    Effects,
    Now,
    Reply,
    SetTimer,
    TimerName,
)
from tidelog.group.group import GroupState
from tidelog.group.partition import GroupPartition, Phase, is_nameable
from tidelog.group.partitions import GroupPartitions
from tidelog.group.records import PartitionIncarnation
from tidelog.group.requests import Asked
from tidelog.group.settings import GroupSettings
from tidelog.wire.data.consumer_protocol import SUBSCRIPTION

if TYPE_CHECKING:
    from tidelog.broker.cluster_view import Gone
    from tidelog.broker.replicas.hosted_replica import HostedReplica
    from tidelog.broker.services import Services

#: A timer is set for no longer than this and then again. Cancelled timers stay in memory until
#: their time has come, and members that come and go could set any number of them.
_TIMER_STEP_MS = 30_000
_MINUTE_MS = 60_000
_REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
#: Groups of one request that are asked between two turns of the loop: a few milliseconds.
_ASKED_PER_TURN = 500


class Coordination:
    """One partition, coordinated under one leader epoch, with its timers and appends."""

    __slots__ = (
        "_groups", "core", "is_over", "name", "partition", "timers", "writer",
    )  # fmt: skip

    def __init__(
        self, groups: GroupCoordinators, core: GroupPartition, partition: HostedReplica
    ) -> None:
        self._groups = groups
        self.core = core
        self.partition = partition
        self.name = str(partition.topic_partition)
        self.timers: dict[TimerName, Timeout] = {}
        self.writer = RecordWriter(groups.services, self)
        #: The leadership has ended: nothing more happens.
        self.is_over = False

    def end(self) -> None:
        """End all waits and timers."""
        self.is_over = True
        for timeout in self.timers.values():
            timeout.cancel()
        self.timers.clear()

    # Outcomes of appends.

    def committed(self, numbers: Sequence[int]) -> None:
        """Note that the high watermark has passed these appends."""
        for number in numbers:
            self._groups.carry_out(self, self.core.committed(number, self._groups.now()))

    def failed(self, numbers: Sequence[int], error: ErrorCode) -> None:
        """Note that these appends are not in the log."""
        for number in numbers:
            self._groups.carry_out(self, self.core.failed(number, error, self._groups.now()))

    def timed_out(self, numbers: Sequence[int], error: ErrorCode) -> None:
        """Note that these appends take too long."""
        for number in numbers:
            self._groups.carry_out(self, self.core.timed_out(number, error, self._groups.now()))

    # Timers.

    def set_timer(self, name: TimerName, deadline_ms: int) -> None:
        """Keep one timer of that name."""
        self.cancel_timer(name)
        left_ms = deadline_ms - self._groups.services.clock.monotonic_ms()
        self.timers[name] = self._groups.services.serving_timers.after(
            min(left_ms, _TIMER_STEP_MS), partial(self._fired, name, deadline_ms)
        )

    def cancel_timer(self, name: TimerName) -> None:
        """Remove the timer of that name."""
        timeout = self.timers.pop(name, None)
        if timeout is not None:
            timeout.cancel()

    def _fired(self, name: TimerName, deadline_ms: int) -> None:
        now = self._groups.now()
        if now.monotonic_ms < deadline_ms:
            self.set_timer(name, deadline_ms)
        else:
            del self.timers[name]
            self._groups.carry_out(self, self.core.timer_fired(name, deadline_ms, now))


class GroupCoordinators:
    """The coordinators of groups on one broker."""

    def __init__(
        self,
        services: Services,
        submit_appends: Callable[[], object],
        request_failed: Callable[[Request[Any], Exception], Any],
    ) -> None:
        """`submit_appends` has planned appends written.

        `request_failed` makes the response to a request whose handling raised an error.
        """
        self.services = services
        self._submit_appends = submit_appends
        self._request_failed = request_failed
        config = services.config
        self._partitions = GroupPartitions(_settings(config))
        #: By partition.
        self._coordinations: dict[int, Coordination] = {}
        #: The receiver of the answer for each ticket.
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._next_ticket = 0
        self._effects: deque[tuple[Coordination, Effect]] = deque()
        self._is_carrying_out = False
        #: Coordinators with appends that are not planned yet.
        self._unflushed: dict[Coordination, None] = {}

    def start(self) -> None:
        """Look for expired offsets from now on."""
        self._expire_later()

    def now(self) -> Now:
        """Return the time in the form that decisions take."""
        clock = self.services.clock
        return Now(clock.monotonic_ms(), clock.wall_ms())

    # Partitions and their coordinators.

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that owns a group (G2).

        The topic must be known.
        """
        self._look_at_topic()
        return self._partitions.partition_of(group_id)

    def _look_at_topic(self) -> None:
        """Take over the number of partitions that the controller published.

        The controller refuses to add any to an internal topic (V70), so the number does not change
        while the topic exists.
        """
        topic = self.services.view.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            self._partitions.partition_count = len(topic.partitions)

    def role_taken(self, partition: HostedReplica, leader_epoch: int) -> None:
        """Coordinate a partition of the topic that this broker leads from now on."""
        number = partition.topic_partition.partition
        core, last = self._partitions.load(number, leader_epoch)
        if core is None:
            return
        self._end(number, last)
        coordination = self._coordinations[number] = Coordination(self, core, partition)
        self.services.tasks.spawn(f"load {coordination.name}", self._load(coordination))

    def role_ended(self, partition: HostedReplica) -> None:
        """Give up a partition that this broker leads no longer."""
        number = partition.topic_partition.partition
        self._mark_end(number)
        last = self._partitions.unload(number, partition.leader_epoch)
        if last is not None:
            self._end(number, last)

    def _mark_end(self, number: int) -> None:
        coordination = self._coordinations.get(number)
        if coordination is None:
            return
        if coordination.core.phase is Phase.LOADING:
            self.services.tracer.mark("coordinator_moved_while_loading")
        for group in coordination.core.groups.values():
            if group.state in _REBALANCING:
                self.services.tracer.mark("coordinator_moved_during_rebalance")

    def replica_gone(self, partition: HostedReplica) -> None:
        """Forget a replica that is gone, perhaps because the topic was deleted."""
        self.role_ended(partition)
        self._partitions.forget(partition.topic_partition.partition)

    def _end(self, number: int, last: Effects) -> None:
        """End the coordinator of a leadership that is over; `last` are its last effects."""
        coordination = self._coordinations.pop(number, None)
        if coordination is None:
            return
        self._unflushed.pop(coordination, None)
        self.services.tracer.event(
            "groups_unloaded", partition=number, leader_epoch=coordination.core.leader_epoch
        )
        self.carry_out(coordination, last)
        coordination.end()

    async def _load(self, coordination: Coordination) -> None:
        services, core = self.services, coordination.core
        began_ms = services.clock.monotonic_ms()
        if not await load(services, coordination.partition, core):
            return
        if not await check_topics(services, core, coordination.name):
            return
        services.tracer.event(
            "groups_loaded",
            partition=core.partition,
            leader_epoch=core.leader_epoch,
            groups=len(core.groups),
        )
        services.tracer.log(
            "server",
            logging.INFO,
            f"{coordination.name} is loaded for leader epoch {core.leader_epoch}: "
            f"{len(core.groups)} groups in {services.clock.monotonic_ms() - began_ms} ms",
        )
        self.carry_out(coordination, core.loaded(self.now()))

    # Requests.

    def ticket(self) -> int:
        """Return a number for a request."""
        self._next_ticket += 1
        return self._next_ticket

    def answer(self, request: Request[Any], asked: Asked, respond: Callable[[Any], Any]) -> Any:
        """Return the response to a request about one group, now or later.

        `respond` makes it from the coordinator's answer.
        """
        coordination, effects = self._ask(asked)
        if len(effects) == 1:
            effect = effects[0]
            if type(effect) is Reply and effect.ticket == asked.ticket:
                return respond(effect.answer)
        assert coordination is not None
        pending = Pending()
        self._wait(request, pending, asked, lambda answer: pending.complete(respond(answer)))
        self.carry_out(coordination, effects)
        return pending

    def answer_all(
        self,
        request: Request[Any],
        asked: Sequence[Asked],
        respond: Callable[[Sequence[Any]], Any],
    ) -> Any:
        """Return the response to a request about several groups, made when all have answered."""
        answers: list[Any] = [None] * len(asked)
        left = dict.fromkeys(range(len(asked)))
        pending = Pending()

        def take(index: int, answer: Answer) -> None:
            answers[index] = answer
            del left[index]
            if not left:
                pending.complete(respond(answers))

        def ask(index: int) -> None:
            coordination, effects = self._ask(asked[index])
            if coordination is None:
                assert isinstance(effects[0], Reply)
                take(index, effects[0].answer)
            else:
                self._wait(request, pending, asked[index], partial(take, index))
                self.carry_out(coordination, effects)

        if not asked:
            pending.complete(respond(answers))
        elif len(asked) <= _ASKED_PER_TURN:
            for index in range(len(asked)):
                ask(index)
        else:
            self.services.tasks.spawn("ask of groups", self._ask_in_turns(len(asked), ask, pending))
        return pending

    async def _ask_in_turns(self, count: int, ask: Callable[[int], None], pending: Pending) -> None:
        """Ask many groups, and let the loop go on in between."""
        for start in range(0, count, _ASKED_PER_TURN):
            for index in range(start, min(start + _ASKED_PER_TURN, count)):
                ask(index)
            await self.services.tasks.sleep(0)
            if pending.done:
                return

    def list_groups(
        self, states: Iterable[str], types: Iterable[str]
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """Return all groups in any of these states and of any of these types (none given: all).

        The error is COORDINATOR_LOAD_IN_PROGRESS where some groups are not known yet.
        """
        error = ErrorCode.NONE
        found: list[ListedGroup] = []
        for core in self._partitions.loaded():
            if core.phase is Phase.LOADING:
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            else:
                found.extend(core.list_groups(states, types))
        return error, found

    def _ask(self, asked: Asked) -> tuple[Coordination | None, Effects]:
        error = ErrorCode.NOT_COORDINATOR
        if is_nameable(asked):
            self._look_at_topic()
            core = self._partitions.coordinator_of(asked.group_id)
            if core is not None:
                return self._coordinations[core.partition], core.ask(asked, self.now())
        else:
            error = ErrorCode.INVALID_GROUP_ID
        return None, (Reply(asked.ticket, refusal(asked, error)),)

    def _wait(
        self, request: Request[Any], pending: Pending, asked: Asked, take: Callable[[Any], None]
    ) -> None:
        ticket = asked.ticket

        def taken(answer: Answer) -> None:
            try:
                take(answer)
            except AssertionError:
                raise
            except Exception as error:  # a bug of the broker fails this request only, not the group
                pending.complete(self._request_failed(request, error))

        self._waiting[ticket] = taken
        pending.on_cancel(lambda: self._forget(ticket))

    def _forget(self, ticket: int) -> None:
        self._waiting.pop(ticket, None)

    # Effects.

    def carry_out(self, coordination: Coordination, effects: Effects) -> None:
        """Run a coordinator's effects, after all earlier ones."""
        queue = self._effects
        for effect in effects:
            queue.append((coordination, effect))
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while queue:
                self._carry_out_one(*queue.popleft())
        finally:
            self._is_carrying_out = False

    def _carry_out_one(self, coordination: Coordination, effect: Effect) -> None:
        if isinstance(effect, Reply):
            take = self._waiting.pop(effect.ticket, None)
            if take is not None:
                take(effect.answer)
        elif coordination.is_over:
            return
        elif isinstance(effect, Append):
            coordination.writer.gather(effect)
            self._flush_later(coordination)
        elif isinstance(effect, SetTimer):
            coordination.set_timer(effect.name, effect.deadline_ms)
        else:
            assert isinstance(effect, CancelTimer)
            coordination.cancel_timer(effect.name)

    def _flush_later(self, coordination: Coordination) -> None:
        """Write the appends in the loop's next turn.

        Commits of all connections that were read in this turn then share batches, and so do all
        other appends of it.
        """
        if not self._unflushed:
            self.services.ports.loop.call_soon(self.flush)
        self._unflushed[coordination] = None

    def flush(self) -> None:
        """Write the gathered appends."""
        unflushed, self._unflushed = self._unflushed, {}
        for coordination in unflushed:
            coordination.writer.flush()
        self._submit_appends()

    # The effects of time and of topics.

    def ended(self, gone: Gone) -> None:
        """Remove the offsets of topics and partitions that are gone (V71)."""
        topics = {name: (topic_id,) for name, topic_id in gone.topics.items()}
        partitions = {
            each: PartitionIncarnation(self._topic_id(each.topic), first_leader_epoch)
            for each, first_leader_epoch in gone.partitions.items()
        }
        for coordination in list(self._coordinations.values()):
            core = coordination.core
            if topics:
                self.carry_out(coordination, core.topics_deleted(topics, self.now()))
            if partitions:
                self.carry_out(coordination, core.partitions_removed(partitions, self.now()))

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
        for coordination in list(self._coordinations.values()):
            self.carry_out(coordination, coordination.core.expire_offsets(self.now()))
            await self.services.tasks.sleep(0)


def _settings(config: BrokerConfig) -> GroupSettings:
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
    """Return the topics that a consumer subscribes to, None where that cannot be read."""
    try:
        return SUBSCRIPTION.decode(metadata).topics
    except ProtocolError:
        return None
