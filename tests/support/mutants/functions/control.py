"""Mutants of the controller, of the order of its commands, and of the metadata store.

Each removes one rule about decisions on state, its writes, or trust in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.controller.activity import ActivityVerdict
from tidelog.controller.commands import Part
from tidelog.controller.topics.edits import Adopted
from tidelog.controller.writes import Written
from tidelog.metadata import layout
from tidelog.metadata.store import Check, StoreUnavailable
from tidelog.sim.sim_store_server import Transact


@mutant("V10", "tidelog.controller.incarnations:restarted_members", profile="quick_restarts")
def bounce_unnoticed(_: Any) -> Any:
    """Recorded broker epochs are ignored."""
    return lambda state, brokers: ()


@mutant("E3", "tidelog.controller.incarnations:lost_nothing", profile="quick_restarts")
def every_restart_is_clean(_: Any) -> Any:
    """Every restarted broker counts as complete, without proof of a clean shutdown."""
    return lambda broker, recorded_epoch: True


@mutant("V13", "tidelog.controller.elections.election:_leaderless", profile="slow_followers")
def last_isr_forgotten(original: Any) -> Any:
    """A partition without a leader keeps no ISR: the first replica to return leads."""

    def leaderless(state: Any, survivors: Any, around: Any) -> Any:
        election = original(state, survivors, around)
        if election is None:
            return None
        everybody = tuple(sorted({*state.isr, 1, 2, 3}))
        return replace(election, state=replace(election.state, isr=everybody, isr_epochs=None))

    return leaderless


@mutant(
    "V3",
    "tidelog.broker.controller.store_writer:StoreWriter._transact",
    "tidelog.broker.controller.store_writer:StoreWriter._settle",
    "tidelog.broker.controller.runtime:ControllerRuntime._check_claim",
    profile="swarm",
    world="unlucky_elections",
)
def controller_epoch_unchecked(_transact: Any, settle: Any, _check_claim: Any) -> Any:
    """A controller writes without the check of its epoch, and does not verify that it is still
    elected.
    """

    async def transact_unchecked(writer: Any, ops: Any) -> Any:
        while True:
            try:
                return await writer._store.transact(ops)
            except StoreUnavailable as error:
                await writer._wait(error)

    async def settle_unchecked(writer: Any, *rest: Any) -> Any:
        nodes = await writer._read([layout.CONTROLLER_EPOCH])
        writer._epoch_check = Check(layout.CONTROLLER_EPOCH, nodes[0].stat.version)
        return await settle(writer, *rest)

    async def check_claim(shell: Any) -> None:
        del shell

    return transact_unchecked, settle_unchecked, check_claim


@mutant("V42", "tidelog.controller.activity:Activity.tick", profile="unanswered_controllers")
def idle_controller_unnoticed(_: Any) -> Any:
    """A controller whose requests the store never answers does not resign."""
    return lambda activity: ActivityVerdict.WAIT


@mutant("V80", "tidelog.broker.events.cluster_events:ClusterEvents._failed", profile="told_events")
def events_sent_again_as_new(failed: Any) -> Any:
    """Events with an unknown outcome are sent again under another producer id."""

    def forgetful(events: Any, reason: str) -> Any:
        events._producer_id = -1
        return failed(events, reason)

    return forgetful


@mutant("S1", "tidelog.sim.sim_store_server:SimStoreServer.handle", profile="controller_moves")
def expired_session_writes(handle: Any) -> Any:
    """The store accepts writes of an expired session."""

    def handle_anyway(server: Any, session: Any, connection: Any, message: Any) -> None:
        if session.session_id not in server._sessions and isinstance(message, Transact):
            server._transact(session, connection, message)
        else:
            handle(server, session, connection, message)

    return handle_anyway


@mutant("S2", "tidelog.broker.controller.store_writer:StoreWriter._settle", profile="lost_answers")
def unknown_outcome_is_success(original: Any) -> Any:
    """A write of unknown outcome counts as written."""

    async def settle(writer: Any, units: Any, outcomes: Any, failure: Any) -> Any:
        if failure is not None:
            return await original(writer, units, outcomes, failure)
        for unit in units:
            outcomes.setdefault(unit.write, Written())
        return []

    return settle


@mutant(
    "V25",
    "tidelog.broker.configs.live_configs:LiveConfigs.session_renewed",
    profile="topic_changes",
)
def missed_changes_stay_missed(_: Any) -> Any:
    """A broker that re-registers does not read the configuration changes that it missed."""
    return lambda live_configs: None


@mutant("V46", "tidelog.controller.elections.election:elect_preferred", profile="balance")
def preferred_out_of_sync(original: Any) -> Any:
    """A preferred replica leads again as soon as it is alive, in sync or not."""

    def elect_preferred(state: Any, around: Any) -> Any:
        replicas, brokers = around.replicas, around.brokers
        preferred = brokers.get(replicas[0])
        if preferred is not None and replicas[0] not in state.isr and state.isr_epochs is not None:
            members = (*state.isr, replicas[0])
            lives = (*state.isr_epochs, preferred.broker_epoch)
            state = replace(state, isr=members, isr_epochs=lives)
        return original(state, around)

    return elect_preferred


@mutant("V25", "tidelog.controller.topics.edits:adopt", profile="edited_nodes")
def edits_believed_in_office(_: Any) -> Any:
    """The controller adopts any edit of a topic's node unchecked."""
    return lambda before, found, image: Adopted(found)


@mutant("V43", "tidelog.controller.elections.election:elect", profile="shutdowns")
def handed_to_anybody(original: Any) -> Any:
    """Partitions of a leaving leader go to any live assigned replica, in sync or not."""

    def elect(state: Any, around: Any) -> Any:
        replicas, brokers = around.replicas, around.brokers
        leader = brokers.get(state.leader)
        others = [one for one in replicas if one in brokers and not brokers[one].is_leaving]
        if leader is not None and leader.is_leaving and others:
            everybody = (state.leader, *others)
            lives = tuple(brokers[one].broker_epoch for one in everybody)
            state = replace(state, isr=everybody, isr_epochs=lives)
        return original(state, around)

    return elect


@mutant("V43", "tidelog.controller.shutdowns:look_at", profile="swarm", world="stop_together")
def leaving_stays_in_sync(original: Any) -> Any:
    """A leaving broker stays in the ISRs of the partitions that it follows."""

    def look_at(hand_over: Any, image: Any, topic_partitions: Any) -> None:
        original(hand_over, image, topic_partitions)
        hand_over.followed.clear()

    return look_at


@mutant(
    "V41",
    "tidelog.controller.controller:Controller.decide",
    "tidelog.controller.elections.leaders:look_at",
    profile="quick_restarts",
)
def full_before_bounces(decide: Any, look_at: Any) -> Any:
    """A new controller sends full commands before it has decided on restarted and dead brokers and
    on their leaders.
    """
    held: dict[Any, None] = {}

    def decide_later(self: Any) -> Any:
        is_first = not self._registrations.has_read
        held.clear()
        if is_first:
            held[None] = None
        try:
            decision = decide(self)
            late = [one for one in held if one is not None]
        finally:
            held.clear()
        self._agenda.look_at(late)
        return decision

    def look_later(topic_partition: Any, draft: Any) -> None:
        if held:
            held[topic_partition] = None
        else:
            look_at(topic_partition, draft)

    return decide_later, look_later


@mutant("V17", "tidelog.controller.commands:Commands.requests", profile="quick_restarts")
def roles_before_brokers(original: Any) -> Any:
    """Brokers get their roles before the list of live brokers."""

    def requests(self: Any, sender: Any, broker_epoch: int) -> Any:
        told = original(self, sender, broker_epoch)
        return [one for one in told if one.part is not Part.BROKERS]

    return requests
