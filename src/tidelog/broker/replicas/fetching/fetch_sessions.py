"""Fetch sessions (KIP-227) and the fetches that wait on them.

A session remembers the partitions that one consumer or follower reads, so an incremental fetch
names only changed partitions. A changed partition enters its session's dirty list, and a fetch
examines only that list (DESIGN.md, rule 7). A fetch without a session uses a temporary session,
which ends after the response. The number of sessions and of their partitions is bounded. As in
Kafka, any session may evict a session that was unused for two minutes. If every session was used
recently, larger sessions evict smaller sessions. A follower's session (privileged) may evict any
consumer's session; a consumer's session never evicts a follower's session. A session to which
partitions are added evicts other sessions in the same way as a new session, and ends if there is
still no room. Kafka bounds only the number of sessions. `delayed_fetch` reads the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from tidelog.core import limits
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TopicId,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.replication.pending_reads import PendingReads

#: The session epoch of a full fetch that begins a session (KIP-227).
INITIAL_EPOCH = 0
#: The session epoch of a full fetch without a session (KIP-227).
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFFFFFF
#: Any session may evict another session that was unused for this many milliseconds.
EVICTION_MS = 120_000

#: The key of a partition in a session: (topic id or name, partition).
PartitionKey = tuple[TopicId | str, int]


class WaitingFetch(Protocol):
    """A session's fetch that waits for more records to send."""

    def partition_readable(self, partition: SessionPartition) -> None:
        """Examine a partition of the session that has changed."""

    def abandoned(self) -> None:
        """Respond without data, because a later fetch of the session has arrived."""


class SessionPartition:
    """One partition of a session.

    It is a `FetchWatcher`: the replica that the session reads informs it of changes.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "is_synced",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "seen_bytes",
        "seen_segment",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "topic_partition",
        "watched",
    )

    def __init__(self, session: FetchSession, key: PartitionKey, topic: str | None) -> None:
        self.session = session
        self.key = key
        #: The partition's name; None while this broker does not know the topic id.
        self.topic_partition = None if topic is None else TopicPartition(topic, key[1])
        self.fetch_offset = 0
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        #: Whether the follower has synced its log up to `fetch_offset` (V69).
        self.is_synced = False
        self.max_bytes = 0
        self.current_leader_epoch = -1
        #: The high watermark in the last response; a partition without records counts as unchanged
        #: while its high watermark and its log start are those of the last response (V61).
        self.sent_high_watermark = -1
        #: The log start offset in the last response.
        self.sent_log_start_offset = -1
        self.watched: Partition | None = None
        #: Base offset of the segment in which the readable part of the log ended when a waiting
        #: fetch last examined the partition (`fetch_growth`).
        self.seen_segment = -1
        #: Bytes of the readable part in the segment `seen_segment`, at the same examination.
        self.seen_bytes = 0

    def watch(self, partition: Partition) -> None:
        """Watch for changes of `partition`, and of no other partition."""
        if self.watched is not partition:
            self.unwatch()
            self.watched = partition
            partition.watchers.watch(self, self.session.replica_id >= 0)

    def unwatch(self) -> None:
        """Stop watching the partition."""
        watched = self.watched
        if watched is not None:
            watched.watchers.unwatch(self)
            reads = self.session.reads
            if reads is not None and reads.is_watched and watched.leadership is not None:
                watched.leadership.reads_forgotten(self.session.replica_id, reads)
            self.watched = None

    def changed(self) -> None:
        """Mark the partition for the next fetch, because its response may change."""
        self.session.dirty[self] = None
        watched = self.watched
        if watched is not None and self.fetch_offset < watched.log.log_start_offset:
            self.look_again()  # records at the fetch offset are deleted: respond now

    def readable(self) -> None:
        """Make a waiting fetch examine the partition now, because more records may be readable."""
        session = self.session
        session.dirty[self] = None
        wait = session.waiting
        if wait is not None:
            wait.partition_readable(self)

    def look_again(self) -> None:
        """Make a waiting fetch examine the partition now, even if few or no records arrived."""
        self.seen_segment = -1
        self.readable()

    def offset_went_back(self) -> None:
        """Mark the follower's other sessions as outdated: this session has a lower fetch offset."""
        if self.watched is not None:
            for other in self.watched.watchers.followers:
                if (
                    isinstance(other, SessionPartition)
                    and other is not self
                    and other.session.replica_id == self.session.replica_id
                ):
                    other.session.is_outdated = True


class FetchSession:
    """The partitions that one reader (a follower or consumer) fetches."""

    __slots__ = (
        "broker_epoch",
        "dirty",
        "epoch",
        "is_outdated",
        "isolation_level",
        "last_used_ms",
        "partitions",
        "reads",
        "replica_id",
        "session_id",
        "throttled",
        "throttled_under",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(
        self,
        replica_id: int,
        uses_topic_ids: bool,
        now_ms: int,
        reads: PendingReads | None = None,
    ) -> None:
        #: Id of the session; 0 while the session is not in the cache.
        self.session_id = 0
        #: The epoch that the next incremental fetch must carry.
        self.epoch = 1
        self.replica_id = replica_id
        #: The broker epoch in the follower's last fetch; -1 if the follower sends none.
        self.broker_epoch = NO_BROKER_EPOCH
        self.uses_topic_ids = uses_topic_ids
        #: Whether the follower has sent, in another session, a lower fetch offset than in this
        #: session. An outdated session requires a full fetch next, which reports the follower's
        #: current log end.
        self.is_outdated = False
        #: The isolation level of a consumer's last fetch; a follower always reads up to the log
        #: end.
        self.isolation_level = READ_UNCOMMITTED
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.dirty: dict[SessionPartition, None] = {}
        #: Partitions with records for a follower that the throttle holds back (R15).
        self.throttled: dict[SessionPartition, None] = {}
        #: Version number of the throttle settings (`settings_number`) when the partitions in
        #: `throttled` began to wait.
        self.throttled_under = 0
        self.waiting: WaitingFetch | None = None
        #: The pending reads for a follower; None for a consumer (F5).
        self.reads = reads

    def end_offset(self, partition: Partition) -> int:
        """Return the offset after the last record that the reader may see."""
        if self.replica_id >= 0:
            return partition.log.log_end_offset
        if self.isolation_level == READ_COMMITTED:
            return partition.last_stable_offset
        return partition.high_watermark

    def remove(self, key: PartitionKey) -> SessionPartition | None:
        """Remove one partition; return it if the session had it."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.unwatch()
            self.dirty.pop(partition, None)
            self.throttled.pop(partition, None)
        return partition

    def throttle(self, partition: SessionPartition) -> None:
        """Skip a partition until `unthrottle`; put it behind partitions skipped before (R15)."""
        self.throttled.setdefault(partition)

    def unthrottle(self) -> None:
        """Let the fetch examine the throttled partitions before all other partitions (R15)."""
        if self.throttled:
            waiting, self.throttled = self.throttled, {}
            self.dirty = {**waiting, **self.dirty}

    def next_epoch(self) -> None:
        """Advance to the epoch of the next incremental fetch; 0 is skipped after an overflow."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def close(self) -> None:
        """Stop watching all partitions; let a waiting fetch respond without data."""
        for partition in self.partitions.values():
            partition.unwatch()
        self.partitions.clear()
        self.dirty.clear()
        self.throttled.clear()
        wait, self.waiting = self.waiting, None
        if wait is not None:
            wait.abandoned()


class FetchSessions:
    """All fetch sessions of one broker, by id, within their limits."""

    def __init__(
        self,
        max_sessions: int = limits.MAX_FETCH_SESSIONS,
        max_partitions: int = limits.MAX_FETCH_SESSION_PARTITIONS,
    ) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._sessions: dict[int, FetchSession] = {}
        self.partitions_total = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session of this id, None if there is none."""
        return self._sessions.get(session_id)

    def all(self) -> list[FetchSession]:
        """Return every session."""
        return list(self._sessions.values())

    def partitions(self, session_id: int) -> list[TopicPartition]:
        """Return a session's partitions, except those whose topic name is unknown."""
        session = self._sessions.get(session_id)
        partitions = () if session is None else session.partitions.values()
        return [
            partition.topic_partition
            for partition in partitions
            if partition.topic_partition is not None
        ]

    def add(self, session: FetchSession, session_id: int, now_ms: int) -> bool:
        """Add a session under an unused id; return False if the cache has no room."""
        size = len(session.partitions)
        if size > self._max_partitions or session_id in self._sessions:
            return False
        while (
            len(self._sessions) >= self._max_sessions
            or self.partitions_total + size > self._max_partitions
        ):
            if not self._evict(session, now_ms):
                return False
        session.session_id = session_id
        self._sessions[session_id] = session
        self.partitions_total += size
        return True

    def resized(self, session: FetchSession, size_before: int, now_ms: int) -> bool:
        """Account for partitions that an incremental fetch added or removed.

        Returns False if the added partitions do not fit even after other sessions were evicted; the
        session has ended in that case.
        """
        size = len(session.partitions)
        self.partitions_total += size - size_before
        while self.partitions_total > self._max_partitions:
            if size > self._max_partitions or not self._evict(session, now_ms):
                self.evictions += 1
                self.remove(session.session_id)
                return False
        return True

    def remove(self, session_id: int) -> None:
        """End a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions_total -= len(session.partitions)
            session.close()

    def close(self) -> None:
        """End all sessions."""
        for session_id in list(self._sessions):
            self.remove(session_id)

    def _evict(self, newcomer: FetchSession, now_ms: int) -> bool:
        """Evict a session in favour of `newcomer`; return False if none may be evicted."""
        victim = self._evictable(newcomer, now_ms)
        if victim is None:
            return False
        self.evictions += 1
        self.remove(victim.session_id)
        return True

    def _evictable(self, newcomer: FetchSession, now_ms: int) -> FetchSession | None:
        """Return a session that `newcomer`, just used, may evict; None if there is none."""
        privileged = newcomer.replica_id >= 0
        candidates: Iterable[FetchSession] = self._sessions.values()
        oldest = min(candidates, key=lambda session: session.last_used_ms, default=None)
        if oldest is not None and now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        smaller = [
            session
            for session in self._sessions.values()
            if (session.replica_id < 0 or privileged)
            and (
                (privileged and session.replica_id < 0)
                or len(session.partitions) < len(newcomer.partitions)
            )
        ]
        return min(smaller, key=lambda session: len(session.partitions), default=None)
