"""Mutants of the ISR, the high watermark and flush.before.ack.

Each counts a replica that may lack committed records, or commits records that too few replicas
have, or that a power loss may take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.replication.isr import target_isr


@mutant(
    "V60",
    "tidelog.replication.isr:maximal_isr",
    "tidelog.replication.watermark:high_watermark",
    profile="slow_catch_up",
)
def watermark_of_confirmed_isr(*_: Any) -> Any:
    """The high watermark waits for the confirmed ISR only, not for joining or leaving members."""

    def high_watermark(log_end_offset: int, followers: Any, *_: Any) -> int:
        members = [each.log_end_offset for each in followers if each.in_maximal_isr]
        lowest: int = min([log_end_offset, *members])
        return lowest

    return (lambda state: state.committed), high_watermark


@mutant(
    "A7",
    "tidelog.replication.isr:maximal_isr",
    "tidelog.replication.watermark:high_watermark",
    profile="slow_catch_up",
)
def pending_expand_ignored(_: Any, high_watermark: Any) -> Any:
    """The high watermark does not wait for a proposed member before the controller accepts it."""

    def without_who_joins(log_end_offset: int, followers: Any, *rest: Any) -> Any:
        waited_for = [one for one in followers if one.in_maximal_isr or not one.in_target_isr]
        return high_watermark(log_end_offset, waited_for, *rest)

    return (lambda state: state.committed), without_who_joins


@mutant("A6", "tidelog.replication.isr:maximal_isr", profile="slow_followers")
def optimistic_shrink(_: Any) -> Any:
    """A member that the leader proposes to remove no longer counts."""

    return target_isr


@mutant("V63", "tidelog.replication.isr:reached", profile="slow_catch_up")
def expand_at_once(_: Any) -> Any:
    """A follower joins the ISR with its first fetch, at any offset."""
    return lambda log_end_offset, high_watermark, start_offset: log_end_offset >= 0


@mutant(
    "A3",
    "tidelog.controller.partitions.isr:judge",
    profile="swarm",
    why_no_seed="a change has to be overtaken by the next one of the same leadership",
)
def partition_epoch_unchecked(judge: Any) -> Any:
    """The controller accepts an ISR change that is based on an older state."""

    def judged(wanted: Any, state: Any, *rest: Any) -> Any:
        if wanted.partition_epoch < state.partition_epoch:
            wanted = replace(wanted, partition_epoch=state.partition_epoch)
        return judge(wanted, state, *rest)

    return judged


@mutant(
    "A3",
    "tidelog.controller.partitions.isr:judge",
    profile="late_roles",
    why_no_seed="a change has to be decided after the next leadership began, and not name it",
)
def deposed_leader_alters_isr(judge: Any) -> Any:
    """The controller accepts an ISR change of a former leader."""

    def judged(wanted: Any, state: Any, *rest: Any) -> Any:
        if 0 <= wanted.leader_epoch < state.leader_epoch and state.leader in wanted.isr:
            wanted = replace(
                wanted,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
            )
        return judge(wanted, state, *rest)

    return judged


@mutant("V60", "tidelog.replication.leader:LeaderReplica.fetched", profile="slow_followers")
def sent_counts_as_stored(original: Any) -> Any:
    """Records count as replicated when the leader sends them to a follower."""

    def fetched(leader: Any, replica_id: int, epoch: int, offset: int, *rest: Any) -> Any:
        return original(leader, replica_id, epoch, max(offset, leader.log_end_offset), *rest)

    return fetched


@mutant("V64", "tidelog.replication.watermark:effective_minimum", profile="slow_followers")
def minimum_ignored(_: Any) -> Any:
    """acks=all needs only the leader, whatever min.insync.replicas is."""
    return lambda min_insync_replicas, replica_count: 1


@mutant("V61", "tidelog.replication.watermark:on_follower", profile="slow_catch_up")
def watermark_beyond_log(_: Any) -> Any:
    """A follower takes the leader's high watermark even beyond its own log."""
    return lambda leader_high_watermark, log_start_offset, log_end_offset: max(
        leader_high_watermark, log_start_offset
    )


@mutant("F7", "tidelog.replication.pending_reads:PendingReads.drop", profile="dead_followers")
def pending_kept_after_disconnect(_: Any) -> Any:
    """A pending read stays when the follower's connection closes."""
    return lambda reads, number: None


@mutant("F7", "tidelog.replication.leader:LeaderReplica.continues", profile="readers_led_on")
def pending_forgotten_by_leader(_: Any) -> Any:
    """A leader that leads on under another epoch forgets the reads that it has under way."""
    return lambda leader, former, now_ms: None


@mutant("F11", "tidelog.controller.elections.election:elect_instead", profile="hung_leaders")
def relinquished_to_any_replica(elect_instead: Any) -> Any:
    """A leader whose reads hang hands over to any live replica, in sync or not."""

    def elected(state: Any, around: Any, slow: Any) -> Any:
        live = tuple(each for each in around.replicas if around.can_lead(each))
        epochs = tuple(around.brokers[each].broker_epoch for each in live)
        return elect_instead(replace(state, isr=live, isr_epochs=epochs), around, slow)

    return elected


_FOLLOWED = "tidelog.broker.replicas.fetching.followed_partition:FollowedPartition"


@mutant(
    "V69",
    f"{_FOLLOWED}.is_synced",
    f"{_FOLLOWED}._sync",
    profile="swarm",
    world="power_fails_everywhere",
)
def follower_reports_what_it_wrote(*_: Any) -> Any:
    """A follower fetches on without a sync, and says that its log is synced."""

    def go_on(followed: Any) -> None:
        followed.is_ready = True
        followed._fetcher.ready(followed)

    return property(lambda followed: followed.partition.log.config.flush_before_ack), go_on


@mutant("V69", "tidelog.replication.leader:LeaderReplica.__init__", profile="power_failures")
def new_leader_has_synced_its_log(original: Any) -> Any:
    """A new leader takes the end of its log as synced."""

    def init(leader: Any, *, log_end_offset: int, synced_offset: int = 0, **more: Any) -> None:
        original(leader, log_end_offset=log_end_offset, synced_offset=log_end_offset, **more)

    return init
