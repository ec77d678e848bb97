"""Mutants of leading and following: truncation, epochs, commands, responses, strays.

Each removes one rule about commands, truncation, or requests of a replica.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.broker.coordinators import loading
from tidelog.broker.replicas.fetching.fetch_checks import Refusal
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH, EpochEnd
from tidelog.replication.commands import Placement
from tidelog.replication.effects import NOTHING
from tidelog.replication.leader import LeaderReplica


@mutant(
    "V32",
    "tidelog.replication.truncation:diverging_epoch",
    "tidelog.replication.truncation:truncation_offset",
    profile="late_roles",
)
def kip101_only(*_: Any) -> Any:
    """The leader responds with the end of an epoch, but not which epoch it means (KIP-101 without
    KIP-279).
    """

    def diverging_epoch(
        epochs: Any, log_end_offset: int, last_fetched_epoch: int, fetch_offset: int
    ) -> Any:
        if last_fetched_epoch < 0:
            return None
        end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
        return end if 0 <= end.end_offset < fetch_offset else None

    def truncation_offset(diverging: Any, epochs: Any, log_end_offset: int) -> int:
        offset: int = min(diverging.end_offset, log_end_offset)
        return offset

    return diverging_epoch, truncation_offset


@mutant(
    "V33",
    "tidelog.broker.replicas.hosting.partition:epoch_error",
    "tidelog.replication.follower:FollowerReplica.appended",
    profile="leader_returns",
)
def kip279_only(_: Any, appended: Any) -> Any:
    """A follower compares histories only when its leader epoch begins, and leaders serve fetches of
    other leader epochs (KIP-279 without KIP-320).
    """

    def appended_unchecked(follower: Any, log_end_offset: int, latest_epoch: int) -> Any:
        effects = appended(follower, log_end_offset, latest_epoch)
        follower.position = follower.position._replace(last_fetched_epoch=NO_EPOCH)
        return effects

    return (lambda own, asked: ErrorCode.NONE), appended_unchecked


@mutant(
    "V37",
    "tidelog.broker.replicas.hosting.partition:epoch_error",
    profile="swarm",
    world="unheard_of_return",
)
def fetch_epoch_unfenced(_: Any) -> Any:
    """A leader serves fetches of any leader epoch."""
    return lambda own, asked: ErrorCode.NONE


@mutant(
    "V32",
    "tidelog.broker.replicas.fetching.delayed_fetch:readable",
    profile="early_follower",
)
def truncation_unfenced(readable: Any) -> Any:
    """A former leader sends truncation offsets, and a leader sends them to followers of any leader
    epoch.
    """

    def told_anyway(replicas: Any, session: Any, item: Any) -> Any:
        found = readable(replicas, session, item)
        if not isinstance(found, Refusal) or session.replica_id < 0:
            return found
        if item.topic_partition is None or found.error not in (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ):
            return found
        partition = replicas.get(item.topic_partition)
        if partition is None:
            return found
        try:
            end = partition.diverging_epoch(item.last_fetched_epoch, item.fetch_offset)
        except KafkaError:
            return found
        return found if end is None else Refusal(ErrorCode.NONE, end, partition)

    return told_anyway


@mutant(
    "V31",
    "tidelog.broker.replicas.hosting.role_changes:RoleChanges.become_leader",
    profile="leader_returns",
)
def follower_state_kept(become_leader: Any) -> Any:
    """A new leader keeps the follower state of its earlier leadership."""
    earlier: dict[Any, LeaderReplica] = {}

    def become_leader_again(changes: Any, partition: Any, state: Any) -> None:
        become_leader(changes, partition, state)
        leadership = partition.leadership
        before = earlier.get(partition)
        if before is not None:
            for replica_id, follower in leadership.followers.items():
                known = before.followers.get(replica_id)
                if known is not None:
                    follower.log_end_offset = min(known.log_end_offset, leadership.log_end_offset)
                    follower.last_caught_up_ms = known.last_caught_up_ms
                    follower.counted_broker_epoch = known.counted_broker_epoch
                    follower.broker_epoch = known.broker_epoch
        earlier[partition] = leadership

    return become_leader_again


@mutant(
    "V31",
    "tidelog.broker.replicas.hosting.role_changes:_starting_high_watermark",
    profile="slow_followers",
)
def new_leader_commits_its_log(_: Any) -> Any:
    """A new leader considers its whole log committed."""
    return lambda partition: partition.log.log_end_offset


@mutant(
    "V30",
    "tidelog.replication.commands:is_current",
    "tidelog.replication.leader:LeaderReplica.commanded",
    profile="late_roles",
    why_no_seed="a response of the controller has to overtake an earlier command",
)
def older_command_of_epoch_obeyed(_: Any, commanded: Any) -> Any:
    """A broker obeys a command of the replica's leader epoch with an older partition epoch."""

    def obey(leader: Any, isr: Any, replicas: Any, partition_epoch: int, *rest: Any) -> Any:
        if partition_epoch < leader.isr.partition_epoch:
            leader.isr = replace(leader.isr, partition_epoch=partition_epoch - 1)
        return commanded(leader, isr, replicas, partition_epoch, *rest)

    return (
        lambda own_leader_epoch, own_partition_epoch, leader_epoch, partition_epoch: (
            leader_epoch >= own_leader_epoch
        )
    ), obey


@mutant("V35", "tidelog.replication.commands:strays", profile="swarm", world="unreadable_topic")
def unreadable_topic_is_stray(original: Any) -> Any:
    """Brokers move aside the replicas of a topic that the controller could not read."""
    return lambda hosted, commanded, kept_topics: original(hosted, commanded, {})


@mutant("V64", "tidelog.broker.replicas.hosting.purgatory:PartitionWatchers.wait_for_acks")
def ack_before_replication(original: Any) -> Any:
    """The leader responds to acks=all as soon as it has the batch."""

    def wait_for_acks(watchers: Any, offset: int, wait: Any) -> None:
        if isinstance(wait, loading._Wait):  # no response: the load would look again for ever
            original(watchers, offset, wait)
        else:
            wait.acknowledged()

    return wait_for_acks


@mutant(
    "V38",
    "tidelog.broker.replicas.hosting.purgatory:PartitionWatchers.leadership_lost",
    profile="slow_followers",
)
def lost_leadership_acknowledges(original: Any) -> Any:
    """Requests that wait for acks=all succeed when the leadership ends."""

    def leadership_lost(watchers: Any, topic_partition: Any, error: Any) -> None:
        waiting = list(watchers._acks)
        watchers._acks.clear()
        for _, wait in waiting:
            wait.acknowledged()
        original(watchers, topic_partition, error)

    return leadership_lost


@mutant(
    "V36",
    "tidelog.broker.replicas.fetching.delayed_fetch:DelayedFetch._look",
    profile="slow_followers",
)
def consumers_read_uncommitted(original: Any) -> Any:
    """Consumers get records up to the leader's log end."""

    def look(wait: Any, item: Any, *limits: Any) -> Any:
        name = item.topic_partition
        partition = None if name is None else wait._replicas.get(name)
        leadership = None if partition is None else partition.leadership
        if wait._session.replica_id >= 0 or leadership is None:
            return original(wait, item, *limits)
        kept, leadership.high_watermark = leadership.high_watermark, leadership.log_end_offset
        try:
            return original(wait, item, *limits)
        finally:
            leadership.high_watermark = kept

    return look


@mutant(
    "V33",
    "tidelog.replication.follower:FollowerReplica.answered",
    "tidelog.broker.replicas.fetching.fetchers:Fetcher._handle",
    profile="late_roles",
    why_no_seed="a response with a diverging epoch has to arrive again after its replacement",
)
def stale_fetch_answer_applied(answered: Any, _: Any) -> Any:
    """A follower applies a response to an earlier fetch position."""

    def answered_anyway(
        role: Any, position: Any, error: int, diverging: Any, epochs: Any, *rest: Any
    ) -> Any:
        has_records = rest[-1]
        if has_records and not diverging and position.fetch_offset != role.log_end_offset:
            return NOTHING  # a log accepts only records that continue it
        return answered(role, role.position, error, diverging, epochs, *rest)

    def handle(fetcher: Any, sequence: int, connection: Any, response: Any) -> None:
        keep = False
        for topic in response.responses:
            for data in topic.partitions:
                followed = fetcher._followed.get((topic.topic_id, data.partition_index))
                if followed is not None:
                    keep = followed.answered(data) or keep
        if keep:
            connection.keep_frames()

    return answered_anyway, handle


@mutant(
    "V67",
    "tidelog.core.epochs:LeaderEpochs.truncate_from_start",
    "tidelog.replication.truncation:diverging_epoch",
    profile="thinned_logs",
)
def first_epoch_moves(truncate_from_start: Any, diverging_epoch: Any) -> Any:
    """An epoch begins at the log start offset after that has passed its start, and any log that
    ends there continues it (as in Kafka).
    """

    def moved(epochs: Any, start_offset: int) -> None:
        truncate_from_start(epochs, start_offset)
        while len(epochs._starts) > 1 and epochs._starts[1] <= start_offset:
            del epochs._starts[0], epochs._epochs[0]
        if epochs._starts and epochs._starts[0] < start_offset:
            epochs._starts[0] = start_offset
            epochs.changed = True

    def believed(epochs: Any, end: int, last_fetched_epoch: int, fetch_offset: int) -> Any:
        if 0 <= last_fetched_epoch < epochs.earliest_epoch:
            first = epochs.entries()[0][1]
            return EpochEnd(last_fetched_epoch, first) if first < fetch_offset else None
        return diverging_epoch(epochs, end, last_fetched_epoch, fetch_offset)

    return moved, believed


@mutant("V31", "tidelog.broker.replicas.commands:_LeaderAndIsr._quieten", profile="busy_leaders")
def appends_straddle_epochs(_: Any) -> Any:
    """A leader that continues under a new leader epoch still appends under the old one."""

    async def quieten(command: Any) -> None:
        for partition in command.changing:
            await partition.quiet()

    return quieten


@mutant("D3", "tidelog.replication.commands:placement", profile="jbod")
def is_new_ignored(original: Any) -> Any:
    """A replica that is missing beside a failed directory is created, whether it is new or not."""

    def placement(**found: Any) -> Any:
        place = original(**found)
        return Placement.CREATE if place is Placement.OFFLINE else place

    return placement


@mutant(
    "V35",
    "tidelog.broker.replicas.stray_recovery:StrayRecovery._check_latest",
    profile="mislaid_topics",
)
def older_stray_returns(_: Any) -> Any:
    """A stray is restored although the broker has a later one with more records."""

    async def check_latest(strays: Any, found: Any) -> None:
        return None

    return check_latest
