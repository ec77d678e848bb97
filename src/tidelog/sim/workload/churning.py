"""Kinds of churn: changes by administrators, producers and members while faults happen.

Each kind is a class with a name, registered here. It works until it is stopped, and counts
acknowledged operations. `sim.client_workload` starts the kinds that a seed draws. After the faults,
`sim.final_phase` waits until they are done and settled.
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
    """Starts a producer, which writes to a partition until it is stopped.

    Unless it is `timed`, its records carry no timestamps.
    """

    def __call__(
        self,
        client: ClientNode,
        partition: TopicPartition,
        *,
        acks: int,
        idempotent: bool,
        keyed: bool = False,
        timed: bool = True,
    ) -> PartitionProducer: ...


class Consume(Protocol):
    """Starts a consumer of a partition; `gaps`: the partition is compacted."""

    def __call__(
        self,
        client: ClientNode,
        partition: TopicPartition,
        highest_version: int | None,
        *,
        gaps: bool = False,
    ) -> PartitionConsumer: ...


class Join(Protocol):
    """Starts a group member; with `stays` it is a member until the run ends."""

    def __call__(self, member: GroupMember, *, stays: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Work:
    """The parts of a run that churn uses."""

    seed: int
    cluster: SimCluster
    #: Number of replicas of each partition.
    replication_factor: int
    #: Configuration of new topics.
    topic_configs: Mapping[str, str]
    #: Partitions that exist all the time.
    steady: Sequence[TopicPartition]
    #: Adds a client process.
    client: Callable[[], ClientNode]
    produce: Produce
    consume: Consume
    join: Join


class ChurnKind(ABC):
    """One kind of churn in one run."""

    #: Name of the kind in counts and tables.
    name: ClassVar[str]
    #: Whether seeds draw the kind; if not, only profiles that name it play it.
    is_drawn: ClassVar[bool] = True

    def __init__(self, work: Work, draw: random.Random) -> None:
        self.work = work
        self.draw = draw
        self.client = work.client()
        self.stopping = False
        self.is_done = False
        #: Number of acknowledged operations.
        self.acknowledged = 0

    @abstractmethod
    async def run(self) -> None:
        """Work until stopped, then set `is_done`."""

    def unsettled(self) -> str:
        """Return a condition that does not hold yet after the churn is done; empty if all hold.

        The final phase calls this until it returns nothing, within the limit of liveness.
        """
        return ""

    async def pause(self, from_ms: int, to_ms: int) -> None:
        """Wait a random time."""
        await self.client.tasks.sleep(self.draw.randrange(from_ms, to_ms))

    def succeeded(self, what: str) -> None:
        """Count and trace an acknowledged operation."""
        self.acknowledged += 1
        self.client.ports.tracer.event("churn", kind=self.name, what=what)

    def failed(self, what: str, error: Exception) -> None:
        """Trace an operation that was not acknowledged."""
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
    """The churn of one run: the kinds that its seed draws, each with its own random stream."""

    def __init__(
        self,
        work: Work,
        share: float,
        leave_out: Collection[str] = (),
        always: Collection[str] = (),
    ) -> None:
        """Draw the kinds.

        `share` is the average share of kinds that a seed draws. `leave_out` names drawn kinds that
        are not played. `always` names kinds that every seed plays. Raises ValueError for an unknown
        name.
        """
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
        """Start all kinds."""
        for each in self.kinds:
            each.client.tasks.spawn(f"churn {each.name}", each.run())

    def stop(self) -> None:
        """Stop all kinds; each finishes its work first."""
        for each in self.kinds:
            each.stopping = True

    def unfinished(self) -> str:
        """Return a kind that is not done or not settled yet; empty if there is none."""
        for each in self.kinds:
            problem = each.unsettled() if each.is_done else "is not done"
            if problem:
                return f"{each.name}: {problem}"
        return ""

    @property
    def counts(self) -> dict[str, int]:
        """Number of acknowledged operations, by kind."""
        return {each.name: each.acknowledged for each in self.kinds}
