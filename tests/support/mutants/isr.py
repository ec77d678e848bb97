"""Mutants of the ISR and the high watermark (V60 to V64, A3 to A9).

Each counts a replica that may lack committed records, or commits records that too few replicas
have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

from tidelog.replication.isr import target_isr

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks


@_breaks(
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


@_breaks(
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


@_breaks("A6", "tidelog.replication.isr:maximal_isr", profile="slow_followers")
def optimistic_shrink(_: Any) -> Any:
    """A member that the leader proposes to remove no longer counts."""

    return target_isr


@_breaks("V63", "tidelog.replication.isr:reached", profile="slow_catch_up")
def expand_without_epoch_rule(_: Any) -> Any:
    """A follower joins the ISR at the leader's high watermark, wherever its epoch begins."""
    return lambda log_end_offset, high_watermark, start_offset: log_end_offset >= high_watermark


@_breaks("V63", "tidelog.replication.isr:reached", profile="slow_catch_up")
def expand_at_once(_: Any) -> Any:
    """A follower joins the ISR with its first fetch, at any offset."""
    return lambda log_end_offset, high_watermark, start_offset: log_end_offset >= 0


@_breaks(
    "A3",
    "tidelog.controller.partitions.isr:judge",
    profile="slow_store",
    uncaught="a change has to be overtaken by the next one of the same leadership",
)
def partition_epoch_unchecked(judge: Any) -> Any:
    """The controller accepts an ISR change that is based on an older state."""

    def judged(wanted: Any, state: Any, *rest: Any) -> Any:
        if wanted.partition_epoch < state.partition_epoch:
            wanted = replace(wanted, partition_epoch=state.partition_epoch)
        return judge(wanted, state, *rest)

    return judged


@_breaks(
    "A3",
    "tidelog.controller.partitions.isr:judge",
    profile="late_roles",
    uncaught="a change has to be decided after the next leadership began, which it must not name",
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


@_breaks(
    "V63",
    "tidelog.controller.partitions.isr:_is_eligible",
    profile="slow_store",
    uncaught="a member has to restart with a loss while its change is in flight",
)
def stale_member_joins(_: Any) -> Any:
    """The controller accepts a member into the ISR, whatever incarnation of its broker the leader
    counted.
    """
    return lambda member, epoch, state, brokers: member in brokers


@_breaks("V60", "tidelog.replication.leader:LeaderReplica.fetched", profile="slow_followers")
def sent_counts_as_stored(original: Any) -> Any:
    """Records count as replicated when the leader sends them to a follower."""

    def fetched(leader: Any, replica_id: int, epoch: int, offset: int, *rest: Any) -> Any:
        return original(leader, replica_id, epoch, max(offset, leader.log_end_offset), *rest)

    return fetched


@_breaks("V64", "tidelog.replication.watermark:effective_minimum", profile="slow_followers")
def minimum_ignored(_: Any) -> Any:
    """acks=all needs only the leader, whatever min.insync.replicas is."""
    return lambda min_insync_replicas, replica_count: 1


@_breaks("V61", "tidelog.replication.watermark:on_follower", profile="slow_catch_up")
def watermark_beyond_log(_: Any) -> Any:
    """A follower takes the leader's high watermark even beyond its own log."""
    return lambda leader_high_watermark, log_start_offset, log_end_offset: max(
        leader_high_watermark, log_start_offset
    )


@_breaks("F8", "tidelog.replication.watermark:high_watermark", profile="dead_followers")
def pending_moves_watermark(high_watermark: Any) -> Any:
    """The high watermark does not wait for a member with a pending read, which is in sync."""

    def without_who_waits(log_end_offset: int, followers: Any, now_ms: int, *rest: Any) -> Any:
        waited_for = [each for each in followers if not each.has_pending_read(now_ms)]
        return high_watermark(log_end_offset, waited_for, now_ms, *rest)

    return without_who_waits


@_breaks("F7", "tidelog.replication.pending_reads:PendingReads.drop", profile="dead_followers")
def pending_kept_after_disconnect(_: Any) -> Any:
    """A pending read stays when the follower's connection closes."""
    return lambda reads, number: None


@_breaks("F7", "tidelog.replication.leader:LeaderReplica.continues", profile="readers_led_on")
def pending_forgotten_by_leader(_: Any) -> Any:
    """A leader that leads on under another epoch forgets the reads that it has under way."""
    return lambda leader, former, now_ms: None


@_breaks("F11", "tidelog.controller.elections.election:elect_instead", profile="hung_leaders")
def relinquished_to_any_replica(elect_instead: Any) -> Any:
    """A leader whose reads hang hands over to any live replica, in sync or not."""

    def elected(state: Any, around: Any, slow: Any) -> Any:
        live = tuple(each for each in around.replicas if around.can_lead(each))
        epochs = tuple(around.brokers[each].broker_epoch for each in live)
        return elect_instead(replace(state, isr=live, isr_epochs=epochs), around, slow)

    return elected
