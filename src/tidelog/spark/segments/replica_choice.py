"""Choice of one replica of each partition among log directories, without asking a broker.

The choice is the replica with the greatest leader epoch in its last batch. Of several replicas with
the greatest epoch, the replica with the most committed offsets is chosen. A replica with the latest
epoch follows the latest leader, and the leader had every committed record when it was elected. The
chosen replica therefore has the same records as the latest leader, up to its own end. The committed
end is the largest high watermark that any replica has checkpointed. A read must reach the committed
end. If no replica reaches the committed end, the read fails, because committed records are missing.
To choose, the module reads the last batches of each replica and checks their checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.spark.segments.listing import ListedLogDir, Replica
from tidelog.spark.segments.offset_lookup import floor_position
from tidelog.spark.segments.resync import sound_batches

_LAST = 2**63 - 1


class NoReplicaError(TidelogError):
    """The error for a partition that cannot be read from its log directories."""


@dataclass(frozen=True, slots=True)
class ChosenLog:
    """The replica to read, and its readable offsets `[first, end)`."""

    replica: Replica
    first: int
    end: int
    last_epoch: int
    #: Whether a cleaner's checkpoint of any replica names the partition, so that offsets may be
    #: missing.
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a replica's log: the offset after its last whole batch, and the batch's epoch."""

    end: int
    last_epoch: int


def choose_logs(
    directories: Iterable[ListedLogDir], *, to_log_end: bool
) -> dict[TopicPartition, ChosenLog]:
    """Return the log to read for each partition. Raises NoReplicaError, OSError.

    `to_log_end` extends the read beyond the committed records, to the last whole batch.
    """
    replicas: dict[TopicPartition, list[Replica]] = {}
    for directory in directories:
        for replica in directory.replicas:
            replicas.setdefault(replica.tp, []).append(replica)
    return {
        tp: choose(each, {replica.path: tail_of(replica) for replica in each}, to_log_end)
        for tp, each in sorted(replicas.items())
    }


def choose(replicas: Sequence[Replica], tails: Mapping[str, Tail], to_log_end: bool) -> ChosenLog:
    """Return the log to read of one partition, among its replicas. Raises NoReplicaError."""
    ids = {each.topic_id: each.path for each in replicas if each.topic_id is not None}
    if len(ids) > 1:
        known = ", ".join(f"{topic_id} in {path}" for topic_id, path in sorted(ids.items()))
        raise NoReplicaError(
            f"replicas of {replicas[0].tp} belong to topics of different ids ({known}): leave out"
            " the directories of the deleted topic"
        )
    committed = max((each.high_watermark or 0 for each in replicas), default=0)
    is_compacted = any(each.cleaned_to is not None for each in replicas)
    best: tuple[int, int] | None = None
    chosen: ChosenLog | None = None
    for replica in replicas:
        tail = tails[replica.path]
        reached = tail.end if to_log_end else min(tail.end, committed)
        end = tail.end if to_log_end else committed
        base = replica.segments[0].base_offset if replica.segments else 0
        first = min(max(base, replica.log_start or 0), max(reached, base))
        rank = (tail.last_epoch, max(first, reached))
        if best is None or rank > best:
            best = rank
            chosen = ChosenLog(replica, first, max(first, end), tail.last_epoch, is_compacted)
    if chosen is None:
        raise NoReplicaError("a partition without a replica")
    return chosen


def tail_of(replica: Replica) -> Tail:
    """Return the end of a replica's log, from its last batches. Raises OSError."""
    for segment in reversed(replica.segments):
        start = floor_position(segment.path, segment.base_offset, segment.size, _LAST)
        last = epoch = -1
        for rows in sound_batches(segment.path, start, segment.size, segment.base_offset):
            if len(rows):
                last, epoch = int(rows["last"][-1]), int(rows["epoch"][-1])
        if last >= 0:
            end = max(last + 1, replica.segments[-1].base_offset)
            return Tail(end, epoch)
    return Tail(replica.segments[-1].base_offset if replica.segments else 0, -1)
