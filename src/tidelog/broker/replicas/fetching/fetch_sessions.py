"""Fetch sessions (KIP-227) and the fetches that wait on them.

A session remembers the partitions that one consumer or follower reads, so that an incremental fetch
names only changed ones. A partition that changes puts itself on its session's dirty list; a fetch
looks at that list and nothing else (DESIGN.md, rule 7). A fetch without a session uses a temporary
one, dropped after the response. Sessions are bounded in number and partitions. As in Kafka, a
session gives way that was unused for two minutes. Otherwise larger sessions evict smaller ones; a
follower's session (privileged) evicts any consumer's, never the reverse. A session that grows
evicts others by the same rules, or ends; Kafka bounds only the number of sessions. `delayed_fetch`
reads the partitions.
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

#: Session epochs (KIP-227).
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFFFFFF
#: A session unused for so long may be evicted by any other.
EVICTION_MS = 120_000

#: A partition of a session: (topic id or name, partition).
PartitionKey = tuple[TopicId | str, int]


class WaitingFetch(Protocol):
    """The fetch of a session that waits for more to send."""

    def partition_readable(self, partition: SessionPartition) -> None:
        """Look again at a partition of the session that has changed."""

    def abandoned(self) -> None:
        """Respond with nothing: the session goes on without this fetch."""


class SessionPartition:
    """One partition of a session: a FetchWatcher of the replica that it reads."""

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
        #: None while this broker does not know the topic id.
        self.topic_partition = None if topic is None else TopicPartition(topic, key[1])
        self.fetch_offset = 0
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        #: The follower has synced its log up to `fetch_offset` (V69).
        self.is_synced = False
        self.max_bytes = 0
        self.current_leader_epoch = -1
        #: The offsets in the last response, to recognize a repetition (V61).
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.watched: Partition | None = None
        #: Where the readable part of the log ended at the last look of a waiting fetch: base offset
        #: of the segment, and the bytes in it (`fetch_growth`).
        self.seen_segment = -1
        self.seen_bytes = 0

    def watch(self, partition: Partition) -> None:
        """Watch for changes of `partition`, and of no other."""
        if self.watched is not partition:
            self.unwatch()
            self.watched = partition
            partition.watchers.watch(self, self.session.replica_id >= 0)

    def unwatch(self) -> None:
        """Watch nothing any more."""
        watched = self.watched
        if watched is not None:
            watched.watchers.unwatch(self)
            reads = self.session.reads
            if reads is not None and reads.is_watched and watched.leadership is not None:
                watched.leadership.reads_forgotten(self.session.replica_id, reads)
            self.watched = None

    def changed(self) -> None:
        """FetchWatcher: mark the partition for the next fetch."""
        self.session.dirty[self] = None
        watched = self.watched
        if watched is not None and self.fetch_offset < watched.log.log_start_offset:
            self.look_again()  # the records are gone: the reader has to start elsewhere

    def readable(self) -> None:
        """FetchWatcher: look at the partition now if a fetch waits."""
        session = self.session
        session.dirty[self] = None
        wait = session.waiting
        if wait is not None:
            wait.partition_readable(self)

    def look_again(self) -> None:
        """FetchWatcher: look at the partition now, however little has come."""
        self.seen_segment = -1
        self.readable()

    def offset_went_back(self) -> None:
        """Outdate the other sessions of the follower: this one brought a lower fetch offset."""
        if self.watched is not None:
            for other in self.watched.watchers.followers:
                if (
                    isinstance(other, SessionPartition)
                    and other is not self
                    and other.session.replica_id == self.session.replica_id
                ):
                    other.session.is_outdated = True


class FetchSession:
    """The partitions of one reader."""

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
        #: 0 while it is not in the cache.
        self.session_id = 0
        #: The epoch that the next incremental fetch must carry.
        self.epoch = 1
        self.replica_id = replica_id
        #: The broker epoch in the follower's last fetch; -1 where the follower sends none.
        self.broker_epoch = NO_BROKER_EPOCH
        self.uses_topic_ids = uses_topic_ids
        #: Another session brought a lower offset of this follower: the next fetch must be a full
        #: one, which says where its log ends now.
        self.is_outdated = False
        #: The isolation level of a consumer's last fetch; a follower reads to the log end at any.
        self.isolation_level = READ_UNCOMMITTED
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.dirty: dict[SessionPartition, None] = {}
        #: Partitions with records for a follower that the throttle holds back (R15).
        self.throttled: dict[SessionPartition, None] = {}
        #: Number of the throttle's settings under which they wait.
        self.throttled_under = 0
        self.waiting: WaitingFetch | None = None
        #: The reads under way for a follower; None for a consumer (F5).
        self.reads = reads

    def end_offset(self, partition: Partition) -> int:
        """Return the offset after the last record that the reader may see."""
        if self.replica_id >= 0:
            return partition.log.log_end_offset
        if self.isolation_level == READ_COMMITTED:
            return partition.last_stable_offset
        return partition.high_watermark

    def remove(self, key: PartitionKey) -> SessionPartition | None:
        """Forget one partition; return it if it was there."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.unwatch()
            self.dirty.pop(partition, None)
            self.throttled.pop(partition, None)
        return partition

    def throttle(self, partition: SessionPartition) -> None:
        """Leave a partition out until `unthrottle`, behind those that wait already (R15)."""
        self.throttled.setdefault(partition)

    def unthrottle(self) -> None:
        """Look at the partitions that waited again, before all others: each has its turn (R15)."""
        if self.throttled:
            waiting, self.throttled = self.throttled, {}
            self.dirty = {**waiting, **self.dirty}

    def next_epoch(self) -> None:
        """Advance to the epoch of the next incremental fetch (0 is skipped when it wraps)."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def close(self) -> None:
        """Watch nothing; a waiting fetch responds with nothing."""
        for partition in self.partitions.values():
            partition.unwatch()
        self.partitions.clear()
        self.dirty.clear()
        self.throttled.clear()
        wait, self.waiting = self.waiting, None
        if wait is not None:
            wait.abandoned()


class FetchSessions:
    """The sessions of one broker."""

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
        """Return the session of this id."""
        return self._sessions.get(session_id)

    def all(self) -> list[FetchSession]:
        """Return every session."""
        return list(self._sessions.values())

    def topics(self, session_id: int) -> list[str]:
        """Return the topic of each partition of a session, as far as its name is known."""
        session = self._sessions.get(session_id)
        partitions = () if session is None else session.partitions.values()
        return [
            partition.topic_partition.topic
            for partition in partitions
            if partition.topic_partition is not None
        ]

    def add(self, session: FetchSession, session_id: int, now_ms: int) -> bool:
        """Keep a session under an unused id; return False where there is no room."""
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
        """Take account of partitions that an incremental fetch added or removed.

        Returns False where the added ones have no room, although other sessions were evicted: then
        the session has ended.
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
        """End a session; harmless when there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions_total -= len(session.partitions)
            session.close()

    def close(self) -> None:
        """End all sessions."""
        for session_id in list(self._sessions):
            self.remove(session_id)

    def _evict(self, newcomer: FetchSession, now_ms: int) -> bool:
        """Evict a session in favour of this one; return False where none may be evicted."""
        victim = self._evictable(newcomer, now_ms)
        if victim is None:
            return False
        self.evictions += 1
        self.remove(victim.session_id)
        return True

    def _evictable(self, newcomer: FetchSession, now_ms: int) -> FetchSession | None:
        """Return the session to evict; never the newcomer, which has just been used."""
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
