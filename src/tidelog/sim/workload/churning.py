"""Kinds of churn: changes by administrators, producers and members while faults happen.

Each kind of churn (such changes) is a class, registered here under its name in snake case. An
object of this class makes changes until it is stopped, and counts acknowledged operations.
`sim.client_workload` starts the kinds of churn that a seed draws. After the faults,
`sim.final_phase` waits until all kinds of churn are done and the cluster shows their changes.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import ClassVar, Final, TypeVar

from tidelog.client.configs import ConfigAdmin, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.seeds import stream
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer
from tidelog.sim.workload.partition_producers import PartitionProducer
from tidelog.sim.workload.work import Workload

T = TypeVar("T", bound="type[ChurnKind]")

_REMOVE: Final = ConfigOperation.DELETE
_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class ChurnKind(ABC):
    """One kind of churn in one run."""

    #: Name of the kind of churn in counts and tables.
    name: ClassVar[str]
    #: Whether every seed may draw this kind of churn; otherwise only profiles that name the kind
    #: use it.
    is_drawn: ClassVar[bool]
    #: Shortest and longest time in ms before each change; None if `act` itself waits.
    pause_ms: ClassVar[tuple[int, int] | None] = None

    def __init__(self, work: Workload, draw: random.Random) -> None:
        self.work = work
        self.draw = draw
        self.client = work.client()
        self.admin = Administrator(self.client, draw)
        self.admin.takes_existing = True
        self.stopping = False
        self.is_done = False
        #: Number of acknowledged operations.
        self.acknowledged = 0
        self._configs = ConfigAdmin(self.client.router)

    async def run(self) -> None:
        """Work until stopped, then set `is_done`."""
        await self.begin()
        while not self.stopping:
            if self.pause_ms is not None:
                await self.pause(*self.pause_ms)
            await self.act()
        await self.finish()
        self.is_done = True

    async def begin(self) -> None:  # noqa: B027  # few kinds prepare anything
        """Create the topics that this kind of churn needs; by default none."""

    @abstractmethod
    async def act(self) -> None:
        """Make one change of the cluster, or a few changes that belong together."""

    async def finish(self) -> None:  # noqa: B027  # few kinds leave anything behind
        """End lasting changes that would make the final phase fail; by default nothing."""

    def unsettled(self) -> str:
        """After the churn is done, describe a condition that the cluster does not fulfil yet; empty
        if there is none.

        The final phase waits until every kind of churn returns an empty text.
        """
        return ""

    # Means of the kinds

    async def pause(self, from_ms: int, to_ms: int) -> None:
        """Wait a random time."""
        await self.client.tasks.sleep(self.draw.randrange(from_ms, to_ms))

    def succeeded(self, what: str) -> None:
        """Count an acknowledged operation, and add a line to the trace."""
        self.acknowledged += 1
        self.client.ports.tracer.event("churn", kind=self.name, what=what)

    def failed(self, what: str, error: Exception) -> None:
        """Add a line to the trace about an operation that was not acknowledged."""
        self.client.ports.tracer.event("churn failed", kind=self.name, what=what, error=str(error))

    @contextmanager
    def tried(self, what: str, *, forgets: bool = False) -> Iterator[None]:
        """Suppress an error of the operation that runs in the context, and add a line to the trace.

        With `forgets`, the client drops its cached metadata after an error.
        """
        try:
            yield
        except TidelogError as error:
            self.failed(what, error)
            if forgets:
                self.client.router.forget()

    async def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] = _NO_CONFIGS
    ) -> None:
        """Create a topic; retry until it exists."""
        work = self.work
        every = {**work.topic_configs, **configs}
        await self.admin.create(topic, partitions, work.replication_factor, every)

    def topic_id(self, topic: str) -> TopicId:
        """Return the id of a topic that exists."""
        return self.work.cluster.published.topics[topic].topic_id

    def key(self, partition: TopicPartition) -> LogKey:
        """Return the key of a partition.

        The topic must exist, and clients must never remove partitions from it.
        """
        return LogKey(self.topic_id(partition.topic), partition.partition)

    async def alter(
        self,
        resource: ConfigResource,
        values: Mapping[str, str | None],
        what: str,
        detail: str = "",
    ) -> bool:
        """Set configuration keys in one request, and remove the keys without a value.

        Return whether the request is acknowledged; if so, add a line with `what` and `detail` to
        the trace.
        """
        changes = [
            ConfigChange(_REMOVE if value is None else ConfigOperation.SET, key, value)
            for key, value in values.items()
        ]
        with self.tried(what):
            await self.client.run(self._configs.alter(resource, changes, False))
            self.succeeded(what + detail)
            return True
        return False

    async def until_done(self, ask: Callable[[], Awaitable[bool]]) -> None:
        """Repeat a request until it is acknowledged."""
        while not await ask():
            self.client.router.forget()
            await self.pause(50, 300)


class OfTopics(ChurnKind):
    """A kind of churn that produces to and consumes from its topics."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self.admin.chooses_replicas = 0.3
        self.writer, self.reader = work.client(), work.client()

    def work_on(self, partition: TopicPartition) -> tuple[PartitionProducer, SimPartitionConsumer]:
        """Start a producer and a consumer of a partition."""
        producer = self.work.produce(self.writer, partition)
        return producer, self.work.consume(self.reader, partition)

    def stop_work_on(
        self, partition: TopicPartition, producer: PartitionProducer, consumer: SimPartitionConsumer
    ) -> None:
        """Stop the producer and the consumer of a partition, which will then be removed."""
        self.client.history.removal_begins(*partition)
        producer.abandon()
        consumer.stopping = True


#: Every kind of churn by its name.
CHURN: Final[dict[str, type[ChurnKind]]] = {}


def churn(kind: T) -> T:
    """Register a kind of churn that seeds draw."""
    return _register(kind, is_drawn=True)


def churn_of_profiles(kind: T) -> T:
    """Register a kind of churn that takes part only in profiles that name it."""
    return _register(kind, is_drawn=False)


def _register(kind: T, *, is_drawn: bool) -> T:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    if name in CHURN:
        raise ValueError(f"there are two kinds of churn named {name!r}")
    kind.name, kind.is_drawn = name, is_drawn
    CHURN[name] = kind
    return kind


class Churning:
    """The churn of one run: the kinds that its seed draws, each with its own random stream."""

    def __init__(self, work: Workload, share: float, always: Collection[str] = ()) -> None:
        """Draw the kinds of churn for a run.

        `share` is the average share of the kinds that a seed draws. `always` names kinds that every
        run has. Raises ValueError for an unknown kind.
        """
        unknown = [name for name in always if name not in CHURN]
        if unknown:
            raise ValueError(
                f"no kinds of churn: {', '.join(unknown)}; there are {', '.join(CHURN)}"
            )
        self.kinds: list[ChurnKind] = []
        for name, make in CHURN.items():
            draw = stream(work.seed, "churn", name)
            is_drawn = draw.random() < share and make.is_drawn
            if is_drawn or name in always:
                self.kinds.append(make(work, draw))

    def begin(self) -> None:
        """Start all kinds."""
        for each in self.kinds:
            each.client.tasks.spawn(f"churn {each.name}", each.run())

    def stop(self) -> None:
        """Stop all kinds of churn; each kind finishes its work first."""
        for each in self.kinds:
            each.stopping = True

    def unfinished(self) -> str:
        """Describe a kind of churn that still makes changes, or whose changes the cluster does not
        show yet; empty if there is none.
        """
        for each in self.kinds:
            problem = each.unsettled() if each.is_done else "is not done"
            if problem:
                return f"{each.name}: {problem}"
        return ""

    @property
    def counts(self) -> dict[str, int]:
        """Number of acknowledged operations, by kind of churn."""
        return {each.name: each.acknowledged for each in self.kinds}
