"""The cluster events, failover times and metrics of one controller term (V80).

The modules that run the controller report its progress to this module. This module only observes:
it makes no decision, delays no decision, and makes no decision fail. Failover times are measured
even if events are disabled, because the log has a line for each failover.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.controller.metrics import (
    FAILOVER_MS,
    ISR_EXPANDS,
    ISR_SHRINKS,
    LEADERS_AWAITED,
    PARTITIONS_UNLED,
    UNCLEAN_ELECTIONS,
)
from tidelog.controller import cluster_events
from tidelog.controller.cluster_events import FAILOVER, ClusterEvent, StateChange, is_unclean
from tidelog.controller.elections.waits import WaitChanged
from tidelog.controller.failover import Failovers, LostLeaders, TurnTimes
from tidelog.controller.reassignments.progress import ReassignmentBegun, ReassignmentEnded
from tidelog.controller.registrations import BrokerArrived, BrokerGone
from tidelog.controller.store_went_back import StoreFoundOlder
from tidelog.controller.topics.deletion import TopicRemoved
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents as EventRecorder
    from tidelog.broker.services import Services
    from tidelog.controller.decision import Effects
    from tidelog.controller.image import Image


class TermEvents:
    """The cluster events of one controller term."""

    def __init__(
        self, services: Services, cluster_events: EventRecorder, controller_epoch: int
    ) -> None:
        self._services = services
        self._cluster_events = cluster_events
        self._controller_epoch = controller_epoch
        self._failovers = Failovers(controller_epoch)
        #: Monotonic time at which the controller noticed changes that it must read. It begins with
        #: the start of the term, because a new controller must read the whole state.
        self._noticed_ms = self._now_ms()
        self._turn = TurnTimes(self._noticed_ms)
        self._times_behind = 0
        self._times_awaited = 0

    def _now_ms(self) -> int:
        return self._services.clock.monotonic_ms()

    # phases of a turn

    def noticed(self) -> None:
        """Note that the store announced a change of registrations."""
        if self._noticed_ms < 0:
            self._noticed_ms = self._now_ms()

    def has_read(self) -> None:
        """Note that the controller has read the changes that watches announced."""
        now_ms = self._now_ms()
        noticed_ms = now_ms if self._noticed_ms < 0 else self._noticed_ms
        self._noticed_ms = -1
        self._turn = TurnTimes(noticed_ms, now_ms)

    def begins(self) -> None:
        """Note that the controller begins a decision.

        If the controller read changes for this decision, the turn began with these reads, otherwise
        the turn begins now.
        """
        if self._turn.decided_ms:
            now_ms = self._now_ms()
            self._turn = TurnTimes(now_ms, now_ms)

    def decided(self) -> None:
        """Note that the controller has made the decision of its turn."""
        self._turn.decided_ms = self._now_ms()

    def written(self) -> None:
        """Note that the writes of the decision are durable."""
        self._turn.written_ms = self._now_ms()

    # reports

    def elected(self) -> None:
        """Send the cluster event that this broker became the controller."""
        self._record(
            [cluster_events.controller_elected(self._services.broker_id, self._controller_epoch)]
        )

    def resigned(self, cause: str) -> None:
        """Send the cluster event that this broker's controller term is over."""
        self._report_failovers(self._failovers.resigned(self._now_ms()))
        self._services.metrics.drop(PARTITIONS_UNLED)
        broker_id = self._services.broker_id
        self._record([cluster_events.controller_resigned(broker_id, self._controller_epoch, cause)])

    def commanded(self, effects: Effects, image: Image) -> None:
        """Report a decision that is durable and whose commands are queued."""
        now_ms = self._now_ms()
        loss = self._loss(effects, image)
        over = self._failovers.commanded(self._turn, now_ms, loss, effects.notices.of(StateChange))
        for topic in effects.notices.of(TopicRemoved):
            over += self._failovers.removed(topic.name, now_ms)
        self._services.metrics.put(PARTITIONS_UNLED, self._failovers.unled)
        self._count_isr_changes(effects.notices.of(StateChange))
        awaited = effects.notices.of(WaitChanged)
        if awaited:
            self._services.metrics.add(LEADERS_AWAITED, len(awaited))
        if self._cluster_events.is_on:
            self._record_changes(effects, image)
            self._record_waits(awaited)
            self._record_moves(effects)
        self._report_failovers(over)

    def _loss(self, effects: Effects, image: Image) -> LostLeaders | None:
        """Return the brokers that lost leaderships; None if no broker has left or is leaving."""
        gone = (notice.broker for notice in effects.notices.of(BrokerGone))
        leaving = {broker.broker_id: broker.is_leaving for broker in gone}
        changes = effects.notices.of(StateChange)
        for before, after in ((change.before, change.after) for change in changes):
            leader = NO_LEADER if before is None else before.leader
            if leader in (NO_LEADER, after.leader) or leader in leaving:
                continue
            broker = image.brokers.get(leader)
            if broker is None:
                # This controller did not see the former leader leave the cluster. Perhaps the
                # former leader was the previous controller.
                leaving[leader] = False
            elif broker.is_leaving:
                leaving[leader] = True
        if not leaving:
            return None
        silent_ms = map(self._services.peers.silent_since_ms, leaving)
        since_ms = min((since for since in silent_ms if since is not None), default=None)
        return LostLeaders(sorted(leaving), all(leaving.values()), since_ms)

    def _record_changes(self, effects: Effects, image: Image) -> None:
        epoch = self._controller_epoch
        notices = effects.notices
        self._record(
            cluster_events.ended(notice.broker, epoch) for notice in notices.of(BrokerGone)
        )
        self._record(
            cluster_events.registered(notice.broker, epoch) for notice in notices.of(BrokerArrived)
        )
        self._record(
            cluster_events.store_went_back(older.found, older.partitions, controller_epoch=epoch)
            for older in notices.of(StoreFoundOlder)
        )
        brokers, changes = image.brokers, notices.of(StateChange)
        self._cluster_events.record_later(
            len(changes),
            (
                cluster_events.of_state(change, brokers, _preferred(image, change), epoch)
                for change in changes
            ),
        )

    def _record_waits(self, awaited: Sequence[WaitChanged]) -> None:
        first, self._times_awaited = self._times_awaited + 1, self._times_awaited + len(awaited)
        self._cluster_events.record_later(
            len(awaited),
            (
                cluster_events.leader_awaited(
                    changed.topic_partition,
                    changed.topic_id,
                    changed.leader_epoch,
                    changed.last_leader,
                    changed.wait,
                    controller_epoch=self._controller_epoch,
                    number=number,
                )
                for number, changed in enumerate(awaited, first)
            ),
        )

    def _record_moves(self, effects: Effects) -> None:
        epoch = self._controller_epoch
        begun = effects.notices.of(ReassignmentBegun)
        over = effects.notices.of(ReassignmentEnded)
        if not begun and not over:
            return
        self._cluster_events.record_later(
            len(begun) + len(over),
            itertools.chain(
                (
                    cluster_events.reassignment_ended(
                        move.topic_partition,
                        move.topic_id,
                        move.replicas,
                        zxid=move.zxid,
                        controller_epoch=epoch,
                    )
                    for move in over
                ),
                (
                    cluster_events.reassignment_begun(
                        begins.topic_partition,
                        begins.topic_id,
                        begins.target,
                        begins.move.adding,
                        begins.move.removing,
                        begins.move.original,
                        zxid=begins.move.since_zxid,
                        controller_epoch=epoch,
                    )
                    for begins in begun
                ),
            ),
        )

    def _count_isr_changes(self, changes: Sequence[StateChange]) -> None:
        metrics = self._services.metrics
        unclean = sum(
            change.before is not None and is_unclean(change.before, change.after)
            for change in changes
        )
        if unclean:
            metrics.add(UNCLEAN_ELECTIONS, unclean)
        causes = [cause for change in changes for _, cause in change.shrinks]
        for cause, count in Counter(causes).items():
            metrics.add(ISR_SHRINKS, count, cause.word)
        joined = 0
        for change in changes:
            if change.before is not None:
                before = change.before.isr
                joined += len([member for member in change.after.isr if member not in before])
        if joined:
            metrics.add(ISR_EXPANDS, joined)

    def answered(
        self, broker_id: int, outcomes: Sequence[tuple[TopicPartition, ErrorCode]]
    ) -> None:
        """Note the outcomes in a broker's LeaderAndIsr response."""
        taken = (partition for partition, error in outcomes if error is ErrorCode.NONE)
        over = self._failovers.answered(broker_id, taken, self._now_ms())
        self._services.metrics.put(PARTITIONS_UNLED, self._failovers.unled)
        self._report_failovers(over)

    def behind(self, broker_id: int, broker_epoch: int, behind_ms: int, *, is_over: bool) -> None:
        """Report that a broker stopped acknowledging commands, or (`is_over`) resumed (V81)."""
        self._times_behind += 1
        event = cluster_events.commands_behind(
            broker_id,
            broker_epoch,
            behind_ms,
            is_over=is_over,
            controller_epoch=self._controller_epoch,
            number=self._times_behind,
        )
        self._record([event])

    def _report_failovers(self, over: Sequence[ClusterEvent]) -> None:
        for event in over:
            assert event.kind == FAILOVER
            fields = event.fields
            self._count(fields)
            phases = ", ".join(f"{name} {ms} ms" for name, ms in fields["phases_ms"].items())
            self._services.tracer.log(
                "controller",
                logging.INFO,
                f"failover from brokers {fields['brokers']} ({fields['cause']}):"
                f" {fields['partitions']} partitions, {_detection(fields)}{phases};"
                f" {fields['unanswered']} sampled leaders have not responded",
            )
        self._record(over)

    def _count(self, fields: Mapping[str, Any]) -> None:
        metrics = self._services.metrics
        for phase, ms in (("detect", fields["detection_ms"]), *fields["phases_ms"].items()):
            if ms >= 0:
                metrics.observe(FAILOVER_MS, ms, phase)

    def _record(self, events: Iterable[ClusterEvent]) -> None:
        self._cluster_events.record(events)


def _detection(fields: Mapping[str, Any]) -> str:
    ms = fields["detection_ms"]
    return f"detect {ms} ms, " if ms >= 0 else ""


def _preferred(image: Image, change: StateChange) -> int:
    """Return the first replica of a partition; -1 if its topic has been deleted."""
    name, partition = change.topic_partition
    topic = image.topics.get(name)
    replicas = () if topic is None else topic.assignments.get(partition, ())
    return replicas[0] if replicas else NO_LEADER
