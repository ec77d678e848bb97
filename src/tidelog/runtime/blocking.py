"""BlockingClient: the Kafka client of `tidelog.client` over plain sockets, without a loop.

For the command line, the Spark source and tests. One connection per broker, opened when needed, one
request at a time. Not for several threads at once: each thread needs its own client.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from tidelog.client.admin import TopicAdmin
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.client.configs import ConfigAdmin, ConfigChange, ConfigResource, ConfigValue
from tidelog.client.consuming import GroupConsumer, PartitionConsumer
from tidelog.client.coordinators import Coordinators
from tidelog.client.directory_moves import DirectoryMoveAdmin, PlannedMove
from tidelog.client.fetching import (
    EARLIEST,
    FetchedPartition,
    FetchOptions,
    ListedOffset,
    LogReader,
)
from tidelog.client.groups import CommittedOffset, GroupAdmin, GroupDescription, GroupListing
from tidelog.client.heartbeats import Heartbeats
from tidelog.client.membership import GroupMember, MemberOptions
from tidelog.client.metrics import Sample, broker_metrics
from tidelog.client.move_sampling import MoveSampler, MoveSamples
from tidelog.client.moving import MoveAdmin, MoveAsked, Moves, MoveUnderWay
from tidelog.client.producing import LogWriter
from tidelog.client.replica_requests import Eligibility, PartitionReplicas, ReplicaAdmin
from tidelog.client.routing import ClusterRouter
from tidelog.client.sending import RecordSender, SendOptions
from tidelog.client.steps import NO_ANSWER, Address, Answer, Call, Operation, Pause, T
from tidelog.client.stray_requests import StrayAction, StrayAdmin, StrayAltered, StrayReplica
from tidelog.client.upkeep import Election, ElectionType, LogDirectory, PartitionAdmin
from tidelog.core.errors import (
    ErrorCode,
    KafkaError,
    TidelogError,
)
from tidelog.core.limits import MIB
from tidelog.core.ports import Buffer
from tidelog.core.types import READ_UNCOMMITTED, TopicId, TopicPartition
from tidelog.runtime.blocking_consumer import Background, BlockingConsumer, BlockingGroupConsumer
from tidelog.runtime.broker_connection import BrokerConnection

#: `fetch.max.bytes` of Kafka's consumer is 50 MiB; this client decodes one response at a time.
DEFAULT_FETCH_BYTES: Final = 8 * MIB


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class BlockingClient:
    """A Kafka client for one thread. Retriable errors are retried until `timeout_ms`.

    All methods raise KafkaError where the cluster rejects a request, and ProtocolError where the
    peer is not a Kafka broker. They raise ConnectionLost or RequestTimeout where no broker
    responds, as NotSent where the request had no effect.
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
        self._router = ClusterRouter(parse_bootstrap(bootstrap), timeout_ms, _monotonic_ms)
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

        Group members that were not closed send no heartbeats until they poll.
        """
        for background in self._backgrounds:
            background.end()
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()

    # -- cluster and topics ---------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        """Return brokers, controller, and the topics named (None: all). Never creates a topic.

        Errors of single topics and partitions are in the result.
        """
        return self.run(self._router.metadata(topics))

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
    ) -> TopicId:
        """Create a topic at the controller; -1 takes the cluster's default. Return its id.

        `assignment`: partition number to replicas, the preferred leader first.
        """
        configs = {} if configs is None else configs
        return self.run(
            self._admin.create(name, partitions, replication_factor, configs, assignment)
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic at the controller."""
        self.run(self._admin.delete(name))

    def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Give a topic more partitions, `count` in all; `assignments`: replicas of each new one."""
        self.run(self._admin.add_partitions(name, count, assignments))

    def remove_partitions(
        self, name: str, count: int, *, drain: bool = False, validate_only: bool = False
    ) -> None:
        """Request that all but the first `count` partitions of a topic be removed."""
        self.run(
            self._admin.remove_partitions(name, count, drain=drain, validate_only=validate_only)
        )

    def partition_counts(self, name: str) -> dict[int, int]:
        """Return how many partitions of a topic each live broker knows."""
        return self.run(self._admin.partition_counts(name))

    def brokers_knowing(self, name: str) -> list[int]:
        """Return the live brokers that know a topic.

        The list is empty once the topic's deletion has reached all of them.
        """
        return self.run(self._admin.live_on(name))

    def await_topic(self, name: str, min_isr: int = 1) -> TopicMetadata:
        """Wait until every partition has a leader and at least `min_isr` in-sync replicas."""
        return self.run(self._admin.await_leaders(name, min_isr))

    # -- configuration and upkeep ---------------------------------------------------------------

    def describe_configs(
        self,
        resource: ConfigResource,
        keys: Sequence[str] | None = None,
        *,
        with_synonyms: bool = False,
    ) -> list[ConfigValue]:
        """Return the configuration of a topic, a broker or all brokers; some keys of it, or all."""
        return self.run(self._configs.describe(resource, keys, with_synonyms))

    @property
    def timeout_ms(self) -> int:
        """How long a call may take before its error is final."""
        return self._router.timeout_ms

    @timeout_ms.setter
    def timeout_ms(self, timeout_ms: int) -> None:
        self._router.timeout_ms = timeout_ms

    def describe_all_configs(
        self,
        resources: Sequence[ConfigResource],
        keys: Sequence[str] | None = None,
        *,
        with_synonyms: bool = False,
    ) -> dict[ConfigResource, list[ConfigValue]]:
        """Return the configurations of several topics, or of one broker, with one request."""
        return self.run(self._configs.describe_all(resources, keys, with_synonyms))

    def alter_configs(
        self,
        resource: ConfigResource,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some keys of a resource, or only check whether they could be changed."""
        self.run(self._configs.alter(resource, changes, validate_only))

    def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Election]:
        """Elect the leaders of some partitions, or of all; errors of each are in the result."""
        return self.run(self._upkeep.elect_leaders(election, partitions))

    def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        expected: Mapping[TopicPartition, tuple[int, ...]] | None = None,
        queued: bool = False,
        throttle: int | None = None,
    ) -> dict[TopicPartition, MoveAsked]:
        """Reassign partitions to brokers, or cancel with None; errors of each are in the result.

        A partition among `expected` is refused where it has other replicas by now (R18). `queued`
        reassignments begin as the limits of the queue allow (R8). `throttle`, in bytes a second,
        goes with them (R4).
        """
        return self.run(
            self._moves.reassign(targets, expected=expected, queued=queued, throttle=throttle)
        )

    def cancel_reassignments(
        self, ended: Mapping[TopicPartition, Collection[tuple[int, ...]]]
    ) -> dict[TopicPartition, MoveAsked]:
        """End reassignments to these targets, under way or queued; without targets those to any.

        One to another target goes on: it is newer than what the caller knows.
        """
        return self.run(self._moves.cancel(ended))

    def freeze_reassignments(self, is_frozen: bool) -> None:
        """Let no reassignment begin from now on, or end that (R11)."""
        self.run(self._moves.freeze(is_frozen))

    def reassignments(self, partitions: Iterable[TopicPartition] | None = None) -> Moves:
        """Return the reassignments under way and queued, and whether they are frozen."""
        return self.run(self._moves.moves(partitions))

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, MoveUnderWay]:
        """Return the reassignments under way, of some partitions or of all."""
        return self.run(self._moves.list_reassignments(partitions))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below each offset; return the new low watermarks.

        HIGH_WATERMARK as offset deletes all.
        """
        return self.run(self._upkeep.delete_records(before))

    def describe_log_dirs(
        self, broker_id: int, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirectory]:
        """Return the log directories of a broker, with all of their replicas or some of them."""
        return self.run(self._upkeep.describe_log_dirs(broker_id, partitions))

    def mark_log_dirs_bad(self, broker_id: int, paths: Sequence[str]) -> None:
        """Have a broker give up log directories as if they had failed."""
        self.run(self._upkeep.mark_log_dirs_bad(broker_id, paths))

    def move_replicas(
        self, broker_id: int, directories: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Have replicas of a broker in these log directories; return the outcome of each (D11)."""
        return self.run(self._directory_moves.move(broker_id, directories))

    def plan_drain(self, broker_id: int, paths: Sequence[str]) -> list[PlannedMove]:
        """Return where the replicas of log directories would go in a drain (D12)."""
        return self.run(self._directory_moves.plan_drain(broker_id, paths))

    def plan_balance(
        self, broker_id: int, threshold_percent: int | None = None
    ) -> list[PlannedMove]:
        """Return the moves that would balance the log directories of a broker (D15)."""
        return self.run(self._directory_moves.plan_balance(broker_id, threshold_percent))

    def sample_moves(self) -> MoveSamples:
        """Return one sample of each reassignment under way, for a `ProgressMeter` (R16)."""
        return self.run(self._sampler.sample())

    def eligibility(self, topics: Sequence[str]) -> dict[TopicPartition, Eligibility]:
        """Return the eligible leader replicas of topics, and who is awaited without a leader."""
        return self.run(self._replicas.eligibility(topics))

    def describe_replicas(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionReplicas]:
        """Return the replicas of partitions as a broker knows them; the leader knows the most."""
        return self.run(self._replicas.describe(broker_id, partitions))

    def broker_metrics(self, broker_id: int, names: Sequence[str] | None = None) -> list[Sample]:
        """Return the numbers that a broker keeps of itself, of these metrics (None: all)."""
        return self.run(broker_metrics(self._router, broker_id, names))

    def list_strays(self, broker_id: int) -> list[StrayReplica]:
        """Return the replicas that a broker has set aside."""
        return self.run(self._strays.list_strays(broker_id))

    def alter_strays(
        self, action: StrayAction, strays: Sequence[StrayReplica]
    ) -> list[StrayAltered]:
        """Delete or restore strays of one broker; errors of each are in the result."""
        return self.run(self._strays.alter(action, strays))

    # -- groups ---------------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """Return all groups by name."""
        return self.run(self._groups.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """Return state and members of a group; the state of a missing group is Dead."""
        return self.run(self._groups.describe(group))

    def delete_group(self, group: str) -> None:
        """Delete an empty group with its offsets."""
        self.run(self._groups.delete(group))

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group for some partitions, or for all."""
        return self.run(self._groups.committed(group, partitions))

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set offsets of a group that has no members."""
        self.run(self._groups.commit(group, offsets))

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of these partitions."""
        self.run(self._groups.delete_offsets(group, partitions))

    # -- reading --------------------------------------------------------------------------------

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation_level: int = READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the first offset not older than each timestamp; -1 latest, -2 earliest."""
        return self.run(self._reader.list_offsets(timestamps, isolation_level))

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
        """Return record batches from `offset` on; none without new records in `max_wait_ms`.

        The first batch may begin below `offset`, the last may be partial. Raises KafkaError, with
        OFFSET_OUT_OF_RANGE when the log begins later or ends earlier.
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
        partition_max_bytes: int = MIB,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FetchedPartition]:
        """Fetch several partitions like `fetch`, one request per leader; results hold errors."""
        options = FetchOptions(
            max_bytes, partition_max_bytes, min_bytes, max_wait_ms, isolation_level
        )
        return self.run(self._reader.fetch(offsets, options))

    def consumer(self, isolation_level: int = READ_UNCOMMITTED) -> BlockingConsumer:
        """Return a consumer that reads partitions record by record, from the offsets of `seek`."""
        return BlockingConsumer(self, PartitionConsumer(self._reader, isolation_level))

    def group_consumer(
        self,
        options: MemberOptions,
        start: int = EARLIEST,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> BlockingGroupConsumer:
        """Return a consumer that reads as a member of a group.

        It starts at the group's committed offsets, else at `start`: EARLIEST, LATEST, or the first
        record not older than a timestamp in milliseconds.
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

    def produce(
        self, tp: TopicPartition, batch: Buffer, acks: int = -1, timeout_ms: int = 10_000
    ) -> int:
        """Append a record batch v2 that the caller built; return its base offset.

        Raises OutcomeUnknownError where the broker may or may not have stored a batch without
        producer id.
        """
        return self.run(self._writer.produce(tp, batch, acks, timeout_ms))

    def sender(
        self,
        topic: str,
        partitions: Sequence[int],
        options: SendOptions,
        first_partition: int = 0,
    ) -> RecordSender:
        """Return a sender that collects records into batches; `run` its operations.

        `partitions`: the partitions of the topic.
        """
        return RecordSender(self._writer, topic, partitions, options, first_partition)

    def init_producer_id(self) -> tuple[int, int]:
        """Return a new producer id and epoch for idempotent batches."""
        return self.run(self._writer.init_producer_id())

    # -- driving --------------------------------------------------------------------------------

    def run(self, operation: Operation[T]) -> T:
        """Make the calls that an operation yields until it returns."""
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

    def _call(self, call: Call) -> Answer:
        connection = self._connections.pop(call.address, None)
        if connection is not None and not connection.socket.is_idle:
            connection.socket.close()  # closed by the broker meanwhile: nothing was sent on it
            connection = None
        if connection is None:
            connection = BrokerConnection(call.address, self._client_id, call.timeout_ms)
        try:
            answer = connection.exchange(call, self._client_id)
        except KafkaError:  # no version in common: nothing was sent
            self._connections[call.address] = connection
            raise
        except BaseException:  # a late response may still arrive, so close the connection
            connection.socket.close()
            raise
        self._connections[call.address] = connection
        self.is_reached = True
        return answer
