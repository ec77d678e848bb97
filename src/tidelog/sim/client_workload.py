"""The workload of one run: producers, consumers, groups, and changes of topics.

The run's profile and its reduction (`reductions`: what a shrunk run leaves out) decide which
clients take part. `workload/work` starts each client.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.sim.profiles import Profile
from tidelog.sim.reductions import Only
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.administrator import Administrator, Churn
from tidelog.sim.workload.churn_kinds import Churning
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.group_clients import FAMILIES, Committer, GroupPlan, SimMember
from tidelog.sim.workload.shared_producers import begin_shared
from tidelog.sim.workload.work import Workload

_STEADY_TOPIC: Final = "steady"
_VOLATILE_TOPIC: Final = "volatile"
_CHANGING_TOPIC: Final = "changing"
#: Topic in which a single producer writes to all partitions.
_SHARED_TOPIC: Final = "shared"
_SHARED_PARTITIONS: Final = 3
#: Highest Fetch versions of consumers that behave like old clients.
_FETCH_VERSIONS: Final = (4, 7, 11, 12, 13, 15)
#: Settings of a partition's second producer, of which one is drawn: (acks, whether the producer is
#: idempotent).
_STYLES: Final = ((-1, False), (1, False), (-1, True), (0, False))


class ClientWorkload(Workload):
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
        """Create the administrator, which is the client that creates the topics of the run.

        `draw` is a random stream of the run; `partitions` is the number of partitions of the topic
        `steady`.
        """
        super().__init__(seed, cluster, profile, only, draw)
        self.partitions = partitions
        self.steady = [TopicPartition(_STEADY_TOPIC, n) for n in range(partitions)]
        #: A client that creates, changes and deletes a topic all the time (churn), if the profile
        #: has it.
        self.churn: Churn | None = None
        #: Further kinds of changes of topics (`workload/churn_kinds`), if the profile has any.
        self.churning: Churning | None = None
        self._admin = Administrator(self.client(), stream(seed, "admin"))
        self._churns = profile.churns and only.topics
        self._shares = profile.shared_producer and only.clients

    # Topics

    def create_topics(self) -> Callable[[], bool]:
        """Let an admin client create the topics; return a function that returns whether all topics
        exist.
        """
        admin = self._admin
        tasks = [
            admin.client.tasks.spawn(
                f"create {name}",
                admin.create(name, partitions, self.replication_factor, self._configs),
            )
            for name, partitions in self._topics()
        ]
        return lambda: all(task.done() for task in tasks)

    @property
    def _configs(self) -> dict[str, str]:
        """Configuration of the topics that the run creates.

        If the profile has compaction, `cleanup.policy` is set on each topic instead of the brokers,
        as most users do.
        """
        compaction = {"cleanup.policy": "compact"} if self.profile.compacted else {}
        return {**self.topic_configs, **compaction}

    def _topics(self) -> list[tuple[str, int]]:
        topics = [(_STEADY_TOPIC, self.partitions)]
        if self.only.topics:
            topics += [(_VOLATILE_TOPIC, 1)]
        if self._shares:
            topics += [(_SHARED_TOPIC, _SHARED_PARTITIONS)]
        return [*topics, (_CHANGING_TOPIC, 1)] if self._churns else topics

    # Work

    def begin(self) -> None:
        """Start all clients."""
        partitions = list(self.steady)
        if self.only.topics:
            partitions.append(TopicPartition(_VOLATILE_TOPIC, 0))
        writers = [self.client(), self.client()]
        reader = self.client()
        for partition in partitions:
            self._work_on(partition, writers, reader)
        self._begin_groups()
        if self._churns:
            self._begin_churn()
        profile = self.profile
        if (profile.churn_share or profile.churn) and self.only.topics:
            self.churning = Churning(self, profile.churn_share, always=profile.churn)
            self.churning.begin()
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
        self.produce(writers[0], partition)
        acks, idempotent = _STYLES[draw.randrange(len(_STYLES))]
        if self.only.clients:
            self.produce(writers[1], partition, acks=acks, idempotent=idempotent)
        self.consume(reader, partition)
        if draw.random() < 0.3 and self.only.clients:
            self.consume(reader, partition, draw.choice(_FETCH_VERSIONS))

    def _begin_recreations(self) -> None:
        admin, profile = self._admin, self.profile
        admin.chooses_replicas = profile.chosen_replicas
        if self._draw.random() < profile.recreates and self.only.topics:
            making = admin.recreate_now_and_then(
                _VOLATILE_TOPIC, 1, self.replication_factor, self._configs, profile.topic_life_ms
            )
            admin.client.tasks.spawn("recreate", making)

    def _begin_sharing(self) -> None:
        """Start one idempotent producer that writes to all partitions of a topic, like a producer
        of librdkafka.
        """
        writer, reader = self.client(), self.client()
        draws = [stream(self.seed, "shared producer", n) for n in range(_SHARED_PARTITIONS)]
        shared = begin_shared(writer, _SHARED_TOPIC, _SHARED_PARTITIONS, self.numbers, draws)
        if self.profile.overtaking_share:
            shared.overtaking = self.profile.overtaking_share, stream(self.seed, "overtaking")
        self.producers += shared.partitions
        for number in range(_SHARED_PARTITIONS):
            self.consume(reader, TopicPartition(_SHARED_TOPIC, number))

    def _begin_churn(self) -> None:
        """Start a client that changes a topic all the time, and producers and consumers of its
        partitions.
        """
        admin, writer, reader = self.client(), self.client(), self.client()

        def work(partition: TopicPartition) -> None:
            self.produce(writer, partition)
            self.consume(reader, partition)

        work(TopicPartition(_CHANGING_TOPIC, 0))
        churn = self.churn = Churn(admin, stream(self.seed, "churn"), _CHANGING_TOPIC, work)
        admin.tasks.spawn("churn", churn.run())

    def _begin_groups(self) -> None:
        """Start three members of a group, and a client that only commits offsets. In some runs, two
        of the members are static.
        """
        draw = self._draw
        groups = self.cluster.groups
        shared = GroupPlan("shared", _STEADY_TOPIC, self.partitions)
        shared.has_static_members = draw.random() < 0.3
        for number in range(3):
            is_static = shared.has_static_members and number > 0
            self.join(
                SimMember(
                    self.client(),
                    shared,
                    groups,
                    stream(self.seed, "member", number),
                    FAMILIES[0] if is_static else draw.choice(FAMILIES),
                    instance_id=f"instance-{number}" if is_static else None,
                )
            )
        alone = GroupPlan("committer", _STEADY_TOPIC, self.partitions)
        family = draw.choice(FAMILIES)
        self.join(Committer(self.client(), alone, groups, stream(self.seed, "committer"), family))

    # Results

    def changes(self) -> dict[str, int]:
        """Return how often clients changed the cluster during faults, by kind of change.

        The kinds are, for example, the creation of a topic, the addition of a partition, and the
        change of a topic's configuration.
        """
        lives = self.cluster.history.topics.values()
        return {
            "topics made anew": len(lives) - len({life.name for life in lives}),
            "partitions added": self.churn.partitions - 1 if self.churn is not None else 0,
            "configs altered": self.churn.alterations if self.churn is not None else 0,
            "groups rebalanced": self.cluster.groups.rebalances,
            **({} if self.churning is None else self.churning.counts),
        }
