"""Truncation: where a follower's log diverges from its leader's, and where to truncate (V32, V67).

Histories are compared by leader epoch (KIP-101, KIP-279, KIP-595), never by the high watermark. A
follower's high watermark lags behind the leader's, so truncation to it would lose committed
records. The leader responds with the largest epoch that both logs may share, and with the end of
this epoch in the leader's log. The follower truncates its log to this end, or to the end of the
same epoch in its own log if that is smaller. Then it fetches again, until the logs no longer
diverge. This module reads no log: it gets only the epoch histories and end offsets of logs.
"""

from __future__ import annotations

from collections.abc import Container

from tidelog.core.epochs import UNDEFINED_OFFSET, LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH, EpochEnd


def offset_on_becoming_follower(log_end_offset: int, high_watermark: int) -> int:
    """Return the offset of a follower's first fetch: its LEO, not its high watermark.

    The leader's first response shows by epoch what the follower must truncate.
    """
    return log_end_offset


def before_damage(damaged_offset: int, broker_id: int, members: Container[int]) -> int | None:
    """Return the offset to which a follower truncates a damaged log; None to keep the log.

    `members` are the ISR and the eligible replicas in the leader epoch that begins. The controller
    relies on a member having all committed records, so a member keeps even a damaged log until the
    controller has removed it from the members (V68).
    """
    return None if broker_id in members else damaged_offset


def diverging_epoch(
    epochs: LeaderEpochs, log_end_offset: int, last_fetched_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """Return where the follower's log diverges from the leader's log; None if the follower's log is
    a prefix of the leader's log.

    The leader calls this function. Raises KafkaError OFFSET_OUT_OF_RANGE if the leader does not
    know the follower's last epoch, or has none of the follower's records. After
    OFFSET_OUT_OF_RANGE, the follower starts over from the leader's log start (V67).
    """
    if last_fetched_epoch < 0:
        return None
    if fetch_offset <= log_end_offset and epochs.covers(last_fetched_epoch, fetch_offset - 1):
        return None  # the leader has the follower's last record in the same epoch
    here = epochs.epoch_at(fetch_offset - 1)
    if NO_EPOCH < here < last_fetched_epoch <= epochs.latest_epoch:
        # In the leader's log, the follower's last epoch begins only at or above the fetch offset,
        # so the follower's last batch has a damaged epoch. No checksum covers the epoch of a batch;
        # only this comparison detects the damage.
        return epochs.end_offset_for(here, log_end_offset)
    end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if end.end_offset == UNDEFINED_OFFSET:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"leader epoch {last_fetched_epoch} is not known here; the latest is "
            f"{epochs.latest_epoch}",
        )
    if last_fetched_epoch < epochs.earliest_epoch and end.end_offset >= fetch_offset:
        # All of the leader's records lie at or above the fetch offset, and all of the follower's
        # records below it, so the logs cannot be compared.
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"nothing is known here of leader epoch {last_fetched_epoch}: the records begin at"
            f" offset {end.end_offset} with leader epoch {epochs.earliest_epoch}",
        )
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def below_log_start(
    epochs: LeaderEpochs, log_start_offset: int, last_fetched_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """Return a divergence below the leader's log start, for logs that cannot be compared (V67).

    The fetch offset is within the leader's log, but all of the follower's records have earlier
    epochs than the leader's first epoch. The error OFFSET_OUT_OF_RANGE would not help: a Kafka
    broker whose log ends at the leader's log start would then repeat the same fetch again and
    again. The divergence makes a follower, Kafka's or tidelog's, truncate to an offset below the
    leader's log start, and then start over at the log start. Returns None if the leader knows the
    follower's last epoch, or if the fetch offset is below the leader's log start.
    """
    if not 0 <= last_fetched_epoch < epochs.earliest_epoch or fetch_offset < log_start_offset:
        return None
    return EpochEnd(last_fetched_epoch, max(0, log_start_offset - 1))


def truncation_offset(diverging: EpochEnd, epochs: LeaderEpochs, log_end_offset: int) -> int:
    """Return the offset to which the follower truncates its log, at most its LEO.

    The follower calls this function with its own `epochs` and `log_end_offset`. If the follower's
    log does not have the epoch in the leader's response, the follower truncates to the end of its
    own largest epoch below that epoch. The logs are compared again at the follower's next fetch.
    """
    own = epochs.end_offset_for(diverging.leader_epoch, log_end_offset)
    if own.leader_epoch == NO_EPOCH:
        return min(diverging.end_offset, log_end_offset)
    if own.leader_epoch != diverging.leader_epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, diverging.end_offset, log_end_offset)
