"""As much of brokers as replication touches: real replicas, fetchers and APIs over fake logs.

A record is one byte that holds its leader epoch, so histories can be compared. Messages between
fake brokers are delivered at once, by the very handlers that serve the wire; `cut` loses them.
Time is moved by hand.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.support.broker.directory import FakeDirectory, FakeLog
from tests.support.ports import FakeTracer, StandingClock

from tidelog.broker import apis
from tidelog.broker.apis import fetch, leader_and_isr, list_offsets, stop_replica
from tidelog.broker.cluster_view import ClusterView, PartitionView, TopicView
from tidelog.broker.coordinators.group_coordinators import GroupCoordinators
from tidelog.broker.coordinators.runtime import CoordinatorRuntime
from tidelog.broker.events.cluster_events import ClusterEvents
from tidelog.broker.held_answers import HeldAnswers
from tidelog.broker.membership.auto_creation import AutoCreation
from tidelog.broker.membership.controlled_shutdown import ControlledShutdown
from tidelog.broker.membership.producer_ids import ProducerIds
from tidelog.broker.replicas.command_requests import CommandRequests
from tidelog.broker.replicas.commands import ReplicaCommands
from tidelog.broker.replicas.fetching.fetch_sessions import FetchSessions
from tidelog.broker.replicas.fetching.fetchers import Fetchers
from tidelog.broker.replicas.hosting.partition import Partition, PlannedAppends
from tidelog.broker.replicas.hosting.takeovers import Takeovers
from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
from tidelog.broker.replicas.isr.foreign_isr_changes import ForeignIsrChanges
from tidelog.broker.replicas.isr.isr_changes import isr_changes
from tidelog.broker.replicas.replica_set import ReplicaSet
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.fence import Fence
from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.timers import TimerWheel
from tidelog.broker.services import Identity, Services, Settings
from tidelog.core import limits
from tidelog.core.completion import Completion
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConnectionLost
from tidelog.core.metrics import Metrics
from tidelog.core.response_budget import ResponseBudget
from tidelog.core.tasks import Tasks
from tidelog.core.types import BrokerInfo, Endpoint, TopicPartition
from tidelog.metadata.store import Node, Stat
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.wire.registry import (
    ALTER_PARTITION,
    API_VERSIONS,
    FETCH,
    LEADER_AND_ISR,
    LIST_OFFSETS,
    STOP_REPLICA,
)

TOPIC = "t"
TOPIC_ID = b"T" * 16
T0 = TopicPartition(TOPIC, 0)
HANDLERS: dict[int, Callable[[Any, Request[Any]], Any]] = {
    FETCH: fetch.handle,
    LIST_OFFSETS: list_offsets.handle,
    LEADER_AND_ISR: leader_and_isr.handle,
    STOP_REPLICA: stop_replica.handle,
}


#: The connection of a request whose handler is called without one.
CONNECTION: Any = SimpleNamespace(
    peer="10.0.0.1:5000",
    listener="PLAINTEXT",
    serves_own=True,
    close=lambda reason: None,
    unread_bytes=0,
    is_broker=False,
    prove_broker=lambda broker_id: None,
)


class FakeClock(StandingClock):
    """Time that is moved by hand; the loop runs after each timer."""

    def __init__(self) -> None:
        super().__init__(1_000_000)

    async def advance(self, delay_ms: int) -> None:
        """Let time pass, and what is due happen."""
        end_ms = self.now_ms + delay_ms
        while self.fire_next(end_ms):
            await settle()
        self.now_ms = end_ms
        await settle()


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(20):
        await asyncio.sleep(0)


class FakeStore:
    """Holds topic configurations."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.errors: list[BaseException] = []

    async def get_many(self, paths: list[str]) -> list[Any]:
        if self.errors:
            raise self.errors.pop(0)
        stat = Stat(0, 0, 0, 0)
        return [Node(self.nodes[path], stat) if path in self.nodes else None for path in paths]


class FakeConnection:
    """Delivers requests to another fake broker at once."""

    def __init__(self, peers: FakePeers, broker_id: int) -> None:
        self._peers = peers
        self._broker_id = broker_id
        self._closed = False
        self._order: list[list[Any]] = []
        self.kept = 0

    def send(
        self,
        api_key: int,
        version: int,
        message: Any,
        timeout_ms: int,
        on_answer: Callable[[Any, Exception | None], None],
    ) -> None:
        peers = self._peers
        peers.sent.append((self._broker_id, api_key, message))
        peers.versions.append((api_key, version))
        handler = peers.intercepted.get(api_key)
        if handler is None and api_key == API_VERSIONS:
            on_answer(
                ApiVersionsResponse(api_keys=[ApiVersion(*one) for one in peers.served]), None
            )
            return
        if handler is not None:
            handler(message, on_answer)
            return
        other = peers.cluster.get(self._broker_id)
        if other is None or self._broker_id in peers.cut:
            on_answer(None, ConnectionLost("cut"))
            return
        entry = [None, on_answer]
        self._order.append(entry)

        def deliver(answer: Any) -> None:
            entry[0] = answer
            while self._order and self._order[0][0] is not None:
                done = self._order.pop(0)
                done[1](done[0], None)

        request = Request(
            RequestHeader(api_key, version, 0, f"broker-{peers.broker_id}"),
            message,
            CONNECTION,
            other.clock.monotonic_ms(),
        )
        answer = HANDLERS[api_key](other, request)
        if isinstance(answer, Pending):
            answer.deliver_to(deliver)
        else:
            deliver(answer)

    async def call(self, api_key: int, version: int, message: Any, timeout_ms: int) -> Any:
        """Return the response, or raise the error that `send` would have reported."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(answer: Any, error: Exception | None) -> None:
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        self.send(api_key, version, message, timeout_ms, answered)
        return await future

    def keep_frames(self) -> None:
        self.kept += 1


class FakePeers:
    """Connections of one fake broker."""

    def __init__(self, broker_id: int, cluster: dict[int, FakeBroker]) -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.cut: list[int] = []
        self.sent: list[tuple[int, int, Any]] = []
        #: API key -> called with (message, on_answer) instead of a broker.
        self.intercepted: dict[int, Callable[[Any, Any], None]] = {}
        #: API key, lowest and highest version, as every other broker reports them.
        self.served = [(ALTER_PARTITION, 0, 3)]
        #: API key and version of every request.
        self.versions: list[tuple[int, int]] = []
        self._connections: dict[tuple[int, str], FakeConnection] = {}

    def connection(self, broker_id: int, purpose: str) -> FakeConnection:
        if broker_id < 0:
            raise ConnectionLost("no such broker")
        key = (broker_id, purpose)
        if key not in self._connections:
            self._connections[key] = FakeConnection(self, broker_id)
        return self._connections[key]

    def view_changed(self) -> None:
        """Do nothing: no request follows silence."""

    def requests(self, api_key: int) -> list[Any]:
        return [message for _, key, message in self.sent if key == api_key]


class LoudServices(Services):
    """Services of a test: what should not happen fails it."""

    def unexpected(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


def services_of(fake: Any) -> LoudServices:
    """Return services made of the attributes of a fake broker; what it lacks is None."""
    timers = getattr(fake, "timers", None)
    parts = {
        name: getattr(fake, name, None)
        for name in ("ports", "store", "clock", "tracer", "metrics", "tasks", "view", "peers")
    }
    return LoudServices(
        settings=Settings(fake.config),
        identity=Identity(fake.broker_id),
        timers=timers,  # type: ignore[arg-type]  # a fake may lack them
        serving_timers=timers,  # type: ignore[arg-type]  # a fake may lack them
        fence=Fence(),
        responses=ResponseBudget(
            limits.QUEUED_RESPONSE_BYTES,
            fake.clock,
            lambda line: None,
        ),
        **parts,  # type: ignore[arg-type]  # of fakes
    )


class FakeBroker:
    """A broker without connections, store or controller; also the context of API handlers."""

    def __init__(
        self, broker_id: int, cluster: dict[int, FakeBroker], clock: FakeClock, **config: str
    ) -> None:
        loop = asyncio.get_running_loop()
        settings = {"broker.id": str(broker_id), "metadata.store": "embedded:/nowhere"}
        settings.update({key.replace("_", "."): value for key, value in config.items()})
        self.broker_id = broker_id
        self.clock = clock
        self.tracer = FakeTracer()
        self.metrics = Metrics()
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(loop, clock, lambda name, error: self.failures.append((name, error)))
        self.timers = self.serving_timers = TimerWheel(clock)
        self.ports: Any = SimpleNamespace(loop=loop, random=random.Random(broker_id))
        self.store = FakeStore()
        self.view = ClusterView()
        self.view.is_known = True
        self.peers = FakePeers(broker_id, cluster)
        self.services = LoudServices(
            ports=self.ports,  # type: ignore[arg-type]  # a loop and a source of randomness alone
            store=self.store,  # type: ignore[arg-type]  # a fake
            settings=Settings(BrokerConfig.from_properties(settings)),
            identity=Identity(broker_id),
            clock=clock,
            tracer=self.tracer,
            metrics=self.metrics,
            tasks=self.tasks,
            timers=self.timers,
            serving_timers=self.serving_timers,
            fence=Fence(),
            view=self.view,
            peers=self.peers,  # type: ignore[arg-type]  # a fake
            responses=ResponseBudget(
                limits.QUEUED_RESPONSE_BYTES, clock, lambda line: self.tracer.log("r", 30, line)
            ),
        )
        self.services.fence.late_from_ms = 1 << 62
        self.broker_epoch = 100 + broker_id
        self.directory = FakeDirectory()
        self.directory.wall_ms = clock.wall_ms
        self._make_rooms()
        cluster[broker_id] = self

    def _make_rooms(self) -> None:
        services = self.services
        self.admission: Any = SimpleNamespace(is_open=True, sends_answers=True)
        self.dispatcher = Dispatcher(self.tasks, apis.error_response, services.unexpected)
        self.appends = PlannedAppends()
        self.fetch_sessions = FetchSessions()
        self.auto_creation = AutoCreation(services)
        self.cluster_events = ClusterEvents(
            services, ProducerIds(services).wait, self.auto_creation.create
        )
        self.takeovers = Takeovers(services, self.cluster_events)
        self.alter_partition_manager = isr_changes(services)
        self.groups = GroupCoordinators(services, self.appends.submit, self.request_failed)
        throttles = ReplicationThrottles(services)
        self.fetchers = Fetchers(services, throttles)
        self.replicas = ReplicaSet(
            services,
            self.appends,
            self.alter_partition_manager,
            self.takeovers,
            throttles,
            self.fetchers,
            {each.topic: each for each in (self.groups, *self.other_coordinators())},
            self.cluster_events,
        )
        self.replicas.log_dirs.good = [self.directory]  # type: ignore[list-item]  # a fake
        self.foreign_isr_changes = ForeignIsrChanges(
            services, self.replicas, CommandRequests(services)
        )
        self.commands = ReplicaCommands(services, self.replicas, self.fetchers)
        self.store_marked = lambda _: None
        self.held_answers = HeldAnswers(
            self.view,
            self.clock,
            self.serving_timers,
            self.tracer,
            lambda: self.config.metadata_leader_wait_max_ms,
            lambda: None,
            self.request_failed,
        )
        self.shutdown = self.controlled_shutdown = ControlledShutdown(services, self.replicas)

    def other_coordinators(self) -> list[CoordinatorRuntime[Any]]:
        """The coordinators of internal topics that this broker has beside that of groups."""
        return []

    @property
    def config(self) -> BrokerConfig:
        return self.services.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self.services.settings.in_force = config

    @property
    def cluster_id(self) -> str:
        return self.services.identity.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str) -> None:
        self.services.identity.cluster_id = cluster_id

    @property
    def broker_epoch(self) -> int:
        return self.services.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: int) -> None:
        self.services.identity.registered(broker_epoch)

    async def open_replicas(self) -> None:
        """Begin with the replicas that the directory holds."""
        await self.replicas.open([self.directory])  # type: ignore[list-item]  # a fake

    def partition(self, topic_partition: TopicPartition = T0) -> Partition:
        found = self.replicas.get(topic_partition)
        assert found is not None
        return found

    def log(self, topic_partition: TopicPartition = T0) -> FakeLog:
        found: FakeLog = self.directory.logs[topic_partition]
        return found

    def produce(self, count: int = 1, acks: int = -1) -> Completion[Any]:
        """Append records as leader and write them."""
        completion = self.partition().role.append(b"r" * count, acks, 0)
        self.partition().flush_appends()
        return completion

    def submit_appends(self) -> bool:
        """The end of a read event."""
        return self.appends.submit()

    def request_failed(self, request: Request[Any], error: Exception) -> Any:
        raise AssertionError(request.header) from error

    async def command(
        self,
        *states: LeaderAndIsrPartitionState,
        topic: str = TOPIC,
        topic_id: bytes = TOPIC_ID,
        full: bool | None = False,
        keep: tuple[str, ...] = (),
        controller_epoch: int = 1,
        broker_epoch: int | None = None,
    ) -> LeaderAndIsrResponse:
        """A LeaderAndIsr for partitions of one topic; `full` None: of Kafka's own controller."""
        topics = [LeaderAndIsrTopicState(topic, topic_id, list(states))] if states else []
        topics += [LeaderAndIsrTopicState(name) for name in keep]
        request = LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=self.broker_epoch if broker_epoch is None else broker_epoch,
            type=0 if full is None else 2 if full else 1,
            topic_states=topics,
        )
        return await self.commands.leader_and_isr(request, 7)

    async def stop(
        self,
        topic_partition: TopicPartition = T0,
        *,
        leader_epoch: int = -2,
        delete: bool = True,
        controller_epoch: int = 1,
    ) -> int:
        """A StopReplica for one partition; returns its error."""
        request = StopReplicaRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=[
                StopReplicaTopicState(
                    topic_partition.topic,
                    [StopReplicaPartitionState(topic_partition.partition, leader_epoch, delete)],
                )
            ],
        )
        response = await self.commands.stop_replica(request)
        if response.error_code:
            return response.error_code
        return response.partition_errors[0].error_code

    def see(self, *alive: int, controller_id: int = -1) -> None:
        """Apply the controller's UpdateMetadata: the live brokers and the controller itself."""
        self.view.controller_id = controller_id
        self.view.brokers = {
            broker_id: BrokerInfo(broker_id, -1, (Endpoint("PLAINTEXT", "h", broker_id),))
            for broker_id in alive
        }
        self.alter_partition_manager.controller_changed()
        self.shutdown.view_changed()
        self.replicas.view_changed()

    def show(self, leader: int, leader_epoch: int) -> None:
        """Published state of the topic's first partition."""
        self.view.topics[TOPIC] = TopicView(
            TOPIC, TOPIC_ID, {0: PartitionView(leader, leader_epoch, (), (), (), 0)}
        )


def state(
    leader: int = 1,
    *,
    partition: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    is_new: bool = False,
    first_leader_epoch: int = 0,
    is_closing: bool = False,
) -> LeaderAndIsrPartitionState:
    """Return a partition's state in a command."""
    return LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        partition_epoch=partition_epoch,
        replicas=replicas,
        is_new=is_new,
        first_leader_epoch=first_leader_epoch,
        is_closing=is_closing,
    )


def errors(response: LeaderAndIsrResponse) -> list[int]:
    """The errors of all partitions, in order."""
    assert response.error_code == 0
    return [outcome.error_code for topic in response.topics for outcome in topic.partition_errors]


def a_cluster(count: int = 3, **config: str) -> dict[int, FakeBroker]:
    """Brokers 1 to `count` that see each other alive; key `clock` is shared."""
    clock = FakeClock()
    cluster: dict[int, FakeBroker] = {}
    for broker_id in range(1, count + 1):
        FakeBroker(broker_id, cluster, clock, **config)
    for broker in cluster.values():
        broker.see(*cluster)
    return cluster


async def replicate(
    cluster: dict[int, FakeBroker],
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    isr: tuple[int, ...] = (1, 2, 3),
    is_new: bool = True,
) -> None:
    """All brokers take their roles in the topic's first partition, the leader first."""
    for broker_id in sorted(cluster, key=lambda one: one != leader):
        response = await cluster[broker_id].command(
            state(
                leader,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                isr=isr,
                replicas=tuple(sorted(cluster)),
                is_new=is_new,
            )
        )
        assert errors(response) == [0]
    await settle()
