"""Real controllers over the simulated store; their commands go to scripted brokers.

Every broker of a `ControllerHarness` takes part in controller elections with the brokers' own code.
Its other half is a script that records the commands it gets and sends scripted responses. Time is
virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.support.broker.fakes import services_of
from tests.support.controller.log_ends import log_ends
from tests.support.controller.values import topic_id
from tests.support.ports import FakeTracer

from tidelog.broker.controller.runtime import ControllerRuntime
from tidelog.broker.events.cluster_events import ClusterEvents
from tidelog.broker.membership.producer_ids import ProducerIds
from tidelog.broker.server.requests import Pending
from tidelog.broker.server.timers import TimerWheel
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConnectionLost, ErrorCode, RequestTimeout
from tidelog.core.metrics import Metrics
from tidelog.core.tasks import Tasks
from tidelog.core.types import BrokerInfo, Endpoint, PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    NodeExists,
    Op,
    SessionEvent,
    SetData,
    TransactionFailed,
)
from tidelog.sim.disk import Loss
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.seeds import stream
from tidelog.sim.sim_store import SimStoreClient, SimStoreServer
from tidelog.sim.simulator import CollectorPaused, Simulator
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tidelog.wire.messages.get_replica_log_info import GetReplicaLogInfoRequest
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.remove_partitions import (
    RemovePartitionsRequest,
    RemovePartitionsResponse,
    RemovePartitionsTopic,
    RemovePartitionsTopicResult,
)
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tidelog.wire.peer import CorrelationIds
from tidelog.wire.registry import ALLOCATE_PRODUCER_IDS

T = TypeVar("T")
SESSION_TIMEOUT_MS = 1000
LIMIT_MS = 60_000


class Script:
    """The commanded half of a broker: the commands that it got, and its responses."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.received: list[Any] = []
        #: Correlation ids of what arrived, answered or not.
        self.correlation_ids: list[int] = []
        #: Errors of partitions in LeaderAndIsr answers.
        self.role_errors: dict[TopicPartition, ErrorCode] = {}
        #: Error of whole requests, by request class; taken one after the other.
        self.errors: dict[type, list[ErrorCode]] = {}
        #: Ends of logs: (last leader epoch, end offset); a partition without any is not here.
        self.log_ends: dict[TopicPartition, tuple[int, int]] = {}
        #: Broker epoch of the present registration.
        self.broker_epoch = -1
        #: Nothing is answered while set.
        self.silent = False
        #: Connections are refused while set.
        self.unreachable = False

    def of(self, kind: type[T]) -> list[T]:
        """The requests of one kind, in order."""
        return [one for one in self.received if isinstance(one, kind)]

    def kinds(self) -> list[str]:
        """What came, in order: U (metadata), S (stop), L (roles), F (roles, full), E (log ends)."""
        letters = {
            UpdateMetadataRequest: "U",
            StopReplicaRequest: "S",
            GetReplicaLogInfoRequest: "E",
        }
        return [letters.get(type(one)) or ("F" if one.type == 2 else "L") for one in self.received]

    def roles(self) -> dict[TopicPartition, Any]:
        """Return the last role in commands, by partition."""
        return {
            TopicPartition(told.topic_name, one.partition_index): one
            for request in self.of(LeaderAndIsrRequest)
            for told in request.topic_states
            for one in told.partition_states
        }

    def answer(self, message: Any) -> Any:
        """Take a command."""
        self.received.append(message)
        errors = self.errors.get(type(message), [])
        error = errors.pop(0) if errors else ErrorCode.NONE
        if isinstance(message, LeaderAndIsrRequest):
            topics = [] if error else [self._topic(one) for one in message.topic_states]
            return LeaderAndIsrResponse(error_code=error, topics=topics)
        if isinstance(message, StopReplicaRequest):
            return StopReplicaResponse(error_code=error)
        if isinstance(message, GetReplicaLogInfoRequest):
            names = {
                topic.topic_id: topic.topic_name
                for request in self.of(LeaderAndIsrRequest)
                for topic in request.topic_states
            }
            return log_ends(message, self.broker_epoch, names, self.log_ends)
        return UpdateMetadataResponse(error_code=error)

    def _topic(self, told: Any) -> LeaderAndIsrTopicError:
        return LeaderAndIsrTopicError(
            told.topic_id,
            [
                LeaderAndIsrPartitionError(
                    "",
                    one.partition_index,
                    self.role_errors.get(
                        TopicPartition(told.topic_name, one.partition_index), ErrorCode.NONE
                    ),
                )
                for one in told.partition_states
            ],
        )


class _Wire:
    """A connection from one broker to another."""

    def __init__(
        self, sender: Candidate, host: str, correlation_ids: CorrelationIds | None = None
    ) -> None:
        self._sender = sender
        self._correlation_ids = correlation_ids or CorrelationIds()
        self._to = sender.harness.by_host(host)
        self.is_open = True
        self._waiting: list[Callable[[Any, Exception | None], None]] = []

    def send(
        self,
        api_key: int,
        version: int,
        message: Any,
        timeout_ms: int,
        on_answer: Callable[[Any, Exception | None], None],
    ) -> None:
        if not self.is_open:
            on_answer(None, ConnectionLost("closed"))
            return
        self._waiting.append(on_answer)
        clock = self._sender.clock
        if self._to.script.unreachable or not self._to.is_up:
            clock.call_later(1, lambda: self.close("refused"))
            return
        clock.call_later(timeout_ms, lambda: self._timeout(on_answer))
        number = self._correlation_ids.take()
        clock.call_later(0.3, lambda: self._arrive(number, message, on_answer))

    def _arrive(
        self, number: int, message: Any, on_answer: Callable[[Any, Exception | None], None]
    ) -> None:
        if not self._to.is_up:
            self.close("the peer has died")
            return
        self._to.script.correlation_ids.append(number)
        if not self._to.script.silent and self.is_open:
            answer = self._to.script.answer(message)
            self._sender.clock.call_later(0.3, lambda: self._deliver(answer, on_answer))

    def _deliver(self, answer: Any, on_answer: Callable[[Any, Exception | None], None]) -> None:
        if on_answer in self._waiting:
            self._waiting.remove(on_answer)
            on_answer(answer, None)

    def _timeout(self, on_answer: Callable[[Any, Exception | None], None]) -> None:
        if on_answer in self._waiting:
            self._waiting.remove(on_answer)
            on_answer(None, RequestTimeout("no answer"))
            self.close("no answer in time")

    async def call(self, api_key: int, version: int, message: Any, timeout_ms: int) -> Any:
        """Producer ids only: the request goes to the other's controller."""
        assert api_key == ALLOCATE_PRODUCER_IDS
        answered: asyncio.Future[Any] = self._sender.ports.loop.create_future()
        reply = self._to.controller.ask(
            message, lambda: AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        )
        if not isinstance(reply, Pending):
            return reply
        reply.deliver_to(answered.set_result)
        return await answered

    def close(self, reason: str) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, []
        for on_answer in waiting:
            on_answer(None, ConnectionLost(reason))


class _Peers:
    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        #: Brokers that show signs of being gone, as the test sets them.
        self.silent_ms: dict[int, int] = {}

    def open(self, host: str, port: int, purpose: str, correlation_ids: CorrelationIds) -> _Wire:
        return _Wire(self._candidate, host, correlation_ids)

    def connection(self, broker_id: int, purpose: str) -> _Wire:
        if broker_id not in self._candidate.harness.brokers:
            raise ConnectionLost(f"broker {broker_id} is not known")
        return _Wire(self._candidate, f"broker{broker_id}")

    def silent_since_ms(self, broker_id: int) -> int | None:
        return self.silent_ms.get(broker_id)


class _View:
    controller_id = -1
    brokers = ()

    def partition(self, _: TopicPartition) -> None:
        """No topic is known here, that of events included."""


class _Creation:
    def create(self, names: Iterable[str]) -> None:
        """Topics are made by the tests alone."""


class _Drains:
    """The progress of consumer groups, as the test sets it."""

    def __init__(self) -> None:
        self.read: list[TopicPartition] = []

    async def read_to_the_end(
        self, leaders: Mapping[TopicPartition, int], coordinators: Iterable[int]
    ) -> list[TopicPartition]:
        del coordinators
        return [one for one in self.read if one in leaders]


class Candidate:
    """One broker: a real controller shell, and a script for the rest. Passes for a `Broker`."""

    def __init__(self, harness: ControllerHarness, broker_id: int) -> None:
        self.harness = harness
        self.broker_id = broker_id
        self.node = harness.world.add_node(broker_id, f"broker{broker_id}")
        self.config = BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://broker{broker_id}:9092",
                "controller.socket.timeout.ms": "500",
                **harness.properties,
            }
        )
        self.script = Script(broker_id)
        self.previous_broker_epoch = -1
        self.drains = _Drains()
        self.start()

    def start(self) -> None:
        """Begin a life."""
        self.script.received = []
        self.ports = self.node.start()
        self.clock, self.tracer = self.ports.clock, self.ports.tracer
        self.metrics = Metrics()
        self.tasks = Tasks(self.ports.loop, self.clock, self._failed)
        self.timers = TimerWheel(self.clock)
        self.store = self.harness.client(self.node, f"b{self.broker_id}")
        self.peers = _Peers(self)
        self.view, self.auto_creation = _View(), _Creation()
        self.services = services_of(self)
        self.producer_ids = ProducerIds(self.services)
        self.cluster_events = ClusterEvents(
            self.services, self.producer_ids.wait, self.auto_creation.create
        )
        self.controller = ControllerRuntime(
            self.services,
            self.cluster_events,
            self.drains,  # type: ignore[arg-type]  # a fake
        )
        self.tasks.spawn("main", self._main())

    @property
    def is_up(self) -> bool:
        """Whether it lives."""
        return self.node.is_up

    @property
    def is_controller(self) -> bool:
        """Whether it believes to be the controller."""
        return self.is_up and self.controller.is_active

    def watch_log(self) -> FakeTracer:
        """Keep what this life logs from now on."""
        tracer = FakeTracer()
        object.__setattr__(self.services, "tracer", tracer)
        return tracer

    @property
    def broker_epoch(self) -> int:
        """Epoch of the registration, -1 without one."""
        return self.services.broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: int) -> None:
        self.services.identity.broker_epoch = broker_epoch
        self.script.broker_epoch = broker_epoch

    async def _main(self) -> None:
        self.store.on_session(self._session_event)
        await self._register()
        await self.controller.start()

    async def _register(self) -> None:
        await self.store.open()
        self._beat()
        info = BrokerInfo(
            self.broker_id,
            -1,
            (Endpoint("PLAINTEXT", f"broker{self.broker_id}", 9092),),
            previous_broker_epoch=self.previous_broker_epoch,
            reports_log_ends=True,
        )
        create = Create(
            layout.broker_path(self.broker_id), layout.encode_broker(info, 0), ephemeral=True
        )
        while True:
            try:
                [result] = await self.store.transact([create])
            except TransactionFailed as failure:
                assert isinstance(failure.error, NodeExists)
                await self.tasks.sleep(50)
            else:
                assert result.stat is not None
                self.broker_epoch = result.stat.czxid
                return

    def _beat(self) -> None:
        self.store.beat()
        self.clock.call_later(50, self._beat)

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.broker_epoch = -1
            self.controller.resign("the session has expired")
            self.tasks.spawn("again", self._again())

    async def _again(self) -> None:
        await self._register()
        self.controller.session_renewed()

    def _failed(self, name: str, error: BaseException) -> None:
        self.harness.world.violate(f"broker {self.broker_id}: {name} failed: {error!r}")

    def crash(self) -> None:
        """End at once; the store notices soon."""
        assert self.node.incarnation is not None
        self.node.incarnation.die(Loss.NONE, "test")
        self.store.crashed()


class ControllerHarness:
    """A cluster's worth of candidates, and an administrator's own session with the store."""

    def __init__(self, count: int, **properties: str) -> None:
        self.properties = {key.replace("_", "."): value for key, value in properties.items()}
        self.world = Simulator(11)
        self.server = SimStoreServer(
            lambda delay_ms, callback: self.world.scheduler.after(
                round(delay_ms * NS_PER_MS), None, callback
            )
        )
        self.cut_off: list[str] = []
        self.commits: list[list[Op]] = []
        self._admin_node = self.world.add_node(0, "admin")
        self._admin_ports = self._admin_node.start()
        self.admin = self.client(self._admin_node, "admin")
        self.do(self._found())
        self.brokers: dict[int, Candidate] = {}
        for broker_id in range(1, count + 1):
            self.brokers[broker_id] = Candidate(self, broker_id)

    def client(self, node: Any, name: str) -> SimStoreClient:
        """A session with the store for the present life of a node."""
        incarnation = node.incarnation
        draw = stream(3, name, incarnation.number)
        return SimStoreClient(
            self.server,
            loop=incarnation.loop,
            clock=incarnation.clock,
            latency=lambda: draw.uniform(0.1, 0.3),
            alive=incarnation.check_alive,
            reachable=lambda: name not in self.cut_off,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            detect_ms=5.0,
        )

    def by_host(self, host: str) -> Candidate:
        """The broker that listens there."""
        return self.brokers[int(host.removeprefix("broker"))]

    # the administrator

    async def _found(self) -> None:
        await self.admin.open()
        for path in layout.PERSISTENT_ROOTS:
            await self.admin.transact([Create(path, b"")])

    def do(self, story: Coroutine[Any, Any, T]) -> T:
        """Run something to its end as the administrator."""
        self.admin.beat()
        task = asyncio.Task(story, loop=self._admin_ports.loop)
        self.until(task.done)
        return task.result()

    def read(self, path: str) -> Node | None:
        """A node."""
        return self.do(self._read(path))

    async def _read(self, path: str) -> Node | None:
        self.admin.beat()
        return await self.admin.get(path)

    def children(self, path: str) -> list[str] | None:
        """Names of children."""
        return self.do(self.admin.children(path))

    def write(self, *ops: Op) -> None:
        """A transaction of the administrator's."""
        self.do(self.admin.transact(ops))

    def remove(self, path: str) -> None:
        """Take a node away."""
        self.write(Delete(path, ANY_VERSION))

    def state(self, topic_partition: TopicPartition) -> PartitionState:
        """Published state of a partition."""
        path = layout.partition_state_path(topic_partition)
        node = self.read(path)
        assert node is not None
        return layout.decode_partition_state(path, node.data, node.stat)

    def publish(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """Write a state from outside of the controller."""
        path = layout.partition_state_path(topic_partition)
        self.write(SetData(path, layout.encode_partition_state(state), ANY_VERSION))

    def place_topic(self, name: str, assignments: dict[int, tuple[int, ...]]) -> None:
        """Make a topic node as a tool would: no states."""
        data = layout.encode_topic(TopicAssignment(topic_id(name), assignments))
        self.write(Create(layout.topic_path(name), data))

    # time

    def until(self, holds: Callable[[], bool], limit_ms: int = LIMIT_MS) -> None:
        """Let time pass until something holds."""
        limit_ns = self.world.now_ns + limit_ms * NS_PER_MS
        came = self.world.run_while(lambda: not holds(), limit_ns)
        self.world.check()
        assert came, "what was waited for did not come"

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.admin_beats(ms)
        self.world.run_until(self.world.now_ns + ms * NS_PER_MS)
        self.world.check()

    def admin_beats(self, ms: int) -> None:
        """Keep the administrator's session over a stretch of time."""
        for delay_ms in range(0, ms, 50):
            self._admin_ports.clock.call_later(delay_ms, self.admin.beat)

    # the cluster

    @property
    def controllers(self) -> list[int]:
        """Brokers that believe to be the controller."""
        return [one.broker_id for one in self.brokers.values() if one.is_controller]

    def controller(self) -> Candidate:
        """The one controller, once every live broker has its full command."""
        self.until(lambda: len(self.controllers) == 1)
        [found] = self.controllers
        self.until(
            lambda: all("F" in one.script.kinds() for one in self.brokers.values() if one.is_up)
        )
        return self.brokers[found]

    def ask(self, candidate: Candidate, ask: Callable[[ControllerRuntime], Any]) -> list[Any]:
        """A request to a broker's controller; the answer appears in the list."""
        answers: list[Any] = []
        reply = ask(candidate.controller)
        if isinstance(reply, Pending):
            reply.deliver_to(answers.append)
        else:
            answers.append(reply)
        return answers

    def answer(self, candidate: Candidate, ask: Callable[[ControllerRuntime], Any]) -> Any:
        """The answer to a request, once it is there."""
        answers = self.ask(candidate, ask)
        self.until(lambda: bool(answers))
        return answers[0]

    def create(self, candidate: Candidate, name: str, *replicas: tuple[int, ...]) -> Any:
        """Ask for a topic with these replicas; the result."""
        answers = self.begin_create(candidate, name, *replicas)
        self.until(lambda: bool(answers))
        [result] = answers[0].topics
        return result

    def begin_create(
        self, candidate: Candidate, name: str, *replicas: tuple[int, ...]
    ) -> list[Any]:
        """Ask for a topic with these replicas; the answer appears in the list."""
        wanted = CreatableTopic(
            name,
            -1,
            -1,
            [CreatableReplicaAssignment(number, one) for number, one in enumerate(replicas)],
        )
        request = CreateTopicsRequest(topics=[wanted])
        return self.ask(candidate, lambda shell: shell.create_topics(request, no_topics))

    def delete(self, candidate: Candidate, name: str, timeout_ms: int = 30_000) -> list[Any]:
        """Ask for a topic to be deleted; the answer appears in the list."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)
        return self.ask(candidate, lambda shell: shell.delete_topics(request, no_deletion))

    def grow(self, candidate: Candidate, name: str, count: int) -> Any:
        """Ask for a topic to have so many partitions; the result."""
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, count)])
        answer = self.answer(
            candidate, lambda shell: shell.create_partitions(request, no_partitions)
        )
        [result] = answer.results
        return result

    def shrink(self, candidate: Candidate, name: str, count: int, *, drain: bool = False) -> Any:
        """Ask for a topic to have no more than so many partitions; the result."""
        request = RemovePartitionsRequest([RemovePartitionsTopic(name, count, drain)])
        answer = self.answer(candidate, lambda shell: shell.ask(request, no_removal))
        [result] = answer.results
        return result

    def assignments(self, name: str) -> dict[int, tuple[int, ...]]:
        """What the topic's node says."""
        path = layout.topic_path(name)
        node = self.read(path)
        assert node is not None
        return dict(layout.decode_topic(path, node.data).partitions)

    def edit(self, name: str, assignments: dict[int, tuple[int, ...]]) -> None:
        """Write other partitions into a topic's node, as a tool would."""
        path = layout.topic_path(name)
        node = self.read(path)
        assert node is not None
        topic_id = layout.decode_topic(path, node.data).topic_id
        data = layout.encode_topic(TopicAssignment(topic_id, assignments))
        self.write(SetData(path, data, ANY_VERSION))

    def elect(
        self, candidate: Candidate, *wanted: TopicPartition, unclean: bool = False
    ) -> list[ErrorCode]:
        """Ask for leaders; the partitions' outcomes."""
        request = ElectLeadersRequest(
            election_type=1 if unclean else 0,
            topic_partitions=[TopicPartitions(one.topic, [one.partition]) for one in wanted],
        )
        answer = self.answer(candidate, lambda shell: shell.ask(request, no_election))
        return [
            ErrorCode(one.error_code)
            for topic in answer.replica_election_results
            for one in topic.partition_result
        ]

    def shut_down(
        self, candidate: Candidate, broker_id: int, broker_epoch: int | None = None
    ) -> ControlledShutdownResponse:
        """Ask for the controlled shutdown of a broker; the answer."""
        if broker_epoch is None:
            broker_epoch = self.brokers[broker_id].broker_epoch
        request = ControlledShutdownRequest(broker_id, broker_epoch)
        answer: ControlledShutdownResponse = self.answer(
            candidate, lambda shell: shell.ask(request, no_shutdown)
        )
        return answer

    def alter(self, candidate: Candidate, request: AlterPartitionRequest) -> list[Any]:
        """Ask for ISRs; the answer appears in the list."""
        return self.ask(candidate, lambda shell: shell.alter_partition(request, 3, not_controller))


def others(around: ControllerHarness, controller: Candidate) -> list[Candidate]:
    """The brokers beside the controller."""
    return [one for one in around.brokers.values() if one is not controller]


def no_topics() -> CreateTopicsResponse:
    """What a broker that is not the controller says."""
    return CreateTopicsResponse(topics=[CreatableTopicResult(error_code=ErrorCode.NOT_CONTROLLER)])


def no_deletion() -> DeleteTopicsResponse:
    """What a broker that is not the controller says."""
    return DeleteTopicsResponse(throttle_time_ms=-1)


def no_partitions() -> CreatePartitionsResponse:
    """What a broker that is not the controller says."""
    refused = CreatePartitionsTopicResult(error_code=ErrorCode.NOT_CONTROLLER)
    return CreatePartitionsResponse(results=[refused])


def no_removal() -> RemovePartitionsResponse:
    """The answer of a broker that is not the controller."""
    return RemovePartitionsResponse(
        results=[RemovePartitionsTopicResult("", ErrorCode.NOT_CONTROLLER)]
    )


def no_election() -> ElectLeadersResponse:
    """What a broker that is not the controller says."""
    return ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)


def no_shutdown() -> ControlledShutdownResponse:
    """What a broker that is not the controller says."""
    return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)


def not_controller() -> AlterPartitionResponse:
    """What a broker that is not the controller says."""
    return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)


@contextmanager
def controller_harness(count: int = 3, **properties: str) -> Iterator[ControllerHarness]:
    """A harness for one test."""
    with CollectorPaused():
        made = ControllerHarness(count, **properties)
        try:
            yield made
        finally:
            made.world.close()
