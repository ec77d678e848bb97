"""Functions that each start one client of a run: a producer, a consumer or a member of a group.

Each client is a separate node with its own random stream. The cluster's history records the
responses that clients get.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.sim.profiles import Profile
from tidelog.sim.reductions import Only
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.group_clients import Committer, SimMember
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer
from tidelog.sim.workload.partition_producers import Numbers, PartitionProducer

_FIRST_CLIENT_ID: Final = 101
_CLIENT_TIMEOUT_MS: Final = 4_000
#: Highest Produce versions of producers: None means the newest, the others are those of old
#: clients.
_PRODUCE_VERSIONS: Final = (None, None, 3, 7, 8, 9)
_MIN_ISR: Final = "min.insync.replicas"


class Workload:
    """All clients of one run, and the parts of the run that they use."""

    def __init__(
        self, seed: int, cluster: SimCluster, profile: Profile, only: Only, draw: random.Random
    ) -> None:
        """Begin without clients; `draw` is a random stream of the run."""
        self.seed = seed
        self.cluster = cluster
        self.profile = profile
        self.only = only
        #: Partitions of the topic `steady`, which exist during the whole run.
        self.steady: Sequence[TopicPartition] = ()
        self.producers: list[PartitionProducer] = []
        self.consumers: list[SimPartitionConsumer] = []
        self.members: list[SimMember | Committer] = []
        #: Number of replicas of each partition.
        self.replication_factor = 3
        self.numbers = Numbers()
        self._draw = draw
        self._clients: list[ClientNode] = []

    @property
    def topic_configs(self) -> dict[str, str]:
        """Configuration of new topics: `min.insync.replicas` from the policy or the profile."""
        return {_MIN_ISR: self.profile.properties.get(_MIN_ISR, "2")}

    def client(self) -> ClientNode:
        """Add a client process."""
        node_id = _FIRST_CLIENT_ID + len(self._clients)
        cluster = self.cluster
        node = cluster.simulator.add_node(node_id, f"client{node_id}")
        client = ClientNode(node, cluster.history, cluster.bootstrap, _CLIENT_TIMEOUT_MS)
        self._clients.append(client)
        return client

    def produce(
        self,
        client: ClientNode,
        partition: TopicPartition,
        *,
        acks: int = -1,
        idempotent: bool = True,
        keyed: bool = False,
        timed: bool = True,
    ) -> PartitionProducer:
        """Start a producer of one partition; with `timed` False, its records have no timestamps."""
        number = len(self.producers)
        producer = PartitionProducer(
            client,
            partition,
            self.numbers,
            stream(self.seed, "producer", number),
            acks=acks,
            idempotent=idempotent,
            pace_ms=self._draw.choice((30, 100, 300)),
            highest_version=self._draw.choice(_PRODUCE_VERSIONS),
            keyed=keyed or self.profile.compacted,
            timed=timed,
        )
        self.producers.append(producer)
        client.tasks.spawn(f"produce {number}", producer.run())
        return producer

    def consume(
        self,
        client: ClientNode,
        partition: TopicPartition,
        highest_version: int | None = None,
        *,
        gaps: bool = False,
    ) -> SimPartitionConsumer:
        """Start a consumer of one partition; `gaps` means that its records may be compacted."""
        number = len(self.consumers)
        consumer = SimPartitionConsumer(
            client,
            partition,
            stream(self.seed, "consumer", number),
            highest_version=highest_version,
            gaps=gaps or self.profile.compacted,
            is_patient=self.profile.patient_fetches,
        )
        self.consumers.append(consumer)
        client.tasks.spawn(f"consume {number}", consumer.run())
        return consumer

    def join(self, member: SimMember | Committer) -> None:
        """Start a member of a group, if groups take part; the final phase waits for its work."""
        if self.only.groups and self.profile.has_groups:
            self.members.append(member)
            member.client.tasks.spawn(f"member {len(self.members)}", member.run())

    def visit(self, member: SimMember) -> None:
        """Start a member that will leave its group before the run ends; the final phase does not
        wait for its work.
        """
        member.client.tasks.spawn("guest", member.run())
