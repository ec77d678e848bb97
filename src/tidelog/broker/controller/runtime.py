"""The controller of the cluster on this broker: election, loads, decisions, commands.

Every broker watches the node `/controller` and tries to create it when it is deleted (V3, V40). The
winner of the election loads the whole state (V41) and then works in turns, as events arrive. In
each turn the controller reads the changes that watches announced (`store_watches`), and decides
about all events together. At the end of a turn the controller writes the decision to the store,
queues the commands and responds to requests, in this order (V2). `tidelog.controller` makes the
decisions. A controller's term ends when its session expires or a newer controller exists; waiting
requests get NOT_CONTROLLER. If the store never answers a request of the controller, the broker
notices the stall. The broker ends the term of a stalled controller and starts a new task, which
removes the left-over `/controller` node (V42).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.controller.draining import Draining
from tidelog.broker.controller.drains import Drains
from tidelog.broker.controller.observed_store import ObservedStore
from tidelog.broker.controller.store_watches import StoreWatches
from tidelog.broker.controller.store_writer import DeposedError
from tidelog.broker.controller.term import Claim, Refusal, Term, WaitingRequest, report
from tidelog.broker.server.requests import Pending
from tidelog.broker.store_access import RETRY_MS, UNANSWERED, UNREACHED
from tidelog.controller.activity import STALLED_TICKS, Activity, ActivityVerdict
from tidelog.controller.decision import Effects
from tidelog.controller.elections.leaders import ElectLeadersAsked, MinimumRead, UncleanRead
from tidelog.controller.elections.recoveries import RecoveryBegun, RecoveryWaitOver
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.controller.events import Event
from tidelog.controller.notices import TopicOutdated
from tidelog.controller.partitions import removal
from tidelog.controller.partitions.addition import CreatePartitionsAsked
from tidelog.controller.partitions.alter_partition import AlterPartitionAsked
from tidelog.controller.partitions.expansions import ExpansionsDue, ExpansionsHeld
from tidelog.controller.partitions.removal import RemovePartitionsAsked
from tidelog.controller.producer_ids import ProducerIdsAsked
from tidelog.controller.reassignments.listing import ReassignmentsListAsked
from tidelog.controller.reassignments.progress import SweepDue
from tidelog.controller.reassignments.queueing import QueueLimitsRead
from tidelog.controller.reassignments.requests import ReassignmentsAsked
from tidelog.controller.replica_answers import CommandsDropped
from tidelog.controller.shutdowns import ControlledShutdownAsked
from tidelog.controller.topics.creation import CreateTopicsAsked, TopicCreated
from tidelog.controller.topics.deletion import DeleteTopicsAsked
from tidelog.core.errors import ErrorCode
from tidelog.core.tasks import Signal
from tidelog.core.types import TopicId
from tidelog.metadata import layout
from tidelog.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Op,
    OutcomeUnknown,
    SessionExpired,
    SetData,
    TransactionFailed,
    WatchEvent,
)
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.alter_partition import AlterPartitionRequest
from tidelog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest
from tidelog.wire.messages.create_topics import CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidelog.wire.messages.relinquish_leadership import RelinquishLeadershipRequest
from tidelog.wire.messages.remove_partitions import RemovePartitionsRequest

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.services import Services

#: Maximum time in milliseconds that a response to a client waits until every broker has
#: acknowledged the commands of the client's request. The response waits because the client's next
#: request, for example for a new topic, may reach any broker.
_HEARD_LIMIT_MS = 1_000
#: Pause in milliseconds between two reads of topics whose nodes are unreadable.
_LOOK_AGAIN_MS = 5_000


#: For each type of request: the function that makes the controller event, and whether the response
#: waits, for a second at most, until the brokers have acknowledged the commands.
_EVENTS: Final[dict[type, tuple[Callable[[int, Any], Event], bool]]] = {
    AllocateProducerIdsRequest: (ProducerIdsAsked, False),
    AlterPartitionReassignmentsRequest: (ReassignmentsAsked, True),
    ControlledShutdownRequest: (ControlledShutdownAsked, True),
    ElectLeadersRequest: (ElectLeadersAsked, True),
    ListPartitionReassignmentsRequest: (ReassignmentsListAsked, False),
    RelinquishLeadershipRequest: (RelinquishAsked, False),
    RemovePartitionsRequest: (RemovePartitionsAsked, False),
}


class ControllerRuntime:
    """The part of this broker that stands for election and acts while it is the controller."""

    def __init__(self, services: Services, cluster_events: ClusterEvents, progress: Drains) -> None:
        self.services = services
        self._cluster_events = cluster_events
        self._progress = progress
        self._activity = Activity()
        self.store = self._store = ObservedStore(
            services.store, self._activity.moved, services.clock, services.metrics
        )
        self._wake = Signal(services.ports.loop)
        self._flow: asyncio.Task[None] | None = None
        self._term: Term | None = None
        self._closing = False
        self._next_ticket = 0
        self._claim_changed = True
        self._store_watches = StoreWatches(services, self._wake, self._noticed)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """The controller epoch of the current term; -1 without a term."""
        return -1 if self._term is None else self._term.claim.controller_epoch

    async def start(self) -> None:
        """Take part in controller elections from now on."""
        self._flow = self.services.tasks.spawn("controller", self._run())
        self._watch_activity()

    async def close(self) -> None:
        """Resign and take no further part in elections, so that another broker takes over."""
        self._closing = True
        was_active = self.is_active
        self.resign("the broker is stopping")
        self._wake.set()
        if was_active:
            try:
                await self._leave_office()
            except (*UNREACHED, TransactionFailed) as error:
                self._log(logging.WARNING, f"/controller stays until the session ends: {error}")

    def resign(self, reason: str) -> None:
        """End the current term, if there is one; refuse every waiting request at once."""
        term, self._term = self._term, None
        self._claim_changed = True
        self._wake.set()
        if term is None:
            return
        term.is_over = True
        term.balancing.end()
        term.channels.close()
        term.events.resigned(reason)
        self.services.tracer.event(
            "controller_resigned", epoch=term.claim.controller_epoch, reason=reason
        )
        self._log(logging.INFO, f"resigned, epoch {term.claim.controller_epoch}: {reason}")
        if term.waiting:
            self.services.tracer.mark("controller_resigned_with_waiting")
        for waiting in term.waiting.values():
            waiting.pending.complete(waiting.refusal())

    def session_renewed(self) -> None:
        """Check `/controller` again: this broker re-registered and lost its watches."""
        self._claim_changed = True
        self._wake.set()

    def verify(self) -> None:
        """Check whether this broker is still the controller, as a newer controller may exist."""
        self._claim_changed = True
        self._wake.set()

    # configuration changes, which the controller on this broker reads

    def configs_changed(self, topics: Iterable[str]) -> None:
        """If this broker is the controller, read the changed configuration of topics (V13)."""
        if self._term is not None:
            self._store_watches.configs_changed(topics)

    def every_config_changed(self) -> None:
        """If this broker is the controller, read all configuration, which may have changed."""
        if self._term is not None:
            self._store_watches.every_config_changed()

    def defaults_changed(self) -> None:
        """If this broker is the controller, let it use this broker's changed configuration."""
        config = self.services.config
        self.offer(UncleanRead({}, config.unclean_leader_election_enable))
        self.offer(MinimumRead({}, config.min_insync_replicas))
        self.offer(
            QueueLimitsRead(
                config.reassignment_max_concurrent_partitions,
                config.reassignment_max_concurrent_partitions_per_broker,
            )
        )

    # requests

    def ask(self, request: Any, refusal: Refusal) -> Pending | Any:
        """Pass a request to the controller on this broker, or return the response of `refusal`."""
        event, when_acknowledged = _EVENTS[type(request)]
        return self._ask(lambda ticket: event(ticket, request), refusal, when_acknowledged)

    def alter_partition(
        self, request: AlterPartitionRequest, version: int, refusal: Refusal
    ) -> Pending | Any:
        """Pass a leader's proposed ISRs to the controller on this broker, or return the response of
        `refusal`.
        """
        return self._ask(lambda ticket: AlterPartitionAsked(ticket, version, request), refusal)

    def create_topics(self, request: CreateTopicsRequest, refusal: Refusal) -> Pending | Any:
        """Request new topics; this broker chooses random ids, and a seed for replica placement."""
        random = self.services.ports.random
        topic_ids = [_new_topic_id(random.randbytes(16)) for _ in request.topics]
        seed = random.randrange(0, 1 << 31)
        return self._ask(
            lambda ticket: CreateTopicsAsked(ticket, request, topic_ids, seed),
            refusal,
            when_acknowledged=True,
        )

    def create_partitions(
        self, request: CreatePartitionsRequest, refusal: Refusal
    ) -> Pending | Any:
        """Request more partitions for topics; this broker chooses a seed for replica placement."""
        seed = self.services.ports.random.randrange(0, 1 << 31)
        return self._ask(
            lambda ticket: CreatePartitionsAsked(ticket, request, seed),
            refusal,
            when_acknowledged=True,
        )

    def delete_topics(self, request: DeleteTopicsRequest, refusal: Refusal) -> Pending | Any:
        """Request the deletion of topics; respond when they are deleted, or at the timeout."""

        def event(ticket: int) -> Event:
            self.services.timers.after(
                max(0, request.timeout_ms), lambda: self._deletion_timed_out(term, ticket)
            )
            return DeleteTopicsAsked(ticket, request)

        term = self._term
        return self._ask(event, refusal, when_acknowledged=True)

    def commands_wanted(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        """Queue all commands for a broker that requests them again; return NONE or the error."""
        term = self._term
        if term is None:
            return ErrorCode.NOT_CONTROLLER
        known = term.controller.image.brokers.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.offer(CommandsDropped(broker_id, broker_epoch))
        return ErrorCode.NONE

    def offer(self, event: Event) -> None:
        """Offer an event to the current term; drop the event if there is no term."""
        if self._term is not None:
            self._term.controller.offer(event)
            self._wake.set()

    def _ask(
        self, event: Callable[[int], Event], refusal: Refusal, when_acknowledged: bool = False
    ) -> Pending | Any:
        term = self._term
        if term is None:
            return refusal()
        ticket = self._next_ticket
        self._next_ticket += 1
        pending = Pending()
        term.waiting[ticket] = WaitingRequest(pending, refusal, when_acknowledged)
        term.controller.offer(event(ticket))
        self._wake.set()
        return pending

    def _deletion_timed_out(self, term: Term | None, ticket: int) -> None:
        if term is None or term is not self._term or ticket not in term.waiting:
            return
        answer = term.controller.give_up(ticket)
        if answer is not None:
            term.waiting.pop(ticket).pending.complete(answer)

    def _time_recoveries(self, term: Term, effects: Effects) -> None:
        """For each leader recovery that begins, start a timer that limits its wait (E6)."""
        begun = effects.notices.of(RecoveryBegun)
        if not begun:
            return

        def over() -> None:
            if self._term is term:
                self.offer(RecoveryWaitOver(begun))

        self.services.timers.after(self.services.config.leader_recovery_wait_ms, over)

    def _time_expansions(self, term: Term, effects: Effects) -> None:
        """Start a timer for each ISR expansion that the controller holds back (A11)."""
        for held in effects.notices.of(ExpansionsHeld):

            def over() -> None:
                if self._term is term:
                    self.offer(ExpansionsDue())

            self.services.timers.after(held.linger_ms, over)

    # elections

    def _watch_activity(self) -> None:
        """Check periodically that the controller makes progress (V42).

        The limit for progress is at least twice the session timeout, because a request to an
        unresponsive store fails within the session timeout.
        """
        limit_ms = self.services.config.controller_activity_timeout_ms
        if self._closing or limit_ms == 0:
            return
        match self._activity.tick():
            case ActivityVerdict.LOOK:
                self.verify()
            case ActivityVerdict.STALLED:
                self._restart_flow()
            case ActivityVerdict.WAIT:
                pass
        limit_ms = max(limit_ms, 2 * self._store.session_timeout_ms)
        self.services.timers.after(limit_ms / STALLED_TICKS, self._watch_activity)

    def _restart_flow(self) -> None:
        """End the term, and the controller task that waits forever for a response of the store.

        The broker then starts a new controller task, which first handles the `/controller` node
        that the ended task left in the store.
        """
        self.services.tracer.mark("controller_stalled")
        self.services.tracer.event("controller_stalled", epoch=self.controller_epoch)
        self._log(
            logging.ERROR,
            "the metadata store has not responded to the controller although the session is alive:"
            " abandoning the request, and /controller if this broker owns it",
        )
        self.resign("the metadata store does not respond")
        if self._flow is not None:
            self._flow.cancel()
        self._flow = self.services.tasks.spawn("controller", self._run())

    async def _idle(self) -> None:
        """Wait until the controller has something to do."""
        self._activity.rests()
        await self._wake.wait()
        self._activity.moved()

    async def _run(self) -> None:
        """Take part in controller elections forever: wait until no controller exists, stand for
        election, and serve a term if elected.
        """
        while not self._closing:
            try:
                claim = await self._race()
                if claim is None:
                    await self._idle()
                else:
                    await self._serve(claim)
            except DeposedError as error:
                self.resign(str(error))
            except SessionExpired:
                self.resign("the session has expired")
                await self.services.tasks.sleep(RETRY_MS)
            except (*UNANSWERED, TransactionFailed) as error:
                self._claim_changed = True
                self._log(logging.WARNING, f"waiting for the store: {error}")
                await self.services.tasks.sleep(RETRY_MS)

    async def _race(self) -> Claim | None:
        """Try to become the controller; return None while another broker is the controller."""
        if not self._claim_changed or self._closing or not self.services.identity.is_registered:
            return None
        self._claim_changed = False
        node = await self._store.get(layout.CONTROLLER, self._on_claim)
        if node is not None:
            if node.stat.ephemeral_owner != self._store.session_id:
                return None
            # An ended term of this broker has left this `/controller` node behind, so no controller
            # acts (V42).
            self.services.tracer.mark("controller_node_left_over")
            await self._leave_office()
        epoch_node = await self._store.get(layout.CONTROLLER_EPOCH)
        claim_data = layout.encode_controller(
            self.services.broker_id, self.services.clock.wall_ms()
        )
        ops: list[Op] = [Create(layout.CONTROLLER, claim_data, ephemeral=True)]
        if epoch_node is None:
            claim = Claim(controller_epoch=1, epoch_version=0)
            ops.append(Create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1)))
        else:
            before = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, epoch_node.data)
            version = epoch_node.stat.version
            claim = Claim(before + 1, version + 1)
            data = layout.encode_controller_epoch(claim.controller_epoch)
            ops.append(SetData(layout.CONTROLLER_EPOCH, data, version))
        try:
            await self._store.transact(ops)
        except TransactionFailed:
            # Another broker won the race for `/controller`: check the node again, and watch it.
            self.services.tracer.mark("controller_race_lost")
            self.verify()
            return None
        except OutcomeUnknown:
            if not await self._has_won(claim):
                raise
            self.services.tracer.mark("election_won_unknowingly")
        return claim

    async def _has_won(self, claim: Claim) -> bool:
        """Return, from nodes read back, whether an election of unknown outcome was won (S2)."""
        node = await self._store.get(layout.CONTROLLER)
        epoch = await self._store.get(layout.CONTROLLER_EPOCH)
        return (
            node is not None
            and node.stat.ephemeral_owner == self._store.session_id
            and epoch is not None
            and epoch.stat.version == claim.epoch_version
        )

    async def _leave_office(self) -> None:
        """Remove `/controller` if this very session owns the node (V42).

        Each election raises the controller epoch. The deletion checks the controller epoch, so it
        never removes the node of a controller that was elected in between.
        """
        paths = [layout.CONTROLLER, layout.CONTROLLER_EPOCH]
        node, epoch = await self._store.get_many(paths)
        if node is None or node.stat.ephemeral_owner != self._store.session_id:
            return
        ops: list[Op] = [Delete(layout.CONTROLLER, ANY_VERSION)]
        if epoch is not None:
            ops.insert(0, Check(layout.CONTROLLER_EPOCH, epoch.stat.version))
        await self._store.transact(ops)

    # serving a term

    async def _serve(self, claim: Claim) -> None:
        """Serve as the controller until the term ends."""
        if self._closing or not self.services.identity.is_registered:
            return
        term = self._term = Term(
            self.services,
            self._cluster_events,
            self._store,
            claim,
            offer=self.offer,
            verify=self.verify,
        )
        self.services.tracer.event("controller_elected", epoch=claim.controller_epoch)
        self._log(logging.INFO, f"elected controller, epoch {claim.controller_epoch}")
        term.events.elected()
        await self._store_watches.load(term)
        await self._await_brokers(term)
        term.balancing.begin()
        self.services.timers.after(_LOOK_AGAIN_MS, partial(self._look_again, term))
        while self._term is term:
            await self._turn(term)

    async def _await_brokers(self, term: Term) -> None:
        """Delay the first election of a cold start until all replicas' brokers registered (E8)."""
        awaited = self._store_watches.awaited_in_cold_start()
        wait_ms = self.services.config.leader_recovery_wait_ms
        if not awaited or wait_ms == 0:
            return
        self.services.tracer.mark("cold_start_awaits_brokers")
        self._log(
            logging.INFO,
            "no replica goes on in the life that the store recorded: the first election waits up"
            f" to {wait_ms:,} ms for brokers {awaited} (leader.recovery.wait.ms)",
        )
        is_over = False

        def over() -> None:
            nonlocal is_over
            is_over = True
            self._wake.set()

        timeout = self.services.timers.after(wait_ms, over)
        while self._term is term and self._store_watches.awaited_in_cold_start() and not is_over:
            await self._idle()
            await self._store_watches.refresh_brokers(term)
        timeout.cancel()

    def _look_again(self, term: Term) -> None:
        """Read unreadable nodes again, because an administrator may have repaired them.

        The timer for reads of unreadable nodes also makes the controller check all reassignments
        (V50).
        """
        if self._term is not term:
            return
        image = term.controller.image
        if image.moving or image.has_requests:
            self.offer(SweepDue())
        unreadable = [name for name in image.unreadable if not image.is_deleting(name)]
        if unreadable:
            self._store_watches.read_again(unreadable)
        if image.unreadable_states:
            self._store_watches.read_states_again()
        self.services.timers.after(_LOOK_AGAIN_MS, partial(self._look_again, term))

    async def _turn(self, term: Term) -> None:
        """Read changes, decide, write, queue commands, respond; or wait for something to do."""
        if self._claim_changed:
            self._claim_changed = False
            await term.patiently(self._check_claim)
        await self._store_watches.refresh(term)
        while former := term.controller.wanted_former():
            wanted = list(former)
            term.controller.offer(await term.patiently(partial(term.reader.former, wanted)))
        if self._term is not term:
            return
        if not term.controller.has_work:
            await self._idle()
            return
        term.events.begins()
        decision = term.controller.decide()
        term.events.decided()
        outcomes = await term.writer.write(decision.writes) if decision.writes else []
        term.events.written()
        if self._term is term:
            self._carry_out(term, term.controller.applied(decision, outcomes))

    async def _check_claim(self) -> None:
        """Watch `/controller`; raise DeposedError unless this very session owns the node."""
        node = await self._store.get(layout.CONTROLLER, self._on_claim)
        if node is None or node.stat.ephemeral_owner != self._store.session_id:
            raise DeposedError("another session owns /controller")

    def _carry_out(self, term: Term, effects: Effects) -> None:
        term.channels.follow(term.controller.image.brokers)
        term.channels.send(effects.commands)
        term.events.commanded(effects, term.controller.image)
        for ticket, message in effects.answers:
            waiting = term.waiting.pop(ticket, None)
            if waiting is None:
                continue
            complete = partial(waiting.pending.complete, message)
            if waiting.when_acknowledged:
                term.channels.when_acknowledged(complete, _HEARD_LIMIT_MS)
            else:
                complete()
        report(self.services, term.claim.controller_epoch, effects)
        term.balancing.decided()
        # Watch the nodes of new topics.
        self._store_watches.look_at(topic.name for topic in effects.notices.of(TopicCreated))
        self._time_recoveries(term, effects)
        self._time_expansions(term, effects)
        outdated = [topic.name for topic in effects.notices.of(TopicOutdated)]
        if outdated:
            self._store_watches.read_again(outdated)
        if not term.is_draining and removal.to_drain(term.controller.image):
            term.is_draining = True
            drain = Draining(
                self.services, self._progress, term, lambda: self._term is term, self.offer
            )
            self.services.tasks.spawn("drain", drain.run())

    def _on_claim(self, event: WatchEvent) -> None:
        self._claim_changed = True
        self._wake.set()

    def _noticed(self) -> None:
        if self._term is not None:
            self._term.events.noticed()

    def _log(self, level: int, message: str) -> None:
        self.services.tracer.log("controller", level, message)


def _new_topic_id(raw: bytes) -> TopicId:
    """Return a random UUID (version 4), like Kafka's topic ids."""
    value = bytearray(raw)
    value[6] = (value[6] & 0x0F) | 0x40
    value[8] = (value[8] & 0x3F) | 0x80
    return bytes(value)
