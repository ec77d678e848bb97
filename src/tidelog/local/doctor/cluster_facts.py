"""The facts about a running cluster that the doctor knows, as plain values without I/O.

`cluster_survey` reads the facts; the modules of findings judge them. None or an empty text means
that a fact is unknown, never that the cluster is healthy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tidelog.client.cluster import ClusterMetadata, PartitionMetadata
from tidelog.client.move_progress import MoveProgress
from tidelog.client.moving import Moves
from tidelog.client.replica_requests import PartitionReplicas
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.wire.registry import FIRST_OWN_KEY


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A registered broker as this machine and the controller see it."""

    broker_id: int
    host: str
    port: int
    #: The reason why the broker did not respond to this machine; empty if it responded.
    silence: str = ""
    #: Lowest and highest version of each API that the broker serves, by API key.
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: The value of inter.broker.protocol.version.
    protocol_level: str | None = None
    #: How many ms the broker's clock is ahead of this machine's clock.
    clock_ahead_ms: int | None = None
    #: The maximum error of `clock_ahead_ms`, in ms.
    clock_doubt_ms: int = 0
    #: Whether the controller has waited too long for the broker to acknowledge its commands.
    is_overdue: bool = False

    @property
    def serves_own_apis(self) -> bool:
        """Whether the broker serves, at its address, the APIs that only tidelog has."""
        return any(key >= FIRST_OWN_KEY for key in self.versions)

    @property
    def address(self) -> str:
        """The broker's advertised address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The states of a group at the survey's two readings, and its facts at the second reading.

    `lag` is the number of unread records in each partition.
    """

    group: str
    coordinator: int
    states: tuple[str, str]
    members: int
    lag: Mapping[TopicPartition, int]
    #: Whether any committed offset of the group changed between the two readings.
    has_advanced: bool

    @property
    def behind(self) -> list[TopicPartition]:
        """The partitions with records that the group has not consumed."""
        return sorted(tp for tp, records in self.lag.items() if records > 0)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as the survey read it.

    `watched_s` is the time between the survey's two readings; 0 if the survey read only once.
    """

    bootstrap: str
    metadata: ClusterMetadata
    brokers: Sequence[BrokerFacts] = ()
    #: min.insync.replicas by topic.
    minimums: Mapping[str, int] = field(default_factory=dict)
    #: Partitions with replicas out of the ISR, as their leaders describe them.
    described: Mapping[TopicPartition, PartitionReplicas] = field(default_factory=dict)
    moves: Moves | None = None
    progress: Sequence[MoveProgress] = ()
    groups: Sequence[GroupFacts] = ()
    watched_s: float = 0.0
    #: Sentences about facts that could not be read.
    unexamined: Sequence[str] = ()

    def is_registered(self, broker_id: int) -> bool:
        """Return whether a broker is registered."""
        return broker_id in self.metadata.brokers

    def answers(self, broker_id: int) -> bool:
        """Return whether a broker is registered and has responded to this machine."""
        return any(each.broker_id == broker_id and not each.silence for each in self.brokers)

    def partitions_of(self, topic: str) -> list[tuple[TopicPartition, PartitionMetadata]]:
        """Return the partitions of a topic in order; empty if there is no such topic."""
        found = self.metadata.topics.get(topic)
        if found is None:
            return []
        return [(TopicPartition(topic, number), each) for number, each in found.partitions.items()]
