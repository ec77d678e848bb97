"""Checks of brokers' responses to clients, by the frames on the brokers' connections (V47, V83).

A broker that resumes after a pause beyond its session timeout must not respond to clients before
the store has confirmed its session (V47). `AnswerChecker` matches each response with its request,
and does not use the broker's own knowledge of its session. The session counts as confirmed when the
store has responded to a request that the broker sent after its pause.

A Metadata or FindCoordinator response that waits for the next leader never waits longer than
`metadata.leader.wait.max.ms` (V83). The response must name the leaders that the broker knows when
it sends the response. A response may wait only if the process of a requested partition's leader has
ended, or if the store has a newer leader epoch than the broker. `LeaderWaitChecker` checks only
responses on connections that had no other open request, and only if the broker already knew the
cluster when the request arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog.broker.cluster_view import ClusterView, PartitionView
from tidelog.core.config import BrokerConfig
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import TopicPartition
from tidelog.sim.broker_settings import OFFSETS_PARTITIONS
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_connections import ConnectionEnd
from tidelog.wire import registry as apis
from tidelog.wire.codec import decode_request, decode_response
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.registry import API, FIND_COORDINATOR, METADATA

#: APIs to which a broker without a live session must not respond.
_GUARDED: Final = (
    apis.PRODUCE, apis.FETCH, apis.LIST_OFFSETS, apis.OFFSET_FOR_LEADER_EPOCH, apis.DELETE_RECORDS,
    apis.METADATA, apis.DESCRIBE_CLUSTER, apis.DESCRIBE_TOPIC_PARTITIONS, apis.FIND_COORDINATOR,
    apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.OFFSET_DELETE, apis.JOIN_GROUP, apis.HEARTBEAT,
    apis.LEAVE_GROUP, apis.SYNC_GROUP, apis.DESCRIBE_GROUPS, apis.LIST_GROUPS, apis.DELETE_GROUPS,
)  # fmt: skip
_KEY: Final = slice(0, 2)
_CORRELATION: Final = slice(4, 8)
_SIZE_BYTES: Final = 4
#: First version of FindCoordinator whose requests have several coordinator keys.
_KEYS_VERSION: Final = 4
#: Maximum time in ns until others notice that a broker's process has ended: clients by a refused
#: connection, within 10 s, and the controller after a session timeout.
_NOTICED_NS: Final = 12_000 * NS_PER_MS


class AnswerChecker(Checker):
    """Checker of brokers' responses after pauses; observes frames as a
    `sim_connections.FrameWatch`.
    """

    def __init__(self, run: CheckedRun, session_timeout_ms: int) -> None:
        """Begin to check; `session_timeout_ms` is the session timeout of all brokers."""
        super().__init__(run)
        self._timeout_ns = session_timeout_ms * NS_PER_MS
        self._paused_ns: dict[int, int] = {}
        #: By broker: the time, on the broker's own clock, at which it resumed after a pause longer
        #: than its session timeout. A broker is removed once the store has confirmed its session.
        self._resumed_ms: dict[int, int] = {}

    def _heard_ms(self, node_id: int) -> int | None:
        """Return when a broker sent the last request to which the store responded.

        The time is on the broker's own clock. Returns None for a node that is no running broker.
        """
        broker = self._brokers.get(node_id)
        return None if broker is None or broker.store is None else broker.store.heard_ms

    def noted(self, node_id: int, kind: str, _: str) -> None:
        """Follow a line of the run's trace, to learn of pauses and deaths of brokers."""
        if kind == "pause":
            self._paused_ns[node_id] = self._now_ns()
        elif kind == "resume":
            pause_ns = self._now_ns() - self._paused_ns.pop(node_id)
            if pause_ns >= self._timeout_ns and self._heard_ms(node_id) is not None:
                self._resumed_ms[node_id] = self._clock_ms(node_id)
        elif kind == "death":
            self._paused_ns.pop(node_id, None)
            self._resumed_ms.pop(node_id, None)

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Note the API of each request that arrived."""
        for frame in frames:
            endpoint.asked[bytes(frame[_CORRELATION])] = int.from_bytes(frame[_KEY], "big")

    def sent(self, endpoint: ConnectionEnd, frame: bytes) -> None:
        """Check a response that the broker sends; `frame` begins with its size."""
        key = endpoint.asked.pop(frame[_CORRELATION], None)
        node_id = endpoint.process.node_id
        resumed_ms = self._resumed_ms.get(node_id)
        if resumed_ms is None:
            return
        heard_ms = self._heard_ms(node_id)
        if heard_ms is not None and heard_ms >= resumed_ms:
            del self._resumed_ms[node_id]
        elif key in _GUARDED:
            name = apis.API[key].name
            self._violate(
                f"broker {node_id} responded to {name} after a pause beyond its session, before the"
                " store had confirmed that (V47)"
            )


class _Asked(NamedTuple):
    """A Metadata or FindCoordinator request that has no response yet."""

    key: int
    version: int
    #: Time at which the request arrived, on the broker's own clock.
    arrived_ms: int
    #: Leaders that the broker knew when the request arrived.
    leaders: frozenset[int]
    #: Whether the store has a later leader epoch of a requested partition than the broker knew.
    is_behind: bool
    message: Any


class LeaderWaitChecker(Checker):
    """Checker of responses that wait for the next leader; observes frames as a `FrameWatch`."""

    def __init__(self, run: CheckedRun, config: BrokerConfig) -> None:
        """Begin to check brokers with the configuration `config`."""
        super().__init__(run)
        self._max_ms = config.metadata_leader_wait_max_ms
        #: Time at which each broker's process ended last.
        self._ended_ns: dict[int, int] = {}
        #: Open requests by connection and correlation id; None for a request that is not checked.
        self._under_way: dict[ConnectionEnd, dict[bytes, _Asked | None]] = {}

    def died(self, node_id: int) -> None:
        """Note that a broker's process has ended."""
        self._ended_ns[node_id] = self._now_ns()

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Note the requests that arrived."""
        under_way = self._under_way.setdefault(endpoint, {})
        for frame in frames:
            key = int.from_bytes(frame[_KEY], "big")
            asked = None
            if key in (METADATA, FIND_COORDINATOR) and not under_way and len(frames) == 1:
                asked = self._asked(endpoint.process.node_id, frame)
            under_way[bytes(frame[_CORRELATION])] = asked

    def _asked(self, node_id: int, frame: memoryview) -> _Asked | None:
        view = self._brokers[node_id].shown
        if view is None:
            return None
        header, message = decode_request(frame)
        named = _partitions(view, message, header.api_version)
        return _Asked(
            header.api_key,
            header.api_version,
            self._clock_ms(node_id),
            frozenset(partition.leader for partition in named.values()),
            any(self._is_behind(view, name, shown) for name, shown in named.items()),
            message,
        )

    def _is_behind(self, view: ClusterView, name: TopicPartition, shown: PartitionView) -> bool:
        key = LogKey(view.topics[name.topic].topic_id, name.partition)
        state = self._published.partitions.get(key)
        return state is not None and state.leader_epoch > shown.leader_epoch

    def sent(self, endpoint: ConnectionEnd, frame: bytes) -> None:
        """Check a response that the broker sends; `frame` begins with its size."""
        under_way = self._under_way.get(endpoint, {})
        asked = under_way.pop(frame[_CORRELATION], None)
        if asked is None:
            return
        node_id = endpoint.process.node_id
        waited_ms = self._clock_ms(node_id) - asked.arrived_ms
        name = f"broker {node_id}: a {API[asked.key].name} response"
        if waited_ms > self._max_ms:
            self._violate(f"{name} waited {waited_ms} ms, at most {self._max_ms} are allowed (V83)")
        if waited_ms > 0:
            self._check_reason(name, waited_ms, asked)
        _, message = decode_response(asked.key, asked.version, memoryview(frame)[_SIZE_BYTES:])
        view = self._brokers[node_id].shown
        if view is not None:
            self._check_fresh(name, view, asked, message)

    def _check_reason(self, name: str, waited_ms: int, asked: _Asked) -> None:
        since_ns = self._now_ns() - waited_ms * NS_PER_MS - _NOTICED_NS
        if asked.is_behind:
            return
        if not any(self._ended_ns.get(leader, -1) >= since_ns for leader in asked.leaders):
            self._violate(
                f"{name} waited {waited_ms} ms, and none of the leaders {sorted(asked.leaders)}"
                " has ended (V83)"
            )

    def _check_fresh(self, name: str, view: ClusterView, asked: _Asked, message: Any) -> None:
        """Check that the response to `asked` names the leaders that the broker knows now."""
        if isinstance(message, MetadataResponse):
            named = {
                TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
                for topic in message.topics
                for partition in topic.partitions
            }
        else:
            assert isinstance(message, FindCoordinatorResponse)
            if asked.version < _KEYS_VERSION:
                return
            named = {_owner(each.key): each.node_id for each in message.coordinators}
        for partition, leader in named.items():
            known = view.partition(partition)
            now = -1 if known is None or not view.is_alive(known.leader) else known.leader
            if leader != now:
                self._violate(
                    f"{name} names {leader} as leader of {partition} when it leaves; {now} is"
                    " published (V83)"
                )


def _partitions(
    view: ClusterView, message: Any, version: int
) -> dict[TopicPartition, PartitionView]:
    """Return the partitions whose leaders the response to a request would name."""
    if isinstance(message, FindCoordinatorRequest):
        keys = message.coordinator_keys if version >= _KEYS_VERSION else [message.key]
        owners = {_owner(key): view.partition(_owner(key)) for key in keys}
        return {name: owner for name, owner in owners.items() if owner is not None}
    assert isinstance(message, MetadataRequest)
    topics = list(view.topics.values())
    if message.topics is not None and (message.topics or version > 0):
        asked = {(topic.name or view.topic_name(topic.topic_id)) for topic in message.topics}
        topics = [topic for topic in topics if topic.name in asked]
    return {
        TopicPartition(topic.name, number): partition
        for topic in topics
        for number, partition in topic.partitions.items()
    }


def _owner(key: str) -> TopicPartition:
    return TopicPartition(CONSUMER_OFFSETS, coordinating_partition(key, OFFSETS_PARTITIONS))
