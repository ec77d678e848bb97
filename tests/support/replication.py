"""Leaders and followers for tests, with everything defaulted that a test does not speak of."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.types import RECOVERED
from tidelog.replication.effects import Effects, SendAlterPartition
from tidelog.replication.follower import FollowerReplica
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica

LAG_MS = 30_000
#: Broker epoch of broker N in tests: 100 + N.
FIRST_BROKER_EPOCH = 100


def a_leader(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    epoch_start_offset: int = 0,
    log_end_offset: int = 0,
    high_watermark: int = 0,
    min_insync_replicas: int = 1,
    max_lag_bytes: int = -1,
    alive: Callable[[int], bool] = lambda broker_id: True,
    now_ms: int = 0,
    recovery_state: int = RECOVERED,
    flush_before_ack: bool = False,
    synced_offset: int = 0,
) -> LeaderReplica:
    """Broker 1 as leader, as it is right after becoming one."""
    return LeaderReplica(
        broker_id=1,
        broker_epoch=FIRST_BROKER_EPOCH + 1,
        leader_epoch=leader_epoch,
        isr=IsrState(isr, partition_epoch),
        replicas=replicas,
        epoch_start_offset=epoch_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=high_watermark,
        min_insync_replicas=min_insync_replicas,
        max_lag_ms=LAG_MS,
        max_lag_bytes=max_lag_bytes,
        is_eligible=alive,
        now_ms=now_ms,
        recovery_state=recovery_state,
        flush_before_ack=flush_before_ack,
        synced_offset=synced_offset,
    )


def fetch(
    leader: LeaderReplica,
    replica_id: int,
    offset: int,
    now_ms: int = 0,
    broker_epoch: int | None = None,
    log_start_offset: int = 0,
    is_synced: bool = False,
) -> Effects:
    """Return a fetch of a follower, by default under the epoch of its broker."""
    epoch = FIRST_BROKER_EPOCH + replica_id if broker_epoch is None else broker_epoch
    return leader.fetched(replica_id, epoch, offset, log_start_offset, now_ms, is_synced)


def proposed(effects: Effects) -> IsrChange:
    """The one change that the effects ask for."""
    (change,) = [one.change for one in effects if isinstance(one, SendAlterPartition)]
    return change


def send(leader: LeaderReplica, effects: Effects) -> IsrChange:
    """The one change that the effects ask for, on its way to the controller."""
    change = proposed(effects)
    leader.change_sent(change)
    return change


def accept(leader: LeaderReplica, change: IsrChange, now_ms: int = 0) -> Effects:
    """The controller makes the change."""
    return leader.change_accepted(
        change, change.isr, change.leader_epoch, change.partition_epoch + 1, now_ms
    )


def a_follower(
    *,
    leader: int = 1,
    leader_epoch: int = 5,
    log_start_offset: int = 0,
    epochs: LeaderEpochs | None = None,
    log_end_offset: int = 0,
    high_watermark: int = 0,
    damaged_from: int | None = None,
) -> FollowerReplica:
    """A follower as it is right after becoming one."""
    return FollowerReplica(
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=10,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        latest_epoch=-1 if epochs is None else epochs.latest_epoch,
        high_watermark=high_watermark,
        damaged_from=damaged_from,
    )
