"""Who waits for what on a partition: acks=all produces, deletions, fetches (DESIGN.md, rule 7).

Waiting costs what changes, never what is watched: produces wait in a deque per partition ordered
by offset, so that a move of the high watermark touches only those it releases; a fetch session is
told by the partitions that change. V38: losing leadership answers everything waiting with
NOT_LEADER_OR_FOLLOWER; V64: an ISR confirmed below the minimum answers it with
NOT_ENOUGH_REPLICAS_AFTER_APPEND.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition


class WatchedReplica(Protocol):
    """The replica that is watched."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""

    @property
    def high_watermark(self) -> int:
        """The offset after the last record known as committed."""


class FetchWatcher(Protocol):
    """One partition of one fetch session."""

    def changed(self) -> None:
        """There may be something to send: look at the next fetch."""

    def readable(self) -> None:
        """There may be something to send: look now if a fetch waits."""


class AcksWait(Protocol):
    """One partition of a produce request that waits for the ISR, or of a DeleteRecords request
    that waits for all live replicas."""

    def acknowledged(self) -> None:
        """The high watermark has passed the batch; the low watermark has reached the offset."""

    def refused(self, error: ErrorCode, message: str) -> None:
        """It will not be known whether the batch is committed, or the records are gone."""


#: Of all replicas for whose acks nobody has waited so far: an empty deque takes 760 bytes.
_NOBODY: deque[tuple[int, AcksWait]] = deque(maxlen=0)


class PartitionWatchers:
    """Everything that waits on one hosted replica."""

    __slots__ = ("_acks", "_consumers", "_deletions", "_followers")

    def __init__(self) -> None:
        #: (first offset the high watermark must reach, who waits), rising in offset.
        self._acks = _NOBODY
        #: (offset that the low watermark must reach, who waits); few, in no order.
        self._deletions: list[tuple[int, AcksWait]] = []
        self._followers: dict[FetchWatcher, None] = {}
        self._consumers: dict[FetchWatcher, None] = {}

    @property
    def acks_waiting(self) -> int:
        """Produces that wait for the high watermark."""
        return len(self._acks)

    def wait_for_acks(self, offset: int, wait: AcksWait) -> None:
        """Tell `wait` when the high watermark reaches `offset`."""
        waiting = self._acks
        if waiting is _NOBODY:
            self._acks = waiting = deque()
        if waiting and waiting[-1][0] > offset:
            # A repeated batch waits for its original's offset, behind later ones (V38).
            waiting.append((offset, wait))
            self._acks = deque(sorted(waiting, key=lambda entry: entry[0]))
        else:
            waiting.append((offset, wait))

    @property
    def deletions_wait(self) -> bool:
        """Whether a move of the low watermark would be news to anyone."""
        return bool(self._deletions)

    def wait_for_low_watermark(self, offset: int, wait: AcksWait) -> None:
        """Tell `wait` when the low watermark reaches `offset`."""
        self._deletions.append((offset, wait))

    def give_up_deletion(self, wait: AcksWait) -> None:
        """Its time is over: tell it nothing any more."""
        self._deletions = [entry for entry in self._deletions if entry[1] is not wait]

    def watch(self, watcher: FetchWatcher, follower: bool) -> None:
        """Tell a fetch session's partition of changes until `unwatch`."""
        (self._followers if follower else self._consumers)[watcher] = None

    def unwatch(self, watcher: FetchWatcher) -> None:
        """Stop telling it; harmless when it was not watching."""
        self._followers.pop(watcher, None)
        self._consumers.pop(watcher, None)

    # called by the partition

    def high_watermark_moved(self, partition: WatchedReplica) -> None:
        """Acknowledge what is committed now; consumers may read further (V61: for a follower the
        high watermark alone does not end a waiting fetch)."""
        high_watermark = partition.high_watermark
        waiting = self._acks
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1].acknowledged()
        for watcher in list(self._consumers):
            watcher.readable()
        for watcher in self._followers:
            watcher.changed()

    def low_watermark_is(self, low_watermark: int) -> None:
        """Tell those whose records no live replica has any more."""
        done = [wait for offset, wait in self._deletions if offset <= low_watermark]
        if done:
            self._deletions = [one for one in self._deletions if one[0] > low_watermark]
            for wait in done:
                wait.acknowledged()

    def log_end_moved(self, partition: WatchedReplica) -> None:
        """Followers may read further."""
        for watcher in list(self._followers):
            watcher.readable()

    def isr_or_log_start_changed(self, partition: WatchedReplica) -> None:
        """The next answers carry the new log start offset."""
        for watcher in self._followers:
            watcher.changed()
        for watcher in self._consumers:
            watcher.changed()

    def leadership_lost(self, partition: WatchedReplica, error: ErrorCode) -> None:
        """Answer everything that waits (V38)."""
        gone = f"{partition.topic_partition} is not led by this broker any more"
        self._refuse_all(error, gone)
        deletions, self._deletions = self._deletions, []
        for _, wait in deletions:
            wait.refused(error, gone)
        for watcher in [*self._followers, *self._consumers]:
            watcher.readable()

    def isr_below_minimum(self, partition: WatchedReplica, message: str) -> None:
        """The confirmed ISR shrank below the effective minimum (V64)."""
        self._refuse_all(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, message)

    def _refuse_all(self, error: ErrorCode, message: str) -> None:
        waiting, self._acks = self._acks, _NOBODY
        for _, wait in waiting:
            wait.refused(error, message)
