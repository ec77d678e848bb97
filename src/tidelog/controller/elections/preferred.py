"""Election of preferred replicas, automatic or requested by a node of the store (V8, V46).

Each decision returns a bounded number of leaderships to their preferred replicas.
`/admin/preferred_replica_election` is removed when all its entries are decided. `balance` finds the
partitions for automatic elections.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.draft import Draft
from tidelog.controller.elections import election
from tidelog.controller.elections.balance import Balance
from tidelog.controller.elections.circumstances import circumstances
from tidelog.controller.elections.election import Election
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.writes import Write
from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MAX_PREFERRED_ELECTIONS_PER_DECISION
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class PreferredElectionRead(Event):
    """`/admin/preferred_replica_election` exists and names these partitions (V8)."""

    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class RebalanceDue(Event):
    """The periodic check for partitions that preferred replicas should lead is due (V46)."""

    #: leader.imbalance.per.broker.percentage
    percentage: int


@dataclass(frozen=True, slots=True)
class RebalanceStepDue(Event):
    """The next step of the automatic return of leaderships is due (V46)."""


@dataclass(frozen=True, slots=True)
class ForgetPreferredElection(Write):
    """Write: remove `/admin/preferred_replica_election`, after all its partitions are decided."""


class PreferredElections:
    """Leaderships that are to return to preferred replicas; each decision returns some of them."""

    __slots__ = ("_is_requested", "_waiting", "balance")

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, None] = {}
        #: Leaderships that are to return automatically, step by step.
        self.balance = Balance()
        #: Whether `/admin/preferred_replica_election` exists.
        self._is_requested = False

    def __bool__(self) -> bool:
        """Return whether a decision must elect preferred replicas, or remove a request's node."""
        return bool(self._waiting) or self._is_requested

    def read(self, event: PreferredElectionRead) -> None:
        """Queue the partitions of a request in `/admin/preferred_replica_election`."""
        self._waiting.update(dict.fromkeys(event.topic_partitions))
        self._is_requested = True

    def rebalance(self, event: RebalanceDue, image: Image) -> None:
        """Find brokers that are out of balance, and queue the first leaderships to return."""
        self.balance.look(image, event.percentage)
        self.step(image)

    def step(self, image: Image) -> None:
        """Queue the leaderships that return to preferred replicas in the next step."""
        self._waiting.update(dict.fromkeys(self.balance.step(image)))

    def write(self, draft: Draft) -> None:
        """Elect the next preferred replicas that can lead."""
        for topic_partition in list(self._waiting)[:MAX_PREFERRED_ELECTIONS_PER_DECISION]:
            del self._waiting[topic_partition]
            self._give_back(topic_partition, draft)

    def _give_back(self, topic_partition: TopicPartition, draft: Draft) -> None:
        image = draft.image
        state = image.states.get(topic_partition)
        if (
            state is None
            or draft.written(topic_partition) is not None
            or image.is_deleting(topic_partition.topic)
            or not election.prefers_another(state, image.replicas(topic_partition))
            or self.balance.is_unfit(image.replicas(topic_partition)[0], topic_partition, image)
        ):
            return
        elected = elect(topic_partition, state, draft)
        if elected is not None:
            draft.write_state(
                WritePartitionState(topic_partition, elected.state, state.partition_epoch)
            )

    def write_end(self, draft: Draft) -> None:
        """Remove `/admin/preferred_replica_election` once all its partitions are decided."""
        if self._is_requested and not self._waiting:
            self._is_requested = False
            draft.add(ForgetPreferredElection())

    def copy(self) -> PreferredElections:
        """Return an independent copy."""
        other = PreferredElections()
        other._waiting = dict(self._waiting)
        other.balance = self.balance.copy()
        other._is_requested = self._is_requested
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal next decisions."""
        return (tuple(self._waiting), self.balance.key(), self._is_requested)


def elect(topic_partition: TopicPartition, state: PartitionState, draft: Draft) -> Election | None:
    """Elect the preferred replica; return None unless it is alive and in the ISR (V46)."""
    return election.elect_preferred(state, circumstances(topic_partition, draft))
