"""Mutants of leaders that write state nodes themselves, and of their notifications.

Each drops a condition of such a write, mistakes its outcome, or loses its announcement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, OutcomeUnknown, SetData
from tidelog.replication.direct_isr import Verdict


@mutant("V6", "tidelog.broker.replicas.isr.state_node_writer:SetData", profile="direct_slow_store")
def direct_write_unconditional(_: Any) -> Any:
    """A leader writes the state node whatever version it has by then."""
    return lambda path, data, version: SetData(path, data, ANY_VERSION)


@mutant(
    "A12",
    "tidelog.replication.direct_isr:judge",
    profile="direct_slow_store",
    why_no_seed="a leader has to read the state of its successor before it gets the command",
)
def deposed_leader_writes(original: Any) -> Any:
    """A leader writes its change into the state of the next leadership."""

    def judge(change: Any, state: Any, leader: int, *rest: Any) -> Any:
        if state is None or state.leader_epoch <= change.leader_epoch or state.leader < 0:
            return original(change, state, leader, *rest)
        follows = replace(
            change, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
        )
        verdict = original(follows, replace(state, leader=leader), leader, *rest)
        return verdict if verdict.is_new else Verdict(ErrorCode.FENCED_LEADER_EPOCH)

    return judge


@mutant(
    "A8",
    "tidelog.broker.replicas.isr.state_node_writer:StateNodeWriter._write",
    profile="direct",
)
def direct_unknown_counts_as_refused(original: Any) -> Any:
    """A leader takes a write whose response was lost for one that was not made."""

    async def write(writer: Any, changes: Any, writes: Any) -> None:
        store = writer._services.store
        lost: list[bool] = []

        class Watched:
            async def transact(self, ops: Any) -> Any:
                try:
                    return await store.transact(ops)
                except OutcomeUnknown:
                    lost.append(True)
                    raise

        watched = replace(writer._services, store=Watched())
        services, writer._services = writer._services, watched
        try:
            await original(writer, changes, writes)
        finally:
            writer._services = services
        if lost:
            for topic_partition in writes:
                partition, change = changes.pop(topic_partition)
                partition.role.change_refused(change, ErrorCode.OPERATION_NOT_ATTEMPTED)

    return write


@mutant("A12", "tidelog.broker.controller.notifications:read_isr_changes", profile="direct")
def notifications_removed_unread(original: Any) -> Any:
    """The controller removes all notifications that exist by then, not those that it has read."""

    async def read(term: Any, on_change: Any) -> None:
        await original(term, on_change)
        store = term.reader._store
        names = await term.patiently(lambda: store.children(layout.ISR_CHANGES, on_change))
        await term.writer.remove([f"{layout.ISR_CHANGES}/{name}" for name in names or ()])

    return read


@mutant("A12", "tidelog.broker.controller.notifications:read_isr_changes", profile="mixed_levels")
def notifications_of_bumped_cluster_ignored(original: Any) -> Any:
    """A controller at level 2.7 or above does not watch for notifications."""

    async def read(term: Any, on_change: Any) -> None:
        if term.channels.sender.versions.fetch < 17:
            await original(term, on_change)

    return read


@mutant("V10", "tidelog.replication.direct_isr:_epoch", profile="swarm", world="unheard_restarts")
def direct_change_renews_epochs(_: Any) -> Any:
    """A leader records the present incarnation of every member, whatever that one has."""
    return lambda member, change, state, registered: registered.get(member, 0)


@mutant(
    "V10",
    "tidelog.metadata.layout:encode_isr_change",
    "tidelog.controller.incarnations:is_leader_restarted",
    profile="mixed_levels",
)
def restarted_leader_leads(encode_isr_change: Any, _: Any) -> Any:
    """The controller sends a leader that has restarted the state that it left unannounced, as
    Kafka's leaders do for seconds, before it elects.
    """
    return (lambda partitions: encode_isr_change(())), (lambda state, brokers: False)


@mutant(
    "V63",
    "tidelog.broker.services:Identity.session_expired",
    "tidelog.replication.leader:LeaderReplica._may_join_unfetched",
    profile="direct_unregistered_fetches",
)
def unregistered_fetches_count(session_expired: Any, _: Any) -> Any:
    """A follower without a registration sends no epoch, and what it had counts for its successor
    in the next incarnation.
    """

    def expired(identity: Any) -> None:
        session_expired(identity)
        identity.fetching_epoch = NO_BROKER_EPOCH

    def may_join(leader: Any, follower: Any, now_ms: int) -> bool:
        may: bool = leader._may_join(follower, now_ms)
        return may

    return expired, may_join
