"""Routing and retries of requests to any broker, the controller, or a partition's leader.

`ClusterRouter` holds the last metadata. A retriable failure invalidates the metadata, so that the
next try reads it again. Metadata requests go to every known broker and every bootstrap address in
turn. A partitioned broker may respond with old metadata, so the router keeps the latest leader
epoch of each partition in any response (KIP-320). A reader thus never returns from a new leader to
the former leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from tidelog.client.cluster import BrokerNode, ClusterMetadata, TopicMetadata
from tidelog.client.retries import Patience, given_up
from tidelog.client.steps import Address, Call, NotSent, Operation, Pause, Response, T, always
from tidelog.client.versions import error_code
from tidelog.core.errors import (
    ConnectionLost,
    ErrorCode,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    TidelogError,
)
from tidelog.core.types import NO_LEADER, ZERO_TOPIC_ID, TopicPartition
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.registry import METADATA

#: Timeout in ms of one Metadata request: several brokers are tried in turn, and no broker may use
#: up the whole time.
METADATA_CALL_MS = 5_000
#: Metadata requests must not create topics, and allow_auto_topic_creation exists only from version
#: 4. Every supported broker serves version 4 of Metadata.
_NO_AUTO_CREATION_VERSION = 4


class ClusterRouter:
    """Metadata kept between operations, and routes to leaders and the controller."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        timeout_ms: int,
        now_ms: Callable[[], int],
        *,
        saves_time: bool = False,
    ) -> None:
        """Create a router without metadata.

        With `saves_time`, a Metadata request takes at most half of the remaining time if further
        addresses remain, so that a broker that hangs leaves time for the other addresses.
        """
        self._bootstrap = tuple(bootstrap)
        self.timeout_ms = timeout_ms
        self._saves_time = saves_time
        self._now_ms = now_ms
        self._brokers: dict[int, BrokerNode] = {}
        self._seen: dict[Address, None] = {}
        self._topics: dict[str, TopicMetadata] = {}
        #: Each topic in its latest known state. `forget` does not clear these topics, because their
        #: leader epochs expose outdated responses.
        self._latest: dict[str, TopicMetadata] = {}
        self._controller_id = -1
        self._last_asked: Address | None = None

    # -- trying again ---------------------------------------------------------------------------

    def patience(self, timeout_ms: int | None = None) -> Patience:
        """Return the deadline and pauses of one operation."""
        return Patience(self._now_ms, self.timeout_ms if timeout_ms is None else timeout_ms)

    def repeat(
        self, what: str, attempt: Callable[[Patience], Operation[T]], timeout_ms: int | None = None
    ) -> Operation[T]:
        """Repeat `attempt` until it succeeds or time is over; invalidate metadata between tries.

        Raises the last error; its message has `what` and the time spent.
        """
        patience = self.patience(timeout_ms)
        while True:
            try:
                return (yield from attempt(patience))
            except TidelogError as error:
                pause_ms = patience.pause_after(error)
                if pause_ms is None:
                    raise given_up(what, error, patience) from error
            self.forget()
            yield Pause(pause_ms)

    def forget(self) -> None:
        """Forget brokers, leaders and the controller; the next operation reads new metadata."""
        self._topics.clear()
        self._brokers = {}
        self._controller_id = -1

    def learn(self, other: ClusterRouter) -> None:
        """Add the brokers that another router knows."""
        self._seen = {**other._seen, **self._seen}

    # -- metadata -------------------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None) -> Operation[ClusterMetadata]:
        """Read brokers, the controller and the named topics (None for all) from any broker.

        The request creates no topic. Errors of single topics and partitions are not raised: the
        result has them. Raises NotSent or RequestTimeout with every tried address if no broker
        responds in time.
        """
        return self.repeat("reading metadata", lambda patience: self._ask(topics, patience))

    def _ask(self, topics: Sequence[str] | None, patience: Patience) -> Operation[ClusterMetadata]:
        failures: list[TidelogError] = []
        outdated: ClusterMetadata | None = None
        addresses = self._addresses()
        for address in addresses:
            left_ms = patience.remaining_ms
            if self._saves_time and address != addresses[-1]:
                left_ms //= 2
            call = Call(
                address,
                METADATA,
                lambda version: _metadata_request(topics, version),
                timeout_ms=max(1, min(METADATA_CALL_MS, left_ms)),
            )
            try:
                answer = yield call
            except (ConnectionLost, RequestTimeout, ProtocolError) as error:
                failures.append(error)
                self._last_asked = None
                continue
            cluster = ClusterMetadata.from_response(answer.message)
            if any(map(self._is_outdated, cluster.topics.values())):
                outdated = cluster
                self._last_asked = None
                continue
            self._last_asked = address
            return self._keep(cluster)
        if outdated is not None:
            return self._keep(outdated)
        reasons = "; ".join(str(failure) for failure in failures)
        if all(isinstance(failure, ProtocolError) for failure in failures):
            raise ProtocolError(reasons)  # a retry gives the same error
        raise NotSent(f"no broker answers: {reasons}")

    def metadata_at(
        self, node: BrokerNode, topics: Sequence[str], patience: Patience
    ) -> Operation[ClusterMetadata]:
        """Return one broker's metadata of some topics; the router does not keep it."""
        answer = yield Call(
            node.address,
            METADATA,
            lambda version: _metadata_request(topics, version),
            timeout_ms=max(1, min(METADATA_CALL_MS, patience.remaining_ms)),
        )
        return ClusterMetadata.from_response(expect(answer, MetadataResponse))

    def _addresses(self) -> list[Address]:
        """Return the addresses to try: the last broker asked, known brokers, then bootstrap."""
        candidates = [] if self._last_asked is None else [self._last_asked]
        return list(dict.fromkeys([*candidates, *self._seen, *self._bootstrap]))

    def _keep(self, cluster: ClusterMetadata) -> ClusterMetadata:
        self._brokers = cluster.brokers
        self._seen = dict.fromkeys(broker.address for broker in cluster.brokers.values())
        self._controller_id = cluster.controller_id
        for name, topic in cluster.topics.items():
            if topic.error is ErrorCode.NONE:
                self._topics[name] = self._latest[name] = self._at_latest_epochs(topic)
            else:
                self._topics[name] = topic
        return cluster

    def _is_outdated(self, received: TopicMetadata) -> bool:
        return self._at_latest_epochs(received) is not received

    def _at_latest_epochs(self, received: TopicMetadata) -> TopicMetadata:
        """Return the topic, with the newest known state of each partition by leader epoch.

        Without topic ids, the topic is returned unchanged: it may have been recreated, with lower
        leader epochs.
        """
        known = self._latest.get(received.name)
        if (
            known is None
            or received.topic_id != known.topic_id
            or received.topic_id == ZERO_TOPIC_ID
        ):
            return received
        later = {
            number: partition
            for number, partition in known.partitions.items()
            if number in received.partitions
            and 0 <= received.partitions[number].leader_epoch < partition.leader_epoch
        }
        return replace(received, partitions={**received.partitions, **later}) if later else received

    def topic(self, name: str, patience: Patience) -> Operation[TopicMetadata]:
        """Return one topic from kept or fresh metadata; raise the topic's error as KafkaError."""
        topic = self._topics.get(name)
        if topic is None or topic.error is not ErrorCode.NONE:
            yield from self._ask([name], patience)
            topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the metadata response lacks topic {name}"
            )
        if topic.error is not ErrorCode.NONE:
            raise KafkaError(topic.error, f"topic {name!r}: {_topic_hint(topic.error)}")
        return topic

    # -- brokers --------------------------------------------------------------------------------

    def leaders(
        self, partitions: Iterable[TopicPartition], patience: Patience
    ) -> Operation[dict[BrokerNode, list[TopicPartition]]]:
        """Return the partitions by leader; raise KafkaError if a partition has no leader."""
        wanted = list(partitions)
        unknown = [n for n in dict.fromkeys(tp.topic for tp in wanted) if n not in self._topics]
        if unknown:
            yield from self._ask(unknown, patience)
        by_leader: dict[BrokerNode, list[TopicPartition]] = {}
        for tp in wanted:
            topic = yield from self.topic(tp.topic, patience)
            by_leader.setdefault(self._leader(topic, tp), []).append(tp)
        return by_leader

    def leader(self, tp: TopicPartition, patience: Patience) -> Operation[BrokerNode]:
        """Return the leader of one partition; raise KafkaError if there is none."""
        topic = yield from self.topic(tp.topic, patience)
        return self._leader(topic, tp)

    def _leader(self, topic: TopicMetadata, tp: TopicPartition) -> BrokerNode:
        partition = topic.partitions.get(tp.partition)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {tp.topic!r} has no partition {tp.partition}; it has"
                f" {len(topic.partitions)}: 0 to {len(topic.partitions) - 1}",
            )
        leader = self._brokers.get(partition.leader)
        if partition.leader == NO_LEADER or leader is None:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{tp} has no live leader; its replicas are {list(partition.replicas)}, in sync"
                f" were {list(partition.isr)}, live brokers are {list(self._brokers)}",
            )
        return leader

    def controller(self, patience: Patience) -> Operation[BrokerNode]:
        """Return the controller; raise KafkaError NOT_CONTROLLER while none is known."""
        if self._controller_id not in self._brokers:
            yield from self._ask([], patience)
        node = self._brokers.get(self._controller_id)
        if node is None:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER,
                f"the cluster has no controller now; live brokers are {list(self._brokers)}",
            )
        return node

    def any_broker(self, patience: Patience) -> Operation[BrokerNode]:
        """Return the live broker with the lowest id."""
        if not self._brokers:
            yield from self._ask([], patience)
        for node in self._brokers.values():
            return node
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no live broker")

    def broker(self, broker_id: int, patience: Patience) -> Operation[BrokerNode]:
        """Return a live broker by its id; raise KafkaError BROKER_NOT_AVAILABLE if it is dead."""
        if broker_id not in self._brokers:
            yield from self._ask([], patience)
        node = self._brokers.get(broker_id)
        if node is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"there is no live broker {broker_id}; live brokers are {list(self._brokers)}",
            )
        return node

    def all_brokers(self, patience: Patience) -> Operation[list[BrokerNode]]:
        """Return all live brokers from fresh metadata."""
        metadata = yield from self._ask([], patience)
        return list(metadata.brokers.values())

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic whose metadata is kept."""
        return self._topics[name].topic_id

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return a partition's leader epoch in the kept metadata; it fences stale leaders."""
        return self._topics[tp.topic].partitions[tp.partition].leader_epoch


def _topic_hint(error: ErrorCode) -> str:
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "there is no such topic"
    if error is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return "not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -, not . or .."
    if error is ErrorCode.LEADER_NOT_AVAILABLE:
        return "its leaders are being elected"
    return "metadata cannot be read"


def _metadata_request(topics: Sequence[str] | None, version: int) -> Any:
    if version < _NO_AUTO_CREATION_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Metadata {version} creates topics that are only looked at; version"
            f" {_NO_AUTO_CREATION_VERSION} or later is needed",
        )
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=False)


def ask(
    node: BrokerNode,
    api_key: int,
    message: Any,
    patience: Patience,
    response: type[T],
    timeout_ms: int | None = None,
    tolerated: Collection[ErrorCode] = (),
) -> Operation[T]:
    """Return a broker's response; raise KafkaError for an error of the whole response, unless it is
    a `tolerated` error.

    The broker must respond within `timeout_ms`, by default within the remaining time of `patience`.
    """
    wait_ms = max(1, patience.remaining_ms) if timeout_ms is None else timeout_ms
    found = expect((yield Call(node.address, api_key, always(message), wait_ms)), response)
    number = getattr(found, "error_code", 0)
    if number and number not in tolerated:
        reason = getattr(found, "error_message", None) or f"at {node.address}"
        raise KafkaError(error_code(number), reason)
    return found


def topics_of(
    partitions: Iterable[TopicPartition],
    topic: Callable[[str, list[Any]], T],
    entry: Callable[[TopicPartition], Any] = attrgetter("partition"),
) -> list[T]:
    """Return the topics of a request for `partitions`, each with its name and its partitions.

    `entry` makes a partition's entry in the message, by default the partition number.
    """
    found: dict[str, list[Any]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(entry(tp))
    return [topic(name, entries) for name, entries in found.items()]


def expect(answer: Response, message_type: type[T]) -> T:
    """Return the message of a response; raise ProtocolError for a message of an unexpected type."""
    if not isinstance(answer.message, message_type):
        got = type(answer.message).__name__
        raise ProtocolError(f"expected {message_type.__name__}, got {got}")
    return answer.message
