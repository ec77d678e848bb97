"""Kinds of churn: what administrators, producers and members do to a cluster while faults happen.

Each kind is a class with a name, registered here, that works until it is told to stop and counts
what was acknowledged. `sim.run` starts those that a seed draws, and waits for them to be done and
settled when the faults are over.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeVar

from tidelog.core.types import TopicPartition
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.group_clients import GroupMember
from tidelog.sim.workload.partition_consumers import PartitionConsumer
from tidelog.sim.workload.partition_producers import PartitionProducer

T = TypeVar("T", bound="type[ChurnKind]")


class Produce(Protocol):
    """Let a client write to a partition until the run ends or the producer is told to stop."""

    def __call__(
        self,
        client: ClientNode,
        partition: TopicPartition,
        *,
        acks: int,
        idempotent: bool,
        keyed: bool = False,
    ) -> PartitionProducer: ...


class Consume(Protocol):
    """Let a client read a partition; `gaps`: it is compacted."""

    def __call__(
        self,
        client: ClientNode,
        partition: TopicPartition,
        highest_version: int | None,
        *,
        gaps: bool = False,
    ) -> PartitionConsumer: ...


class Join(Protocol):
    """Let a member work; one that stays is a member when the run ends."""

    def __call__(self, member: GroupMember, *, stays: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Work:
    """The run, as far as churn has to do with it."""

    seed: int
    cluster: SimCluster
    #: Replicas of each topic.
    replication_factor: int
    #: What topics are made with.
    topic_configs: Mapping[str, str]
    #: Partitions that are there all the time.
    steady: Sequence[TopicPartition]
    #: One more client process.
    client: Callable[[], ClientNode]
    produce: Produce
    consume: Consume
    join: Join


class ChurnKind(ABC):
    """One kind of churn in one run."""

    #: Its name in counts and tables.
    name: ClassVar[str]
    #: Whether seeds draw it; else only profiles play it that name it.
    is_drawn: ClassVar[bool] = True

    def __init__(self, work: Work, draw: random.Random) -> None:
        self.work = work
        self.draw = draw
        self.client = work.client()
        self.stopping = False
        self.is_done = False
        #: Operations that were acknowledged.
        self.acknowledged = 0

    @abstractmethod
    async def run(self) -> None:
        """Go on until stopped, then set `is_done`."""

    def unsettled(self) -> str:
        """What is not yet as it must be when the faults are over and all is done; empty: nothing.
        It is asked until nothing is left, within the time that liveness has."""
        return ""

    async def pause(self, from_ms: int, to_ms: int) -> None:
        """Wait a drawn time."""
        await self.client.tasks.sleep(self.draw.randrange(from_ms, to_ms))

    def told(self, what: str) -> None:
        """Something was acknowledged."""
        self.acknowledged += 1
        self.client.ports.tracer.event("churn", kind=self.name, what=what)

    def failed(self, what: str, error: Exception) -> None:
        """Something was not acknowledged."""
        self.client.ports.tracer.event("churn failed", kind=self.name, what=what, error=str(error))


#: Every kind by name.
CHURN: Final[dict[str, type[ChurnKind]]] = {}


def churn(kind: T) -> T:
    """Register a kind of churn under its name."""
    if kind.name in CHURN:
        raise ValueError(f"there are two kinds of churn named {kind.name!r}")
    CHURN[kind.name] = kind
    return kind


class Churning:
    """The churn of one run: those kinds that its seed draws, each with draws of its own."""

    def __init__(
        self,
        work: Work,
        share: float,
        leave_out: Collection[str] = (),
        always: Collection[str] = (),
    ) -> None:
        """`share`: how many of the kinds a seed draws, on average. `leave_out` names kinds that are
        not played though they are drawn, `always` kinds that are played by every seed; ValueError
        for one that is none."""
        for what, names in (("leave out", leave_out), ("play always", always)):
            unknown = [name for name in names if name not in CHURN]
            if unknown:
                raise ValueError(
                    f"no kinds of churn to {what}: {', '.join(unknown)}; there are"
                    f" {', '.join(CHURN)}"
                )
        self.kinds: list[ChurnKind] = []
        for name, make in CHURN.items():
            draw = stream(work.seed, "churn", name)
            is_drawn = draw.random() < share and make.is_drawn
            if (is_drawn or name in always) and name not in leave_out:
                self.kinds.append(make(work, draw))

    def begin(self) -> None:
        """Let all of them work."""
        for each in self.kinds:
            each.client.tasks.spawn(f"churn {each.name}", each.run())

    def stop(self) -> None:
        """Let all of them come to their end."""
        for each in self.kinds:
            each.stopping = True

    def unfinished(self) -> str:
        """What is not done or not as it must be yet; empty: nothing."""
        for each in self.kinds:
            problem = each.unsettled() if each.is_done else "is not done"
            if problem:
                return f"{each.name}: {problem}"
        return ""

    @property
    def counts(self) -> dict[str, int]:
        """How many operations of each kind were acknowledged."""
        return {each.name: each.acknowledged for each in self.kinds}
