"""Where a follower's log and its leader's part, and what to cut (V32, V67).

Histories are compared by leader epoch (KIP-101, KIP-279, KIP-595), never by the high watermark: a
follower's high watermark lags behind what is committed, and cutting there loses records. The
leader names the largest epoch that both may share and where it ends in its log; the follower cuts
to the smaller end and asks again, until nothing diverges. Knows logs by their epoch histories and
end offsets only.
"""

from __future__ import annotations

from tidelog.core.epochs import UNDEFINED_OFFSET, LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH, EpochEnd


def offset_on_becoming_follower(log_end_offset: int, high_watermark: int) -> int:
    """Where a follower starts to fetch: at its LEO, whatever its high watermark.

    What must go is found by epoch, in the leader's first answer.
    """
    return log_end_offset


def diverging_epoch(
    epochs: LeaderEpochs, log_end_offset: int, last_fetched_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """The leader's part: None when the follower's log is a prefix of ours, else where to cut.

    Raises KafkaError OFFSET_OUT_OF_RANGE where no end of the epoch is known here, or where nothing
    is known of what the follower has; it then starts over from our log start (V67).
    """
    if last_fetched_epoch < 0:
        return None
    if last_fetched_epoch == epochs.latest_epoch and fetch_offset <= log_end_offset:
        return None  # nearly always, and nothing has to be looked up
    end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if end.end_offset == UNDEFINED_OFFSET:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"leader epoch {last_fetched_epoch} is not known here; the latest is "
            f"{epochs.latest_epoch}",
        )
    if last_fetched_epoch < epochs.earliest_epoch and end.end_offset >= fetch_offset:
        # Our records begin no earlier: what the follower has below cannot be compared.
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"nothing is known here of leader epoch {last_fetched_epoch}: the records begin at"
            f" offset {end.end_offset} with leader epoch {epochs.earliest_epoch}",
        )
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def truncation_offset(diverging: EpochEnd, epochs: LeaderEpochs, log_end_offset: int) -> int:
    """The follower's part: the offset to cut its log to, at most its LEO.

    `epochs` and `log_end_offset` are the follower's own. Where it does not have the leader's
    epoch, it cuts to the end of its own largest one below, and the next fetch asks again.
    """
    own = epochs.end_offset_for(diverging.leader_epoch, log_end_offset)
    if own.leader_epoch == NO_EPOCH:
        return min(diverging.end_offset, log_end_offset)
    if own.leader_epoch != diverging.leader_epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, diverging.end_offset, log_end_offset)
