"""Churn of clients: producers and group members come and go, clients look for leaders and brokers.

All checkers of a run also check the operations of these clients.

One client keeps a connection to the leader of a partition. When this connection ends, the client at
once asks another broker for the leader. If the response names no other leader, the client asks
again only after a long time, as librdkafka does after a second. `checkers.answer_checker` checks
the responses (V83).

Another client knows only the brokers in its last Metadata response. Like librdkafka, this client
drops a broker that the response does not list, and drops its bootstrap addresses once it knows a
broker. After a Metadata response without brokers, the client could never ask any broker again, so
no broker may send such a response. The topic `steady` exists all the time, so no broker may respond
that this topic is unknown.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import ClassVar, Final

from tidelog.client.steps import Address
from tidelog.core import limits
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.sim.seeds import stream
from tidelog.sim.workload.churning import ChurnKind, churn, churn_of_profiles
from tidelog.sim.workload.client import CONNECT_TIMEOUT_MS, ClientConnection
from tidelog.sim.workload.group_clients import FAMILIES, GroupPlan, SimMember
from tidelog.sim.workload.work import Workload
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.registry import FIND_COORDINATOR, METADATA

_MOST_GUESTS = 4
_METADATA_VERSION: Final = 12
_FIND_VERSION: Final = 4
_TIMEOUT_MS: Final = 1_500
#: Time in ms after which the client asks again if a response named no other leader.
_TIMER_MS: Final = 800
#: Interval in ms at which a waiting client checks whether the run is over.
_LOOK_MS: Final = 200


@churn
class ProducersComeAndGo(ChurnKind):
    """Producers of every style that each write only for a short time; acknowledged records must
    survive.
    """

    async def act(self) -> None:
        draw = self.draw
        acks, idempotent = draw.choice(((-1, True), (-1, True), (-1, False), (1, False)))
        producer = self.work.produce(
            self.client, draw.choice(self.work.steady), acks=acks, idempotent=idempotent
        )
        await self.pause(50, 1_500)
        producer.stopping = True
        while not producer.is_done:
            await self.pause(20, 60)
        self.succeeded(f"acks {acks} idempotent {idempotent}")
        await self.pause(0, 300)


class _Visits(ChurnKind):
    """Base class: members that join a separate group, and leave it at the end."""

    group: ClassVar[str]

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._plan = GroupPlan(self.group, work.steady[0].topic, len(work.steady))
        self._guests: list[SimMember] = []

    def _member(self, name: str, number: int, instance_id: str | None) -> SimMember:
        """Return a group member with its own client; `name` and `number` select a random stream."""
        is_static = instance_id is not None
        return SimMember(
            self.work.client(),
            self._plan,
            self.work.cluster.groups,
            stream(self.work.seed, name, number),
            FAMILIES[0] if is_static else self.draw.choice(FAMILIES),
            instance_id=instance_id,
        )

    async def finish(self) -> None:
        for guest in self._guests:
            guest.stopping = True
        while not all(guest.is_done for guest in self._guests):
            await self.pause(20, 60)


@churn_of_profiles
class InstancesDoubled(_Visits):
    """Two processes with one group instance id, which repeatedly take each other's place."""

    group: ClassVar[str] = "twins"
    pause_ms = 200, 1_000

    async def begin(self) -> None:
        self._plan.has_static_members = True
        self._guests = [self._member("twin", number, "twin") for number in range(2)]
        for twin in self._guests:
            self.work.visit(twin)
            await self.pause(50, 1_500)

    async def act(self) -> None:
        self.succeeded(f"{self._plan.next_offset} commits begun")


@churn
class MembersComeAndGo(_Visits):
    """Members, some of them static, that join a group with a steady member, and leave again."""

    group: ClassVar[str] = "guests"
    pause_ms = 200, 1_800

    async def begin(self) -> None:
        self._plan.has_static_members = self.draw.random() < 0.5
        self.work.join(self._member("guest", 1, None))

    async def act(self) -> None:
        here = [guest for guest in self._guests if not guest.stopping]
        if len(here) < _MOST_GUESTS and self.draw.random() < 0.6:
            is_static = self._plan.has_static_members and self.draw.random() < 0.6
            number = len(self._guests) + 2
            guest = self._member("guest", number, f"guest-{number}" if is_static else None)
            self.work.visit(guest)
            self._guests.append(guest)
        elif here:
            here[0].stopping = True
            self.succeeded("a guest leaves")


class _Watched(ClientConnection):
    """A connection that resolves its future `ended` when the connection ends."""

    ended: asyncio.Future[None] | None = None

    def connection_lost(self, reason: str) -> None:
        """Wake the client."""
        super().connection_lost(reason)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)


@churn_of_profiles
class LeadersFollowed(ChurnKind):
    """A client that asks for the next leader when its connection to the leader ends, and then at
    intervals.
    """

    # The client does what librdkafka's rd_kafka_broker_fail and rd_kafka_topic_scan_all do. The
    # clients kafka-python and aiokafka do not ask at once, but first wait for their retry back-off.

    async def act(self) -> None:
        partition = self.draw.choice(self.work.steady)
        leader = await self._ask(partition, None)
        while leader is not None and not self.stopping:
            await self._watch(leader)
            if self.stopping:
                return
            lost, leader = leader, await self._ask(partition, leader)
            if leader is not None:
                self.succeeded(f"{partition}: {leader} after {lost}")
        if not self.stopping:
            await self.client.tasks.sleep(_TIMER_MS)

    async def _watch(self, leader: Address) -> None:
        """Hold a connection to the leader; return when the connection ends."""
        ports, opened = self.client.ports, []

        def open_handler(transport: object) -> _Watched:
            opened.append(_Watched(ports, "watch", transport))  # type: ignore[arg-type]  # a Transport
            return opened[0]

        try:
            await ports.network.connect(
                leader.host,
                leader.port,
                open_handler,
                CONNECT_TIMEOUT_MS,
                limits.MAX_RESPONSE_BYTES,
            )
        except TidelogError:
            return
        connection = opened[0]
        while connection.is_open and not self.stopping:
            woken = connection.ended = ports.loop.create_future()
            timer = ports.clock.call_later(_LOOK_MS, partial(_wake, woken))
            await woken
            timer.cancel()
        connection.close("the client is done")

    async def _ask(self, partition: TopicPartition, lost: Address | None) -> Address | None:
        """Ask one broker for the leader; return its address, or None if it is the lost leader or
        unknown.
        """
        others = [each for each in self.client.bootstrap if each != lost]
        address = self.draw.choice(others)
        try:
            if lost is not None and self.draw.random() < 0.3:
                await self._find_coordinator(address)
            answer = await _metadata(self, address, partition.topic)
        except (TidelogError, KafkaError) as error:
            self.failed(f"the leader of {partition}", error)
            return None
        [topic] = answer.topics
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        found = leaders.get(partition.partition, NO_LEADER)
        for broker in answer.brokers:
            if broker.node_id == found and Address(broker.host, broker.port) != lost:
                return Address(broker.host, broker.port)
        return None

    async def _find_coordinator(self, address: Address) -> None:
        connection = await self.client.connection(address)
        request = FindCoordinatorRequest(
            coordinator_keys=[f"group-{self.draw.randrange(8)}"], key_type=0
        )
        answer: FindCoordinatorResponse = await connection.call(
            FIND_COORDINATOR,
            connection.version(FIND_COORDINATOR, _FIND_VERSION),
            request,
            _TIMEOUT_MS,
        )
        for each in answer.coordinators:
            if each.error_code == ErrorCode.NONE:
                self.succeeded(f"{each.key} is coordinated by {each.node_id}")


async def _metadata(kind: ChurnKind, address: Address, topic: str) -> MetadataResponse:
    """Request the metadata of a topic from one broker, without creating the topic."""
    connection = await kind.client.connection(address)
    topics = [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    version = connection.version(METADATA, _METADATA_VERSION)
    answer: MetadataResponse = await connection.call(METADATA, version, request, _TIMEOUT_MS)
    return answer


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


@churn_of_profiles
class BrokersFollowed(ChurnKind):
    """A client that knows only the brokers in its last Metadata response, which must never be
    empty.
    """

    # The client does what librdkafka's rd_kafka_parse_Metadata and rd_kafka_broker_decommission do
    # (since 2.10).

    pause_ms = 1, 30

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._known = list(self.client.bootstrap)

    async def act(self) -> None:
        address = self.draw.choice(self._known)
        with self.tried("metadata"):
            answer = await _metadata(self, address, self.work.steady[0].topic)
            self._known = [Address(broker.host, broker.port) for broker in answer.brokers]
            self._check(address, answer)
            self.succeeded(f"{len(self._known)} brokers")

    def _check(self, address: Address, answer: MetadataResponse) -> None:
        violate = self.work.cluster.simulator.violate
        if not answer.brokers:
            violate(
                f"a client is hung for good: {address} answered Metadata without a broker, so the"
                " client has dropped all brokers that it knew"
            )
            self.stopping = True
        if any(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in answer.topics):
            violate(f"{address} answered that {self.work.steady[0].topic} is unknown")
