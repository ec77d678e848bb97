"""A fake cluster whose partitions are placed and can be moved; moves take as long as a test says.

Every broker answers for the whole cluster. A move of one step: its replicas change at once, or stay
under way while `holds` is true, until `finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.support.client.fake_cluster import FakeCluster

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    QueuedReassignment,
)
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.registry import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)

Replicas = tuple[int, ...]


class FakePlacement(FakeCluster):
    """Brokers from 1 on; `dead` ones hold replicas and answer nothing."""

    def __init__(self, count: int, racks: str = "") -> None:
        super().__init__(count)
        self.racks = dict(enumerate(racks, 1))
        self.dead: set[int] = set()
        self.replicas: dict[TopicPartition, Replicas] = {}
        self.leaders: dict[TopicPartition, int] = {}
        #: Bytes of a partition's replicas, by broker; 1,000 unless named.
        self.sizes: dict[tuple[TopicPartition, int], int] = {}
        self.isr: dict[TopicPartition, Replicas] = {}
        self.moves: dict[TopicPartition, tuple[Replicas, Replicas]] = {}
        #: Moves that wait for their turn, and the throttles that requests brought along.
        self.queued: dict[TopicPartition, Replicas] = {}
        self.throttles: list[int] = []
        self.queues = False
        self.configs: dict[str, str] = {}
        #: Whether moves stay under way, and codes with which partitions refuse them.
        self.holds = False
        self.refusals: Mapping[TopicPartition, ErrorCode] = {}
        #: Called before each list of moves: what happens from one look to the next.
        self.before_list: Callable[[], None] = lambda: None
        #: Codes with which partitions refuse elections.
        self.refused_elections: Mapping[TopicPartition, ErrorCode] = {}
        for broker in self.brokers:
            broker.on(METADATA, self._describe)
            broker.on(ALTER_PARTITION_REASSIGNMENTS, self._alter)
            broker.on(LIST_PARTITION_REASSIGNMENTS, self._list)
            broker.on(ELECT_LEADERS, self._elect)
            broker.on(DESCRIBE_CONFIGS, self._configs)
            broker.on(DESCRIBE_LOG_DIRS, partial(self._log_dirs, broker.node_id))

    def place(self, topic: str, *replicas: Replicas) -> None:
        """Create a topic with these replicas of its partitions; the first ones lead."""
        for number, each in enumerate(replicas):
            tp = TopicPartition(topic, number)
            self.replicas[tp] = each
            self.leaders[tp] = next((it for it in each if it not in self.dead), NO_LEADER)

    def finish(self) -> None:
        """End every move that is under way."""
        for tp, (_, target) in self.moves.items():
            self.replicas[tp] = target
            if self.leaders[tp] not in target:
                self.leaders[tp] = target[0]
        self.moves.clear()

    def _describe(self, request: MetadataRequest) -> MetadataResponse:
        names = sorted({tp.topic for tp in self.replicas})
        wanted = names if request.topics is None else [each.name or "" for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    each.node_id, "127.0.0.1", each.port, self.racks.get(each.node_id)
                )
                for each in self.brokers
                if each.node_id not in self.dead
            ],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[self._placed(name) for name in wanted],
        )

    def _placed(self, name: str) -> MetadataResponseTopic:
        own = sorted(tp for tp in self.replicas if tp.topic == name)
        partitions = []
        for tp in own:
            added, _ = self.moves.get(tp, ((), ()))
            replicas = (*self.replicas[tp], *added)
            isr = self.isr.get(tp, tuple(it for it in self.replicas[tp] if it not in self.dead))
            partitions.append(
                MetadataResponsePartition(0, tp.partition, self.leaders[tp], 0, replicas, isr, [])
            )
        return MetadataResponseTopic(
            error_code=0 if own else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            name=name,
            topic_id=self.topic_id(name),
            partitions=partitions,
        )

    def _alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        self.throttles.append(request.throttle)
        self.queues = request.queued
        return AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    topic.name, [self._begin(topic.name, each) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _begin(self, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
        tp = TopicPartition(topic, wanted.partition_index)
        code = self.refusals.get(tp, ErrorCode.NONE)
        if wanted.expected_replicas and tuple(wanted.expected_replicas) != self.replicas[tp]:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        target = tuple(wanted.replicas or ())
        if code is ErrorCode.NONE and self.queues:
            self.queued[tp] = target
        elif code is ErrorCode.NONE:
            self.moves[tp] = (tuple(it for it in target if it not in self.replicas[tp]), target)
            if not self.holds:
                self.finish()
        return ReassignablePartitionResponse(
            wanted.partition_index, code, "refused here" if code else None
        )

    def _list(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        self.before_list()
        topics = []
        for name in sorted({tp.topic for tp in self.moves}):
            ongoing = []
            for tp, (added, target) in sorted(self.moves.items()):
                before = self.replicas[tp]
                gone = [each for each in before if each not in target]
                move = OngoingPartitionReassignment(
                    tp.partition, [*target, *gone], list(added), gone, list(before)
                )
                if tp.topic == name and _asks_for(request, tp):
                    ongoing.append(move)
            topics.append(OngoingTopicReassignment(name, ongoing))
        waiting = [
            QueuedReassignment(tp.topic, tp.partition, list(target), "because")
            for tp, target in self.queued.items()
        ]
        return ListPartitionReassignmentsResponse(topics=topics, queued=waiting, knows_queue=True)

    def _elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        results = []
        for topic in request.topic_partitions or []:
            outcomes = []
            for number in topic.partitions:
                tp = TopicPartition(topic.topic, number)
                code = self.refused_elections.get(tp, ErrorCode.NONE)
                if code is ErrorCode.NONE:
                    if self.leaders[tp] == self.replicas[tp][0]:
                        code = ErrorCode.ELECTION_NOT_NEEDED
                    self.leaders[tp] = self.replicas[tp][0]
                outcomes.append(PartitionResult(number, code, "because"))
            results.append(ReplicaElectionResult(topic.topic, outcomes))
        return ElectLeadersResponse(replica_election_results=results)

    def _configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        entries = [
            DescribeConfigsResourceResult(name=name, value=value, config_source=1)
            for name, value in self.configs.items()
        ]
        resource = request.resources[0]
        result = DescribeConfigsResult(
            0, None, resource.resource_type, resource.resource_name, entries
        )
        return DescribeConfigsResponse(results=[result])

    def _log_dirs(self, node_id: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        topics: dict[str, DescribeLogDirsTopic] = {}
        for tp, replicas in sorted(self.replicas.items()):
            added, _ = self.moves.get(tp, ((), ()))
            asked = request.topics is None or any(
                each.topic == tp.topic and tp.partition in each.partitions
                for each in request.topics
            )
            if asked and node_id in (*replicas, *added):
                size = self.sizes.get((tp, node_id), 0 if node_id in added else 1_000)
                topic = topics.setdefault(tp.topic, DescribeLogDirsTopic(tp.topic, []))
                topic.partitions.append(DescribeLogDirsPartition(tp.partition, size, 0, False))
        directory = DescribeLogDirsResult(0, "/data", list(topics.values()), 10**9, 10**9)
        return DescribeLogDirsResponse(results=[directory])


def _asks_for(request: ListPartitionReassignmentsRequest, tp: TopicPartition) -> bool:
    if request.topics is None:
        return True
    return any(
        each.name == tp.topic and tp.partition in each.partition_indexes for each in request.topics
    )
