"""BlockingClient: the Kafka client of `tidelog.client` over plain sockets, without an event loop.

The command line, the Spark source and tests use the client. A client has one connection per broker,
opened when needed, and sends one request at a time. Each thread needs its own client.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar

from tidelog.client import metrics
from tidelog.client.admin import TopicAdmin
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.configs import ConfigAdmin
from tidelog.client.consuming import GroupConsumer, PartitionConsumer
from tidelog.client.coordinators import Coordinators
from tidelog.client.directory_moves import DirectoryMoveAdmin
from tidelog.client.fetching import (
    EARLIEST,
    FetchedPartition,
    FetchOptions,
    LogReader,
)
from tidelog.client.groups import GroupAdmin
from tidelog.client.heartbeats import Heartbeats
from tidelog.client.membership import GroupMember, MemberOptions
from tidelog.client.move_sampling import MoveSampler
from tidelog.client.moving import MoveAdmin
from tidelog.client.producing import LogWriter
from tidelog.client.replica_requests import ReplicaAdmin
from tidelog.client.routing import ClusterRouter
from tidelog.client.sending import RecordSender, SendOptions
from tidelog.client.steps import NO_ANSWER, Address, Call, Operation, Pause, Response, T
from tidelog.client.stray_requests import StrayAdmin
from tidelog.client.upkeep import PartitionAdmin
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.limits import MIB
from tidelog.core.types import READ_UNCOMMITTED, TopicPartition
from tidelog.runtime.blocking_consumer import Background, BlockingConsumer, BlockingGroupConsumer
from tidelog.runtime.broker_connection import BrokerConnection

#: Default size of a fetch, less than the 50 MiB of Kafka's consumer (`fetch.max.bytes`), because
#: this client decodes one response at a time.
DEFAULT_FETCH_BYTES: Final = 8 * MIB


A = TypeVar("A")
P = ParamSpec("P")


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _runs(
    admin: Callable[[BlockingClient], A], method: Callable[Concatenate[A, P], Operation[T]]
) -> Callable[Concatenate[BlockingClient, P], T]:
    """Return a method of BlockingClient that runs a method of one of the client's admin objects.

    The returned method has the arguments, the result and the errors of `method`.
    """

    @functools.wraps(method)
    def run(client: BlockingClient, /, *args: P.args, **named: P.kwargs) -> T:
        return client.run(method(admin(client), *args, **named))

    return run


class BlockingClient:
    """A Kafka client for one thread. Retriable errors are retried until `timeout_ms`.

    All methods raise KafkaError if the cluster rejects a request, and ProtocolError if the peer is
    not a Kafka broker. Methods raise ConnectionLost or RequestTimeout if no broker responds;
    NotSent means that the request had no effect.
    """

    def __init__(
        self, bootstrap: str, client_id: str = "tidelog", timeout_ms: int = 30_000
    ) -> None:
        """Connect lazily to `bootstrap`, `host:port,...`; raise ConfigError for any other text."""
        #: Whether any broker has responded yet.
        self.is_reached = False
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._connections: dict[Address, BrokerConnection] = {}
        self._backgrounds: list[Background] = []
        self._router = ClusterRouter(
            parse_bootstrap(bootstrap), timeout_ms, _monotonic_ms, saves_time=True
        )
        self._admin = TopicAdmin(self._router)
        self._reader = LogReader(self._router)
        self._writer = LogWriter(self._router)
        self._configs = ConfigAdmin(self._router)
        self._upkeep = PartitionAdmin(self._router)
        self._strays = StrayAdmin(self._router)
        self._directory_moves = DirectoryMoveAdmin(self._router)
        self._replicas = ReplicaAdmin(self._router)
        self._moves = MoveAdmin(self._router)
        self._sampler = MoveSampler(self._router, self._moves, self._upkeep)
        self._coordinators = Coordinators(self._router)
        self._groups = GroupAdmin(self._router, self._coordinators)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client may be used again.

        `close` also ends the heartbeat threads of open group consumers; each consumer's next poll
        starts its thread again.
        """
        for background in self._backgrounds:
            background.end()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- cluster and topics ---------------------------------------------------------------------

    metadata = _runs(lambda it: it._router, ClusterRouter.metadata)
    create_topic = _runs(lambda it: it._admin, TopicAdmin.create)
    delete_topic = _runs(lambda it: it._admin, TopicAdmin.delete)
    add_partitions = _runs(lambda it: it._admin, TopicAdmin.add_partitions)
    remove_partitions = _runs(lambda it: it._admin, TopicAdmin.remove_partitions)
    partition_counts = _runs(lambda it: it._admin, TopicAdmin.partition_counts)
    brokers_knowing = _runs(lambda it: it._admin, TopicAdmin.live_on)
    await_topic = _runs(lambda it: it._admin, TopicAdmin.await_leaders)

    # -- configuration and upkeep ---------------------------------------------------------------

    @property
    def timeout_ms(self) -> int:
        """The time in ms for which a failed call is retried before its error is final."""
        return self._router.timeout_ms

    @timeout_ms.setter
    def timeout_ms(self, timeout_ms: int) -> None:
        self._router.timeout_ms = timeout_ms

    describe_configs = _runs(lambda it: it._configs, ConfigAdmin.describe)
    describe_all_configs = _runs(lambda it: it._configs, ConfigAdmin.describe_all)
    alter_configs = _runs(lambda it: it._configs, ConfigAdmin.alter)
    elect_leaders = _runs(lambda it: it._upkeep, PartitionAdmin.elect_leaders)
    delete_records = _runs(lambda it: it._upkeep, PartitionAdmin.delete_records)
    describe_log_dirs = _runs(lambda it: it._upkeep, PartitionAdmin.describe_log_dirs)
    mark_log_dirs_bad = _runs(lambda it: it._upkeep, PartitionAdmin.mark_log_dirs_bad)
    reassign = _runs(lambda it: it._moves, MoveAdmin.reassign)
    cancel_reassignments = _runs(lambda it: it._moves, MoveAdmin.cancel)
    freeze_reassignments = _runs(lambda it: it._moves, MoveAdmin.freeze)
    reassignments = _runs(lambda it: it._moves, MoveAdmin.moves)
    list_reassignments = _runs(lambda it: it._moves, MoveAdmin.list_reassignments)
    sample_moves = _runs(lambda it: it._sampler, MoveSampler.sample)
    move_replicas = _runs(lambda it: it._directory_moves, DirectoryMoveAdmin.move)
    plan_drain = _runs(lambda it: it._directory_moves, DirectoryMoveAdmin.plan_drain)
    plan_balance = _runs(lambda it: it._directory_moves, DirectoryMoveAdmin.plan_balance)
    eligibility = _runs(lambda it: it._replicas, ReplicaAdmin.eligibility)
    describe_replicas = _runs(lambda it: it._replicas, ReplicaAdmin.describe)
    broker_metrics = _runs(lambda it: it._router, metrics.broker_metrics)
    list_strays = _runs(lambda it: it._strays, StrayAdmin.list_strays)
    alter_strays = _runs(lambda it: it._strays, StrayAdmin.alter)

    # -- groups ---------------------------------------------------------------------------------

    list_groups = _runs(lambda it: it._groups, GroupAdmin.list_groups)
    describe_group = _runs(lambda it: it._groups, GroupAdmin.describe)
    delete_group = _runs(lambda it: it._groups, GroupAdmin.delete)
    committed = _runs(lambda it: it._groups, GroupAdmin.committed)
    commit = _runs(lambda it: it._groups, GroupAdmin.commit)
    delete_offsets = _runs(lambda it: it._groups, GroupAdmin.delete_offsets)

    # -- reading --------------------------------------------------------------------------------

    list_offsets = _runs(lambda it: it._reader, LogReader.list_offsets)
    positions = _runs(lambda it: it._reader, LogReader.positions)

    def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        *,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> FetchedPartition:
        """Return record batches from `offset` on; wait up to `max_wait_ms` for new records.

        The first batch may begin below `offset`, and the last batch may be partial. Raises
        KafkaError, with OFFSET_OUT_OF_RANGE if `offset` lies outside the log.
        """
        options = FetchOptions(max_bytes, max_bytes, min_bytes, max_wait_ms, isolation_level)
        fetched = self.run(self._reader.fetch({tp: offset}, options))[tp]
        if fetched.error is not ErrorCode.NONE:
            raise KafkaError(fetched.error, f"fetching {tp} from offset {offset}")
        return fetched

    def fetch_many(
        self,
        offsets: Mapping[TopicPartition, int],
        max_bytes: int = DEFAULT_FETCH_BYTES,
        *,
        partition_max_bytes: int | Mapping[TopicPartition, int] = MIB,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FetchedPartition]:
        """Fetch several partitions, one request per leader; each result has an `error`.

        `partition_max_bytes` is one limit for all partitions, or the limit of each partition.
        """
        options = FetchOptions(
            max_bytes, partition_max_bytes, min_bytes, max_wait_ms, isolation_level
        )
        return self.run(self._reader.fetch(offsets, options))

    def consumer(self, isolation_level: int = READ_UNCOMMITTED) -> BlockingConsumer:
        """Return a consumer of partitions; reads start at the offsets given to `seek`."""
        return BlockingConsumer(self, PartitionConsumer(self._reader, isolation_level))

    def group_consumer(
        self,
        options: MemberOptions,
        start: int = EARLIEST,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> BlockingGroupConsumer:
        """Return a consumer that reads as a member of a group.

        The consumer starts at the group's committed offsets. A partition without a committed offset
        is read from `start`: EARLIEST, LATEST, or the first record not older than a timestamp in
        ms.
        """
        partitions = PartitionConsumer(self._reader, isolation_level)
        member = GroupMember(self._router, self._coordinators, self._groups, options)

        def starts(
            wanted: Iterable[TopicPartition],
        ) -> Operation[dict[TopicPartition, int]]:
            return self._reader.positions(dict.fromkeys(wanted, start), isolation_level)

        beside = BlockingClient(self._bootstrap, self._client_id, self._router.timeout_ms)
        heartbeats = Heartbeats(member, beside._router, _monotonic_ms)

        def beat() -> int:
            beside._router.learn(self._router)
            return beside.run(heartbeats.beat())

        consumer = GroupConsumer(
            member, self._groups, partitions, starts, _monotonic_ms, heartbeats
        )
        background = Background(beat, beside.close)
        self._backgrounds.append(background)
        return BlockingGroupConsumer(self, consumer, background)

    # -- writing --------------------------------------------------------------------------------

    produce = _runs(lambda it: it._writer, LogWriter.produce)
    init_producer_id = _runs(lambda it: it._writer, LogWriter.init_producer_id)

    def sender(
        self,
        topic: str,
        partitions: Sequence[int],
        options: SendOptions,
        first_partition: int = 0,
    ) -> RecordSender:
        """Return a sender that collects records into batches; `run` executes its operations.

        `partitions` are the partitions of the topic.
        """
        return RecordSender(self._writer, topic, partitions, options, first_partition)

    # -- driving --------------------------------------------------------------------------------

    def run(self, operation: Operation[T]) -> T:
        """Execute the calls that an operation yields until the operation returns."""
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.delay_ms / 1000)
                    step = operation.send(NO_ANSWER)
                    continue
                try:
                    answer = self._call(step)
                except TidelogError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _call(self, call: Call) -> Response:
        connection = self._connections.pop(call.address, None)
        if connection is not None and not connection.is_idle:
            connection.close()  # closed by the broker: this request was not sent
            connection = None
        if connection is None:
            connection = BrokerConnection(call.address, self._client_id, call.timeout_ms)
        try:
            answer = connection.exchange(call)
        except KafkaError:  # no common API version: the request was not sent
            self._connections[call.address] = connection
            raise
        except BaseException:  # a late response may still arrive, so close the connection
            connection.close()
            raise
        self._connections[call.address] = connection
        self.is_reached = True
        return answer
