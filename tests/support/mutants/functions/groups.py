"""Mutants of coordinators of groups (G1, G6).

Each lets a coordinator respond with unwritten state, or trust outdated state.
"""

from __future__ import annotations

from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.errors import ErrorCode


@mutant("G1", "tidelog.group.classic.classic_group:ClassicGroup.is_current")
def generation_unchecked(_: Any) -> Any:
    """Members commit under any generation."""
    return lambda group, generation_id: True


@mutant("G1", "tidelog.group.classic.classic_group:ClassicGroup.commit_error", profile="lookups")
def fenced_instance_commits(original: Any) -> Any:
    """A static member commits although another process has taken its place."""

    def commit_error(group: Any, message: Any) -> Any:
        error = original(group, message)
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID else error

    return commit_error


@mutant(
    "G1",
    "tidelog.broker.coordinators.runtime:CoordinatorRuntime.role_ended",
    "tidelog.broker.coordinators.runtime:CoordinatorRuntime.replica_gone",
    "tidelog.broker.coordinators.shards:CoordinatorShards.load",
    profile="leader_returns",
)
def coordinator_goes_on(role_ended: Any, replica_gone: Any, load: Any) -> Any:
    """A coordinator keeps its state while other brokers lead, and continues with it when it leads
    again, under any leader epoch.
    """

    gone: dict[Any, None] = {}

    def role_ended_with_replica(groups: Any, partition: Any) -> None:
        if partition in gone:
            role_ended(groups, partition)

    def note_gone(groups: Any, partition: Any) -> None:
        gone[partition] = None
        replica_gone(groups, partition)

    def load_once(partitions: Any, partition: int, leader_epoch: int) -> Any:
        former = partitions._loaded.get(partition)
        if former is None or former.phase is CoordinatorPhase.LOADING:
            return load(partitions, partition, leader_epoch)
        former.leader_epoch = partitions._epochs[partition] = leader_epoch
        return None, ()

    return role_ended_with_replica, note_gone, load_once


@mutant(
    "G6",
    "tidelog.broker.coordinators.group_coordinators:check_topics",
    "tidelog.group.records:PartitionIncarnation.has_ended",
    "tidelog.group.partition:GroupPartition._ended",
    profile="recreated_offsets",
)
def ends_missed_while_loading(_check: Any, _has_ended: Any, ended: Any) -> Any:
    """A coordinator knows nothing of topics that were deleted while it was loading, or before."""

    async def unchecked(services: Any, core: Any, name: str) -> bool:
        return True

    def ended_when_active(core: Any, gone: Any, now: Any) -> Any:
        return ended(core, gone, now) if core.phase is CoordinatorPhase.ACTIVE else ()

    return unchecked, lambda committed, present: False, ended_when_active
