"""A controller's term: the state that a controller loses when its term ends.

The winner of an election creates a `Term`, whose `Controller` makes all decisions. If the store is
unreachable, reads wait for it as long as the term lasts. This module also reports published changes
to logs and traces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.controller.balancing import Balancing
from tidelog.broker.controller.channels import Channels
from tidelog.broker.controller.store_reader import StoreReader
from tidelog.broker.controller.store_writer import DeposedError, StoreWriter
from tidelog.broker.controller.term_events import TermEvents
from tidelog.broker.server.requests import Pending
from tidelog.broker.store_access import patiently
from tidelog.controller import store_went_back
from tidelog.controller.cluster_events import StateChange, is_unclean
from tidelog.controller.commands import Sender
from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.elections.recoveries import LeaderAwaited
from tidelog.controller.notices import Notices, UnmetRequest
from tidelog.controller.partitions.expansions import ExpansionsHeld
from tidelog.controller.reassignments.cancelling import CancelEnded, CancelSkipped
from tidelog.controller.reassignments.pausing import MovePaused
from tidelog.controller.reassignments.progress import ReassignmentEnded
from tidelog.controller.reassignments.queueing import QueueEmptied
from tidelog.controller.reassignments.stored import ReassignmentRefused
from tidelog.controller.settings import ControllerSettings, TopicDefaults
from tidelog.controller.shutdowns import LeadershipsTransferred
from tidelog.controller.store_went_back import StoreFoundOlder
from tidelog.controller.topics.deletion import TopicRemoved, UnreadableTopicDeleted
from tidelog.controller.topics.readings import TopicNodeRemoved
from tidelog.core import protocol_level
from tidelog.core.ports import Tracer
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.topic_config import validate_topic_configs
from tidelog.metadata import layout
from tidelog.metadata.store import StoreError

if TYPE_CHECKING:
    from tidelog.broker.controller.observed_store import ObservedStore
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.services import Services
    from tidelog.controller.events import Event

#: Maximum number of partitions without a leader that the log names after one decision.
_MAX_AWAITED_LOGGED = 20
#: Maximum number of partitions that the log names for each broker that left ISRs.
_MAX_SHRUNK_LOGGED = 5

#: A function of an API's handler that makes the response of a broker that is not the controller.
Refusal = Callable[[], Any]
Log = Callable[[int, str], None]


class Claim(NamedTuple):
    """The result of a won election: controller epoch, and version of node `/controller_epoch`."""

    controller_epoch: int
    epoch_version: int


class WaitingRequest(NamedTuple):
    """A request that waits for its response."""

    pending: Pending
    refusal: Refusal
    #: Whether the response waits until the brokers have acknowledged the commands, and not only
    #: until the decision is durable.
    when_acknowledged: bool


class Term:
    """One controller term: its controller, reader, writer, channels and waiting requests."""

    def __init__(
        self,
        services: Services,
        cluster_events: ClusterEvents,
        store: ObservedStore,
        claim: Claim,
        *,
        offer: Callable[[Event], None],
        verify: Callable[[], None],
    ) -> None:
        """`offer` queues a controller event; `verify` checks if this broker is still elected."""
        config = services.config
        self.claim = claim
        self.controller = Controller(
            ControllerSettings(
                controller_id=services.broker_id,
                controller_epoch=claim.controller_epoch,
                topic_defaults=TopicDefaults(
                    num_partitions=config.num_partitions,
                    replication_factor=config.default_replication_factor,
                    validate_configs=validate_topic_configs,
                    deletion_enabled=config.delete_topic_enable,
                ),
                unclean=config.unclean_leader_election_enable,
                min_insync_replicas=config.min_insync_replicas,
                isr_expand_linger_ms=config.isr_expand_linger_ms,
                pauses_reassignments=config.reassignment_auto_pause_enable,
                concurrent_reassignments=config.reassignment_max_concurrent_partitions,
                concurrent_reassignments_per_broker=(
                    config.reassignment_max_concurrent_partitions_per_broker
                ),
            )
        )
        self.writer = StoreWriter(store, services.tasks, services.tracer, claim.epoch_version)
        self.reader = StoreReader(store, services.tasks, services.tracer)
        self.events = TermEvents(services, cluster_events, claim.controller_epoch)
        self.channels = Channels(
            services,
            Sender(
                services.broker_id,
                claim.controller_epoch,
                config.inter_broker_listener_name,
                protocol_level.request_versions(config.inter_broker_protocol_version),
            ),
            offer,
            verify,
            self.events,
        )
        self.balancing = Balancing(services, self.controller.balance, offer)
        self.waiting: dict[int, WaitingRequest] = {}
        #: Whether the term has ended, so that its tasks and callbacks do nothing more.
        self.is_over = False
        #: Whether a task checks that groups have read the partitions to be removed.
        self.is_draining = False
        self._services = services

    async def patiently(self, read: Callable[[], Any]) -> Any:
        """Return the result of a read; wait while the store is unreachable (S3)."""

        async def ask() -> Any:
            if self.is_over:
                raise DeposedError("the term has ended")
            return await read()

        def log(error: StoreError) -> None:
            text = f"waiting for the store: {error}"
            self._services.tracer.log("controller", logging.WARNING, text)

        return await patiently(self._services.tasks, ask, on_error=log)


def report(services: Services, controller_epoch: int, effects: Effects) -> None:
    """Report the effects of a decision to traces and the log."""
    tracer = services.tracer

    def log(level: int, message: str) -> None:
        tracer.log("controller", level, message)

    notices = effects.notices
    for change in notices.of(StateChange):
        state = change.after
        tracer.event(
            "partition_state",
            partition=str(change.topic_partition),
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            controller_epoch=state.controller_epoch,
        )
    for change in notices.of(StateChange):
        if change.before is not None and is_unclean(change.before, change.after):
            log(
                logging.WARNING,
                f"unclean election: {change.topic_partition} had no live replica in sync, its ISR"
                f" was {list(change.before.isr)}; broker {change.after.leader} leads in epoch"
                f" {change.after.leader_epoch}, and logs which offsets are at risk",
            )
    _report_shrinks(log, notices)
    _report_reassignments(tracer, log, notices)
    _report_topics(tracer, log, notices)
    for transferred in notices.of(LeadershipsTransferred):
        broker_id, left = transferred.broker_id, transferred.remaining
        tracer.event(
            "broker_handed_over",
            broker=broker_id,
            epoch=controller_epoch,
            remaining=[str(partition) for partition in left],
        )
        log(
            logging.INFO,
            f"broker {broker_id} is shutting down: {len(left)} of its partitions wait for another"
            " in-sync replica",
        )
    for older in notices.of(StoreFoundOlder):
        log(
            logging.ERROR,
            f"{store_went_back.text(older.found)}. {older.partitions} partitions prove no replica:"
            " each gets the leader with the greatest log, once enough of its replicas are there;"
            " see docs/guide/older-store.md",
        )
    _report_recoveries(log, notices)
    if notices.of(ExpansionsHeld):
        tracer.mark("isr_expansion_held")
    for refused in notices.of(UnmetRequest):
        tracer.event("store_edit_refused", reason=refused.text)
        log(logging.ERROR, refused.text)


def _report_shrinks(log: Log, notices: Notices) -> None:
    """Log the controller's removals from ISRs, and why; leaders log their own removals."""
    left: dict[tuple[int, ShrinkCause], list[str]] = {}
    for change in notices.of(StateChange):
        if not change.asked_by_leader:
            for broker_id, cause in change.shrinks:
                left.setdefault((broker_id, cause), []).append(str(change.topic_partition))
    for (broker_id, cause), partitions in left.items():
        more = len(partitions) - _MAX_SHRUNK_LOGGED
        log(
            logging.INFO,
            f"broker {broker_id} left the ISR of {len(partitions)} partitions, cause {cause.word}:"
            f" {', '.join(partitions[:_MAX_SHRUNK_LOGGED])}"
            f"{f' and {more} more' if more > 0 else ''}",
        )


def _report_recoveries(log: Log, notices: Notices) -> None:
    """Log the partitions without a leader, and the replicas that each partition awaits (E4, E6)."""
    awaited = notices.of(LeaderAwaited)
    for partition in awaited[:_MAX_AWAITED_LOGGED]:
        plan = partition.plan
        missing, step = list(plan.missing), "an operator must elect a leader uncleanly"
        if plan.is_under_way:
            step = f"comparing their logs; brokers {missing} are awaited for a while"
        elif missing:
            step = f"waiting until {plan.quorum} of them are there; brokers {missing} are not"
        log(
            logging.WARNING,
            f"partition {partition.topic_partition} has no leader, the last was"
            f" {partition.last_leader}: no live member of {list(plan.members)} is proven to have"
            f" all committed records; {step}",
        )
    if len(awaited) > _MAX_AWAITED_LOGGED:
        more = len(awaited) - _MAX_AWAITED_LOGGED
        log(logging.WARNING, f"{more} more partitions have no leader for such a reason")


def _report_reassignments(
    tracer: Tracer, log: Callable[[int, str], None], notices: Notices
) -> None:
    for refused in notices.of(ReassignmentRefused):
        topic_partition, reason = refused.topic_partition, refused.reason
        tracer.event("reassignment_refused", partition=str(topic_partition), reason=reason)
        log(
            logging.ERROR,
            f"{refused.route.value}: reassignment of {topic_partition} rejected, its replicas stay:"
            f" {reason}",
        )
    for skipped in notices.of(CancelSkipped):
        tracer.event(
            "cancel_skipped", partition=str(skipped.topic_partition), reason=skipped.reason
        )
        log(logging.ERROR, f"{layout.CANCEL_REASSIGNMENTS}: not cancelled: {skipped.reason}")
    for cancelled in notices.of(CancelEnded):
        tracer.event("reassignments_cancelled", count=cancelled.count)
        log(logging.INFO, f"{cancelled.count} reassignments were cancelled and go back")
    for paused in notices.of(MovePaused):
        topic_partition, reason = paused.topic_partition, paused.reason
        tracer.event("reassignment_paused", partition=str(topic_partition), reason=reason)
        if reason:
            log(logging.WARNING, f"the reassignment of {topic_partition} pauses: {reason}")
        else:
            log(logging.INFO, f"the reassignment of {topic_partition} goes on")
    if notices.of(QueueEmptied):
        tracer.event("reassignment_queue_emptied")
        log(logging.INFO, f"{layout.REASSIGNMENT_QUEUE} is empty, and was removed")
    for ended in notices.of(ReassignmentEnded):
        topic_partition, replicas = ended.topic_partition, ended.replicas
        tracer.event("partition_reassigned", partition=str(topic_partition), replicas=replicas)
        log(logging.INFO, f"{topic_partition} is reassigned to {list(replicas)}")


def _report_topics(tracer: Tracer, log: Log, notices: Notices) -> None:
    for removed in notices.of(TopicRemoved):
        tracer.event("topic_removed", topic=removed.name)
    for name in [deleted.name for deleted in notices.of(UnreadableTopicDeleted)]:
        tracer.event("unread_topic_deleted", topic=name)
        log(
            logging.WARNING,
            f"topic {name} is deleted although its node {layout.topic_path(name)} cannot be read:"
            " brokers that hold replicas of it set them aside as strays",
        )
    for name in [removed.name for removed in notices.of(TopicNodeRemoved)]:
        tracer.event("topic_node_removed", topic=name)
        log(
            logging.WARNING,
            f"{layout.topic_path(name)} was removed from the metadata store: topic {name} is no"
            " longer served, and brokers move its replicas aside (`tidelog strays list` shows them;"
            " with its nodes back, `tidelog strays restore` restores them)",
        )
