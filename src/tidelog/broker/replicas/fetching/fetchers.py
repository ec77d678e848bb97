"""The fetchers of followers; each has one source broker and one fetch session (V66).

For each source broker there are `num.replica.fetchers` fetchers. A fetcher requests all its
partitions in one request. A request names only partitions whose fetch offset has changed since the
last request (KIP-227). The fetcher handles each response when it arrives: `replication.follower`
decides what to do, and records are appended to the log directly from the receive buffer. The
fetcher sends the next fetch before it does any other work, because produce requests with acks=all
wait for that fetch. A backoff, a slow append or a truncation delays only its own partition, which
leaves the session until it can be fetched again. The leader may hold a fetch while the fetcher
already has a new position to report. If the leader holds a fetch, the fetcher may send a second
fetch, which ends the held fetch. A fetcher identifies each partition by topic id and number (V23).
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidelog.broker.peers import PeerConnection
from tidelog.broker.replicas.fetching.followed_partition import FetchOrder, FollowedPartition
from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.core import protocol_level
from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.types import NO_LEADER, TopicId, TopicPartition
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tidelog.wire.registry import FETCH

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
    from tidelog.broker.server.timers import Timeout
    from tidelog.broker.services import Services
    from tidelog.replication.follower import FollowerReplica

_FULL_EPOCH = 0
_MAX_EPOCH = 0x7FFFFFFF
#: Maximum number of fetches in flight: a fetch that the leader holds, and a fetch that ends the
#: held fetch.
_MAX_IN_FLIGHT = 2
#: Maximum time in milliseconds that the next fetch waits for appends of the last response.
_BUSY_WAIT_MS = 20
#: Milliseconds after which a fetcher without partitions closes.
_EMPTY_MS = 1_000
#: Longest pause in milliseconds between two checks whether throttled partitions may be fetched, for
#: example because they are in sync by then.
_THROTTLE_LOOK_MS = 500
_FIRST_RETRY_MS = 20
_MAX_RETRY_MS = 250

_Key = tuple[TopicId, int]


class Fetchers:
    """All fetchers with which one broker copies the partitions that it follows."""

    def __init__(self, services: Services, throttles: ReplicationThrottles) -> None:
        self._services = services
        self._throttles = throttles
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._assigned: dict[TopicPartition, Fetcher] = {}
        throttles.fetch_again = self.throttle_changed

    def add(self, partitions: Iterable[Partition]) -> None:
        """Start to fetch for these followers; skip a follower whose leader is unknown."""
        touched: dict[Fetcher, None] = {}
        for partition in partitions:
            followership = partition.followership
            if followership is None or followership.leader == NO_LEADER:
                continue
            fetcher = self._fetcher(followership.leader, partition.topic_partition)
            self._assigned[partition.topic_partition] = fetcher
            fetcher.add(partition, followership)
            touched[fetcher] = None
        for fetcher in touched:
            fetcher.pump()

    def remove(self, partition: Partition) -> None:
        """Stop fetching for a partition; ignore its records in a response that arrives later."""
        fetcher = self._assigned.pop(partition.topic_partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
            if fetcher.is_empty:
                # The fetcher closes after a delay, because a new leader epoch removes all its
                # partitions and adds some again. If the fetcher closed at once, a new fetcher would
                # use the same connection. The first fetch of the new fetcher would have to wait for
                # the response to the last fetch of the closed fetcher.
                self._services.timers.after(_EMPTY_MS, lambda: self._close_empty(fetcher))

    def renew(self, partition: Partition) -> None:
        """Fetch a followed partition again, as its `flush.before.ack` may have changed (V69)."""
        fetcher = self._assigned.get(partition.topic_partition)
        if fetcher is not None:
            fetcher.renew(partition)

    def throttle_changed(self) -> None:
        """Fetch partitions that no longer wait, because the throttle's settings changed (R15)."""
        for fetcher in list(self._fetchers.values()):
            fetcher.throttle_changed()

    def throttled(self) -> list[Partition]:
        """Return the partitions that wait for the throttle."""
        return [each for fetcher in self._fetchers.values() for each in fetcher.throttled()]

    def _close_empty(self, fetcher: Fetcher) -> None:
        if fetcher.is_empty and self._fetchers.get(fetcher.key) is fetcher:
            del self._fetchers[fetcher.key]
            fetcher.close()

    def close(self) -> None:
        """Stop all fetching."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._assigned.clear()

    def _fetcher(self, leader: int, topic_partition: TopicPartition) -> Fetcher:
        name_hash = zlib.crc32(topic_partition.topic.encode())
        index = (31 * name_hash + topic_partition.partition) % (
            self._services.config.num_replica_fetchers
        )
        fetcher = self._fetchers.get((leader, index))
        if fetcher is None:
            fetcher = Fetcher(self._services, self._throttles, leader, index)
            self._fetchers[leader, index] = fetcher
        return fetcher


class Fetcher(FetchOrder):
    """The fetches from one source broker over one connection."""

    def __init__(
        self, services: Services, throttles: ReplicationThrottles, leader: int, index: int
    ) -> None:
        super().__init__()
        self._services = services
        self._throttles = throttles
        self.key = (leader, index)
        self._leader = leader
        self._purpose = f"fetcher-{index}"
        level = services.config.inter_broker_protocol_version
        self._version = protocol_level.request_versions(level).fetch
        self._followed: dict[_Key, FollowedPartition] = {}
        #: The throttle's `hold_number`, and whether its rate was exceeded, when `_throttle` last
        #: examined all partitions; only a change of this pair requires another examination. None
        #: while the throttle holds back no partition.
        self._held_under: tuple[int, bool] | None = None
        self._recovery: Timeout | None = None
        self._session_id = 0
        self._session_epoch = _FULL_EPOCH
        #: Whether the leader grants no session, so every fetch names all partitions.
        self._is_sessionless = False
        self._in_flight = 0
        #: Number of the last request; each partition in the session keeps the number of the last
        #: request that named it.
        self._sequence = 0
        #: Number of the current connection; responses on earlier connections are ignored.
        self._connection_number = 0
        self._failures = 0
        self._wait: Timeout | None = None
        self._is_pausing = False
        self._closed = False

    @property
    def is_empty(self) -> bool:
        """Whether the fetcher has no partition."""
        return not self._followed

    def add(self, partition: Partition, role: FollowerReplica) -> None:
        """Start to fetch for a follower from its position; `pump` sends the request."""
        key = (partition.topic_id, partition.topic_partition.partition)
        earlier = self._followed.get(key)
        if earlier is not None:
            earlier.end()
            self.not_ready(earlier)
        followed = FollowedPartition(self._services, self, key, partition, role)
        self._followed[key] = followed
        followed.begin()

    def remove(self, partition: Partition) -> None:
        """Stop fetching for a partition."""
        key = (partition.topic_id, partition.topic_partition.partition)
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.end()
            self.not_ready(followed)

    def renew(self, partition: Partition) -> None:
        """Fetch a partition again, although the session knows its position (V69)."""
        followed = self._followed.get((partition.topic_id, partition.topic_partition.partition))
        if followed is not None:
            followed.renew()

    def throttled(self) -> list[Partition]:
        """Return the partitions that wait for the throttle."""
        return [followed.partition for followed in self._throttled]

    def close(self) -> None:
        """Close the fetcher; ignore the responses in flight."""
        self._closed = True
        self._connection_number += 1
        for followed in self._followed.values():
            followed.end()
        self._followed.clear()
        self._changed.clear()
        self._appending.clear()
        self._throttled.clear()
        if self._wait is not None:
            self._wait.cancel()
        if self._recovery is not None:
            self._recovery.cancel()

    def append_done(self, followed: FollowedPartition) -> None:
        """Note that a slow append has ended, so the partition may be ready for a fetch."""
        self._appending.pop(followed, None)
        if self._wait is None or not self._appending:
            self._stop_waiting()
            self.pump()

    # sending

    def pump(self) -> None:
        """Send the next fetch if partitions to fetch have changed, or if no fetch is in flight."""
        if self._closed or self._is_pausing or not self._followed:
            return
        if self._throttles.may_hold_fetches or self._throttled:
            self._throttle()
        has_news = bool(self._changed or self._forgotten)
        if self._in_flight >= (_MAX_IN_FLIGHT if has_news else 1):
            return
        if self._in_flight and self._session_epoch == _FULL_EPOCH:
            return
        if not self._changed and not self._in_session:
            return  # no partition can be fetched now
        self._send()

    def _throttle(self) -> None:
        """Skip partitions that must wait, and fetch partitions that need no longer wait (R15).

        A partition with a new position may have to wait for the throttle. A partition in the
        session may have to wait whenever the throttle's rate is exceeded again, its reassignment
        pauses, or the settings change. A partition does not wait while a response with its records
        is on the way.
        """
        if not self._throttles.holds_fetches:
            self._held_under = None
            self._unthrottle(list(self._throttled))
            return
        looked_at: Iterable[FollowedPartition] = self._changed
        held_under = (self._throttles.hold_number, self._throttles.follower_is_exceeded())
        if held_under != self._held_under and not self._in_flight:
            self._held_under = held_under
            looked_at = [each for each in self._followed.values() if each.is_ready]
        for followed in list(looked_at):
            if self._throttles.waits(followed.partition):
                self.not_ready(followed)
                self._throttled[followed] = None
        if self._throttled and self._recovery is None:
            delay_ms = _THROTTLE_LOOK_MS
            if self._throttles.follower_is_exceeded():
                delay_ms = min(self._throttles.follower_recovers_in_ms(), delay_ms)
            self._recovery = self._services.timers.after(delay_ms, self.throttle_changed)

    def throttle_changed(self) -> None:
        """Check whether throttled partitions may be fetched: rate, ISR or settings have changed."""
        self._held_under = None
        if self._recovery is not None:
            self._recovery.cancel()
            self._recovery = None
        self._unthrottle(
            [each for each in self._throttled if not self._throttles.waits(each.partition)]
        )
        self.pump()

    def _unthrottle(self, waited: list[FollowedPartition]) -> None:
        """Put the waiting partitions first in the next fetch, the longest waiting partition first.

        The leader reads partitions in the order of the request while the response has room.
        """
        waited.sort(key=lambda followed: followed.read_in)
        for followed in waited:
            del self._throttled[followed]
        self._changed = {**dict.fromkeys(waited), **self._changed}

    def _send(self) -> None:
        services = self._services
        try:
            connection = services.peers.connection(self._leader, self._purpose)
        except ConnectionLost as error:
            self._failed(str(error))
            return
        self._sequence += 1
        request = self._request()
        self._in_flight += 1
        number, sequence = self._connection_number, self._sequence
        connection.send(
            FETCH,
            self._version,
            request,
            services.config.replica_socket_timeout_ms,
            lambda answer, error: self._answered(number, sequence, connection, answer, error),
        )

    def _request(self) -> FetchRequest:
        config = self._services.config
        is_full = self._session_epoch == _FULL_EPOCH
        if is_full:
            self._forgotten.clear()
        topics: dict[TopicId, FetchTopic] = {}
        changed, self._changed = self._changed, {}
        now_ms = self._services.clock.monotonic_ms()
        for followed in changed:
            topic_id = followed.key[0]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            role = followed.role
            position = followed.sent_position = role.position
            followed.sent_log_start = role.log_start_offset
            if not followed.sent_in:
                self._in_session += 1
            followed.sent_in, followed.sent_ms = self._sequence, now_ms
            self._forgotten.pop(followed.key, None)
            topic.partitions.append(
                FetchPartition(
                    partition=followed.key[1],
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=role.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                    is_synced=followed.is_synced,
                )
            )
        request = FetchRequest(
            replica_state=ReplicaState(
                self._services.broker_id, self._services.identity.fetching_epoch
            ),
            # The first fetch only creates the session; if the leader held the first fetch, later
            # fetches would have to wait.
            max_wait_ms=0
            if is_full and not self._is_sessionless
            else config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
        )
        if self._forgotten:
            forgotten: dict[TopicId, list[int]] = {}
            for topic_id, number in self._forgotten:
                forgotten.setdefault(topic_id, []).append(number)
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in forgotten.items()
            ]
            self._forgotten.clear()
        if not is_full:
            self._session_epoch = (
                1 if self._session_epoch == _MAX_EPOCH else self._session_epoch + 1
            )
        return request

    # responses

    def _answered(
        self,
        number: int,
        sequence: int,
        connection: PeerConnection,
        answer: Any,
        error: Exception | None,
    ) -> None:
        if self._closed or number != self._connection_number:
            if error is None:
                self._services.tracer.mark("fetch_answer_of_earlier_connection")
            return
        self._in_flight -= 1
        if error is not None:
            self._failed(str(error))
            return
        response: FetchResponse = answer
        if response.error_code:
            self._session_refused(response.error_code)
            return
        self._failures = 0
        if self._session_epoch == _FULL_EPOCH:
            self._session_made(response.session_id)
        elif response.session_id != self._session_id:
            self._session_refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        if response.responses:
            self._handle(sequence, connection, response)
        if self._is_sessionless:
            self._name_all_again()
        self._go_on()

    def _handle(self, sequence: int, connection: PeerConnection, response: FetchResponse) -> None:
        keep = False
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                # If a later request named the partition again, this response is for an earlier
                # position: its bytes count, but its records are ignored.
                if followed is not None and data.records:
                    self._throttles.received(followed.partition, len(data.records))
                    followed.partition.received(len(data.records))
                    followed.read_in = sequence
                if followed is not None and 0 < followed.sent_in <= sequence:
                    keep = followed.answered(data) or keep
                else:
                    self._services.tracer.mark("fetch_answer_overtaken")
        if keep:
            connection.keep_frames()

    def _go_on(self) -> None:
        """Send the next fetch, but wait briefly for appends that are almost done."""
        if not self._appending:
            self.pump()
        elif self._wait is None:
            self._wait = self._services.timers.after(_BUSY_WAIT_MS, self._waited)

    def _waited(self) -> None:
        """Send the next fetch without the partitions whose appends have not ended (V66)."""
        self._wait = None
        for followed in list(self._appending):
            self.not_ready(followed)
        self.pump()

    def _stop_waiting(self) -> None:
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None

    # session and connection

    def _session_made(self, session_id: int) -> None:
        """Use the session that the leader granted; id 0 means that every fetch is a full fetch."""
        self._session_id = session_id
        self._is_sessionless = not session_id
        if session_id:
            self._session_epoch = 1

    def _session_refused(self, error_code: int) -> None:
        """Begin a new session, because the leader does not have the current session (KIP-227)."""
        self._services.tracer.mark("fetch_session_lost")
        self._services.tracer.event("fetch_session_refused", leader=self._leader, error=error_code)
        self._failed(f"error {error_code} for the fetch session", is_session=True)

    def _name_all_again(self) -> None:
        self._changed = {
            followed: None for followed in self._followed.values() if followed.is_ready
        }
        for followed in self._followed.values():
            followed.sent_in = 0
        self._in_session = 0
        self._forgotten.clear()
        self._throttled.clear()
        self._held_under = None

    def _failed(self, why: str, is_session: bool = False) -> None:
        """Begin again with a full fetch after a growing pause; ignore the requests in flight.

        `is_session` means that the leader refused the current session.
        """
        services = self._services
        self._connection_number += 1
        self._in_flight = 0
        if not is_session:
            self._session_id = 0
        self._session_epoch = _FULL_EPOCH
        self._is_sessionless = False
        self._name_all_again()
        services.tracer.log(
            "server", logging.DEBUG, f"fetching from broker {self._leader} failed: {why}"
        )
        delay_ms = min(_FIRST_RETRY_MS << min(self._failures, 10), _MAX_RETRY_MS)
        self._failures += 1
        self._is_pausing = True
        services.timers.after(delay_ms, self._paused)

    def _paused(self) -> None:
        self._is_pausing = False
        self.pump()
