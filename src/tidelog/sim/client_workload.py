"""The workload of one run: producers, consumers, groups, and changes of topics.

Each client is a node of its own with its own random stream. The cluster's history records the
responses that clients get.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.sim.profiles import Profile
from tidelog.sim.reductions import Only
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.churn import Churn
from tidelog.sim.workload.churn_kinds import Churning, Work
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.group_clients import FAMILIES, Committer, GroupMember, GroupPlan
from tidelog.sim.workload.partition_consumers import PartitionConsumer
from tidelog.sim.workload.partition_producers import Numbers, PartitionProducer
from tidelog.sim.workload.shared_producers import begin_shared

_FIRST_CLIENT_ID: Final = 101
_CLIENT_TIMEOUT_MS: Final = 4_000
_STEADY_TOPIC: Final = "steady"
_VOLATILE_TOPIC: Final = "volatile"
_CHANGING_TOPIC: Final = "changing"
#: Topic to which one producer writes all partitions.
_SHARED_TOPIC: Final = "shared"
_SHARED_PARTITIONS: Final = 3
#: Highest API versions of clients: the newest (None), and those of old client families.
_PRODUCE_VERSIONS: Final = (None, None, 3, 7, 8, 9)
_FETCH_VERSIONS: Final = (4, 7, 11, 12, 13, 15)
#: Configuration of each new topic, unless a policy sets another value for the brokers.
_TOPIC_CONFIGS: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}


class ClientWorkload:
    """All clients of a run."""

    def __init__(
        self,
        seed: int,
        cluster: SimCluster,
        profile: Profile,
        only: Only,
        draw: random.Random,
        partitions: int,
    ) -> None:
        """Create the administrator.

        `draw` is the run's own stream; `partitions` is the number of the steady topic's partitions.
        """
        self._seed = seed
        self._cluster = cluster
        self._profile = profile
        self._only = only
        self._draw = draw
        self.partitions = partitions
        self._clients: list[ClientNode] = []
        self.producers: list[PartitionProducer] = []
        self.consumers: list[PartitionConsumer] = []
        self.members: list[GroupMember | Committer] = []
        #: Churn that changes a topic all the time, if the profile has it.
        self.churn: Churn | None = None
        #: All other churn, if the profile has it.
        self.churning: Churning | None = None
        self._numbers = Numbers()
        self._admin = Administrator(self.client(), stream(seed, "admin"))

    def client(self) -> ClientNode:
        """Add a client."""
        node_id = _FIRST_CLIENT_ID + len(self._clients)
        cluster = self._cluster
        node = cluster.simulator.add_node(node_id, f"client{node_id}")
        client = ClientNode(node, cluster.history, cluster.bootstrap, _CLIENT_TIMEOUT_MS)
        self._clients.append(client)
        return client

    # Topics

    def create_topics(self) -> Callable[[], bool]:
        """Let the administrator create the topics; return a function that checks for completion."""
        admin = self._admin
        tasks = [
            admin.client.tasks.spawn(
                f"create {name}",
                admin.create(name, partitions, self._replicas, self._topic_configs()),
            )
            for name, partitions in self._topics()
        ]
        return lambda: all(task.done() for task in tasks)

    @property
    def _replicas(self) -> int:
        return self._profile.replicas

    def _topic_configs(self) -> dict[str, str]:
        """Return the configuration of a new topic.

        Compaction is configured for each topic in the store, as by most users.
        """
        compaction = {"cleanup.policy": "compact"} if self._profile.compacted else {}
        return {**self._minimum, **compaction}

    @property
    def _minimum(self) -> dict[str, str]:
        properties = self._profile.properties
        return {name: properties.get(name, value) for name, value in _TOPIC_CONFIGS.items()}

    def _topics(self) -> list[tuple[str, int]]:
        topics = [(_STEADY_TOPIC, self.partitions)]
        if self._only.topics:
            topics += [(_VOLATILE_TOPIC, 1)]
        if self._shares:
            topics += [(_SHARED_TOPIC, _SHARED_PARTITIONS)]
        return [*topics, (_CHANGING_TOPIC, 1)] if self._churns else topics

    @property
    def _churns(self) -> bool:
        return self._profile.churns and self._only.topics

    @property
    def _shares(self) -> bool:
        return self._profile.shared_producer and self._only.clients

    # Work

    def begin(self) -> None:
        """Start all clients."""
        partitions = [TopicPartition(_STEADY_TOPIC, n) for n in range(self.partitions)]
        if self._only.topics:
            partitions.append(TopicPartition(_VOLATILE_TOPIC, 0))
        writers = [self.client(), self.client()]
        reader = self.client()
        for partition in partitions:
            self._work_on(partition, writers, reader)
        self._begin_groups()
        if self._churns:
            self._begin_churn()
        if (self._profile.churn_share or self._profile.churn) and self._only.topics:
            self._begin_churning(partitions[:-1])
        self._begin_recreations()
        if self._shares:
            self._begin_sharing()

    def stop_changing(self) -> None:
        """Stop all changes of topics; producers and consumers continue."""
        self._admin.stopping = True
        if self.churn is not None:
            self.churn.stopping = True
        if self.churning is not None:
            self.churning.stop()

    def _work_on(
        self, partition: TopicPartition, writers: list[ClientNode], reader: ClientNode
    ) -> None:
        draw = self._draw
        self.produce(writers[0], partition, acks=-1, idempotent=True)
        style = draw.randrange(4)
        if not self._only.clients:
            pass
        elif style == 0:
            self.produce(writers[1], partition, acks=-1, idempotent=False)
        elif style == 1:
            self.produce(writers[1], partition, acks=1, idempotent=False)
        elif style == 2:
            self.produce(writers[1], partition, acks=-1, idempotent=True)
        else:
            self.produce(writers[1], partition, acks=0, idempotent=False)
        self.consume(reader, partition, None)
        if draw.random() < 0.3 and self._only.clients:
            self.consume(reader, partition, draw.choice(_FETCH_VERSIONS))

    def _begin_recreations(self) -> None:
        admin, profile = self._admin, self._profile
        admin.chooses_replicas = profile.chosen_replicas
        if self._draw.random() < profile.recreates and self._only.topics:
            making = admin.recreate_now_and_then(
                _VOLATILE_TOPIC, 1, self._replicas, self._topic_configs(), profile.topic_life_ms
            )
            admin.client.tasks.spawn("recreate", making)

    def _begin_sharing(self) -> None:
        """Start an idempotent producer for all partitions of a topic, as librdkafka has."""
        writer, reader = self.client(), self.client()
        draws = [stream(self._seed, "shared producer", n) for n in range(_SHARED_PARTITIONS)]
        shared = begin_shared(writer, _SHARED_TOPIC, _SHARED_PARTITIONS, self._numbers, draws)
        if self._profile.overtaking_share:
            shared.overtake(self._profile.overtaking_share, stream(self._seed, "overtaking"))
        self.producers += shared.partitions
        for number in range(_SHARED_PARTITIONS):
            self.consume(reader, TopicPartition(_SHARED_TOPIC, number), None)

    def _begin_churn(self) -> None:
        """Start to change a topic all the time, with producers and consumers of its partitions."""
        admin, writer, reader = self.client(), self.client(), self.client()

        def work(partition: TopicPartition) -> None:
            self.produce(writer, partition, acks=-1, idempotent=True)
            self.consume(reader, partition, None)

        work(TopicPartition(_CHANGING_TOPIC, 0))
        churn = self.churn = Churn(admin, stream(self._seed, "churn"), _CHANGING_TOPIC, work)
        admin.tasks.spawn("churn", churn.run())

    def _begin_churning(self, steady: list[TopicPartition]) -> None:
        work = Work(
            self._seed,
            self._cluster,
            self._replicas,
            self._minimum,
            steady,
            self.client,
            self.produce,
            self.consume,
            self._join,
        )
        profile = self._profile
        self.churning = Churning(work, profile.churn_share, always=profile.churn)
        self.churning.begin()

    def produce(
        self,
        client: ClientNode,
        partition: TopicPartition,
        *,
        acks: int,
        idempotent: bool,
        keyed: bool = False,
        timed: bool = True,
    ) -> PartitionProducer:
        """Start a producer of one partition; unless it is `timed`, records have no timestamps."""
        number = len(self.producers)
        producer = PartitionProducer(
            client,
            partition,
            self._numbers,
            stream(self._seed, "producer", number),
            acks=acks,
            idempotent=idempotent,
            pace_ms=self._draw.choice((30, 100, 300)),
            highest_version=self._draw.choice(_PRODUCE_VERSIONS),
            keyed=keyed or self._profile.compacted,
            timed=timed,
        )
        self.producers.append(producer)
        client.tasks.spawn(f"produce {number}", producer.run())
        return producer

    def consume(
        self,
        client: ClientNode,
        partition: TopicPartition,
        highest_version: int | None,
        *,
        gaps: bool = False,
    ) -> PartitionConsumer:
        """Start a consumer of one partition; `gaps`: its records may be compacted."""
        number = len(self.consumers)
        consumer = PartitionConsumer(
            client,
            partition,
            stream(self._seed, "consumer", number),
            highest_version=highest_version,
            gaps=gaps or self._profile.compacted,
            is_patient=self._profile.patient_fetches,
        )
        self.consumers.append(consumer)
        client.tasks.spawn(f"consume {number}", consumer.run())
        return consumer

    # Groups

    def _begin_groups(self) -> None:
        """Start three members of one group, in some runs two of them static, and a committer."""
        draw = self._draw
        groups = self._cluster.groups
        shared = GroupPlan("shared", _STEADY_TOPIC, self.partitions)
        shared.has_static_members = draw.random() < 0.3
        for number in range(3):
            is_static = shared.has_static_members and number > 0
            self._add_member(
                GroupMember(
                    self.client(),
                    shared,
                    groups,
                    stream(self._seed, "member", number),
                    FAMILIES[0] if is_static else draw.choice(FAMILIES),
                    instance_id=f"instance-{number}" if is_static else None,
                )
            )
        alone = GroupPlan("committer", _STEADY_TOPIC, self.partitions)
        family = draw.choice(FAMILIES)
        committer = Committer(self.client(), alone, groups, stream(self._seed, "committer"), family)
        self._add_member(committer)

    def _join(self, member: GroupMember, *, stays: bool) -> None:
        """Start a member that joins during the run; the final phase expects one that `stays`."""
        if stays:
            self._add_member(member)
        else:
            member.client.tasks.spawn("guest", member.run())

    def _add_member(self, member: GroupMember | Committer) -> None:
        if not (self._only.groups and self._profile.has_groups):
            return
        self.members.append(member)
        member.client.tasks.spawn(f"member {len(self.members)}", member.run())

    # Results

    def changes(self) -> dict[str, int]:
        """Return the number of changes while faults happened, by kind."""
        lives = self._cluster.history.topics.values()
        return {
            "topics made anew": len(lives) - len({life.name for life in lives}),
            "partitions added": self.churn.partitions - 1 if self.churn is not None else 0,
            "configs altered": self.churn.alterations if self.churn is not None else 0,
            "groups rebalanced": self._cluster.groups.rebalances,
            **({} if self.churning is None else self.churning.counts),
        }
