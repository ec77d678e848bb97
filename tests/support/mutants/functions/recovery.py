"""Mutants of eligible leader replicas and of recovery by proof.

Each trusts a replica that nothing proves, or forgets one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.controller.elections.election import Election, _elect, _published
from tidelog.core.eligible_replicas import EligibleReplicas
from tidelog.core.types import NO_BROKER_EPOCH, NO_LEADER


@mutant(
    "E1", "tidelog.core.eligible_replicas:after", profile="swarm", world="last_replica_standing"
)
def eligible_replicas_forgotten(_: Any) -> Any:
    """The controller forgets a replica that leaves a small ISR: only the last member counts."""
    return lambda *_, **__: EligibleReplicas()


@mutant(
    "E1",
    "tidelog.core.eligible_replicas:after",
    "tidelog.controller.elections.election:elect",
    "tidelog.replication.leader:LeaderReplica._advance",
    profile="every_member_ends",
)
def eligible_replicas_kept(original: Any, _: Any, advance: Any) -> Any:
    """Eligible replicas are kept, and records committed without them, in an ISR of the minimum."""

    def after(state: Any, isr: Any, minimum: int, *rest: Any, **more: Any) -> Any:
        return original(state, isr, len(isr) + 1, *rest, **more)

    def advance_without_them(self: Any, now_ms: int) -> bool:
        self.has_eligible = False
        moved: bool = advance(self, now_ms)
        return moved

    return after, _elect, advance_without_them


@mutant("E2", "tidelog.controller.incarnations:proven_members", profile="every_member_ends")
def every_member_is_proven(original: Any) -> Any:
    """The controller takes every live member as proven, whatever it lost."""

    def proven_members(state: Any, brokers: Any, *_: Any) -> Any:
        members = (*state.isr, *state.elr)
        return {one: brokers[one].broker_epoch for one in members if one in brokers}

    return proven_members


@mutant("E2", "tidelog.controller.elections.election:_leaderless", profile="every_member_ends")
def last_leader_returns(original: Any) -> Any:
    """The controller elects the last leader as soon as it is registered, proven or not."""

    def leaderless(state: Any, survivors: Any, around: Any) -> Any:
        last = state.last_leader
        if state.leader == NO_LEADER and last in around.brokers and last not in around.absent:
            return Election(_published(state, last, [last], around))
        return original(state, survivors, around)

    return leaderless


@mutant(
    "E3",
    "tidelog.controller.incarnations:proven_members",
    profile="swarm",
    world="last_replica_standing",
)
def bounced_eligible_replica_leads(original: Any) -> Any:
    """The controller takes an eligible replica as proven after an unclean shutdown."""

    def proven_members(state: Any, brokers: Any, *bounced: Any) -> Any:
        eligible = {one: brokers[one].broker_epoch for one in state.elr if one in brokers}
        return {**original(state, brokers, *bounced), **eligible}

    return proven_members


@mutant("E6", "tidelog.controller.elections.recovery:plan", profile="a_host_stays_away")
def dead_member_is_awaited(original: Any) -> Any:
    """The controller waits for every member, whatever leader.recovery.wait.ms is."""

    def plan(state: Any, around: Any) -> Any:
        recovery = around.recovery
        if recovery is not None:
            around = replace(around, recovery=replace(recovery, is_due=False))
        return original(state, around)

    return plan


@mutant("E6", "tidelog.controller.elections.recovery:_greatest", profile="every_member_ends")
def smallest_log_leads(original: Any) -> Any:
    """The controller elects the member with the smallest log."""

    def smallest(candidates: Any, heard: int, quorum: int, around: Any) -> Any:
        known = around.recovery.logs if around.recovery is not None else {}
        ends = [one for one in candidates if one in known]
        return min(ends, key=lambda one: known[one]) if ends else candidates[0]

    return smallest


@mutant(
    "E3",
    "tidelog.controller.incarnations:lost_nothing",
    profile="swarm",
    world="older_disk_returns",
)
def older_disk_proves(_: Any) -> Any:
    """The controller takes every epoch since the first clean one as proven, named or not."""
    return lambda broker, recorded_epoch: (
        broker.previous_broker_epoch != NO_BROKER_EPOCH
        and min((broker.previous_broker_epoch, *broker.earlier_broker_epochs)) <= recorded_epoch
    )


@mutant("E7", "tidelog.controller.incarnations:lost_nothing", profile="every_member_ends")
def any_proof_counts(_: Any) -> Any:
    """The controller takes a proof of another incarnation than the recorded one."""
    return lambda broker, recorded_epoch: broker.previous_broker_epoch != NO_BROKER_EPOCH


@mutant(
    "E6", "tidelog.controller.elections.waits:look_at", profile="swarm", world="replicas_described"
)
def wait_not_shown(_: Any) -> Any:
    """The controller sends no broker the members that a partition without a leader waits for."""
    return lambda *_, **__: None


@mutant(
    "E8",
    "tidelog.broker.membership.store_history:StoreHistory._why_older",
    profile="older_stores",
)
def older_store_believed(_: Any) -> Any:
    """A broker does not compare its stamps and logs with the store's."""

    async def why_older(self: Any, found: int) -> str:
        return ""

    return why_older


@mutant(
    "E8",
    "tidelog.broker.membership.store_history:StoreHistory.heard_of",
    profile="older_stores",
)
def marks_not_known(_: Any) -> Any:
    """A broker takes the mark of an earlier life of the store for one of the present life."""
    return lambda self, mark: False


@mutant("E8", "tidelog.controller.elections.election:_epoch_above_all", profile="older_stores")
def epochs_of_other_lives_given_again(_: Any) -> Any:
    """A new leader begins just above the logs, whose store may have given more epochs."""

    def above_all(state: Any, around: Any) -> int:
        logs = {} if around.recovery is None else around.recovery.logs
        latest: int = max([state.leader_epoch, *(log.leader_epoch for log in logs.values())])
        return latest + 1

    return above_all


@mutant("E8", "tidelog.controller.image:unproven", profile="older_stores")
def lost_epochs_given_again(original: Any) -> Any:
    """The controller does not skip the leader epochs that a store that went back may lack."""
    return lambda state, replicas, epochs_skipped: original(state, replicas, 0)


@mutant(
    "E8", "tidelog.broker.controller.store_watches:assigned_in_cold_start", profile="older_stores"
)
def cold_start_waits_for_none(_: Any) -> Any:
    """A controller without a member that goes on elects before all brokers have registered."""
    return lambda topics, brokers: frozenset()
