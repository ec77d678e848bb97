"""The leader's side of the replication throttle for the reads of one fetch (R15).

Partitions that the throttle skips wait in the session, so that later fetches need not examine each
of them. When the rate allows reads again, the fetch reads the skipped partitions first. A partition
that was read goes to the end of the queue, so all partitions get their turn. The bytes of a
response count against the throttle when the response is sent. While a fetch examines its session,
the bytes that the fetch has already read also count against the throttle, so only one read of the
fetch can exceed the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replicas.fetching.fetch_sessions import FetchSession, SessionPartition
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
    from tidelog.wire.messages.fetch import PartitionData


class ThrottledReads:
    """The replication throttle as it applies to one fetch session; it never delays a consumer's
    fetch.
    """

    __slots__ = ("_bytes", "_follower", "_is_active", "_session", "_throttles")

    def __init__(self, throttles: ReplicationThrottles, session: FetchSession) -> None:
        self._throttles = throttles
        self._session = session
        self._follower = session.replica_id
        #: Bytes of throttled partitions read in the current examination of the session.
        self._bytes = 0
        #: Whether any partition was throttled when the current examination began.
        self._is_active = False

    @property
    def waits(self) -> bool:
        """Whether the throttle skips partitions of this session that have records."""
        return bool(self._session.throttled)

    def recover_in_ms(self) -> int:
        """Return in how many milliseconds to examine the waiting partitions again."""
        return self._throttles.leader_recovers_in_ms()

    def begin_look(self) -> None:
        """Begin an examination of the session, in which waiting partitions may get their turn."""
        self._bytes = 0
        self._is_active = self._throttles.leader.is_active
        session, number = self._session, self._throttles.settings_number
        is_changed, session.throttled_under = session.throttled_under != number, number
        if session.throttled and (is_changed or not self._throttles.leader_is_exceeded()):
            session.unthrottle()

    def leaves_out(self, item: SessionPartition, partition: Partition) -> bool:
        """Return whether the throttle skips a partition; if so, queue it in the session."""
        if self._follower < 0:
            return False
        if self._is_active and self._throttles.leaves_out(partition, self._follower, self._bytes):
            self._session.throttle(item)
            return True
        if self._session.throttled:
            self._session.throttled.pop(item, None)
        return False

    def has_all(self, item: SessionPartition) -> None:
        """Remove a partition from the session's waiting partitions: its follower has all records.

        The partition may have begun to wait in a fetch that the follower sent before the records of
        the previous response had arrived.
        """
        if self._session.throttled:
            self._session.throttled.pop(item, None)

    def read(self, item: SessionPartition, size: int) -> None:
        """Note a read in the current examination of the session."""
        if self._is_active and self._follower >= 0 and self._is_throttled(item):
            self._bytes += size

    def sent(self, answers: Mapping[SessionPartition, PartitionData]) -> None:
        """Count the bytes of throttled partitions in a response that is sent now."""
        if self._follower < 0 or not self._throttles.leader.is_active:
            return
        total = out_of_sync = 0
        for item, answer in answers.items():
            if answer.records and item.watched is not None and self._is_throttled(item):
                size = len(answer.records)
                total += size
                if self._throttles.is_held_back(item.watched, self._follower):
                    out_of_sync += size
        if total:
            self._throttles.sent(total, out_of_sync)

    def _is_throttled(self, item: SessionPartition) -> bool:
        name = item.topic_partition
        return name is not None and self._throttles.leader.is_throttled(name)
