"""The published state of the small world's partition, in the place of a controller and its store.

The register accepts or refuses ISR changes by the contract that leaders rely on (A3, A4, A8, V63),
and draws everything else: elections, removals of members, refusals without a visible cause. The
register does not use the controller's code, because the world looks for faults of leaders and
followers, and a few lines suffice for that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, NO_LEADER
from tidelog.replication.isr import IsrChange
from tidelog.sim.small.replica_set_values import SmallCommand, SmallRequest, SmallState


#: The register's decision about a request: the error and the state in the response, and whether the
#: leader also gets a command.
class SmallJudgement(NamedTuple):
    """The register's judgement of one AlterPartition request."""

    error: ErrorCode
    state: SmallState | None = None
    #: Whether the leader that sent the request also gets the published state as a command (A3).
    is_commanded: bool = False


STALE: Final = SmallJudgement(ErrorCode.STALE_BROKER_EPOCH)


class PublishedRegister:
    """The stand-in for the controller and its store: registrations, and the published states so
    far.
    """

    __slots__ = ("history", "live", "minimum", "proofs", "state", "transaction")

    def __init__(self, replicas: tuple[int, ...], minimum: int, first_isr: tuple[int, ...]) -> None:
        self.minimum = min(minimum, len(replicas))
        self.live: dict[int, int] = {replica: n for n, replica in enumerate(replicas, 1)}
        #: By broker: its earlier broker epochs from which on it has lost no record, as its clean
        #: shutdowns prove (E3).
        self.proofs: dict[int, frozenset[int]] = dict.fromkeys(replicas, frozenset())
        self.transaction = len(replicas) + 1
        epochs = tuple(self.live[member] for member in first_isr)
        first = SmallState(replicas[0], 0, first_isr, epochs, 0, (), replicas, self.transaction)
        self.state = first
        #: Every published state by its partition epoch.
        self.history: dict[int, SmallState] = {0: first}

    def copy(self) -> PublishedRegister:
        """Return an independent copy."""
        other = PublishedRegister.__new__(PublishedRegister)
        other.minimum, other.transaction, other.state = self.minimum, self.transaction, self.state
        other.live, other.proofs = dict(self.live), dict(self.proofs)
        other.history = dict(self.history)
        return other

    def key(self) -> tuple[object, ...]:
        """Return the state of the register on which the rest of a history depends, as a hashable
        value.
        """
        return (self.state, tuple(self.live.items()), tuple(self.proofs.items()))

    # registrations

    def register(self, broker_id: int, former_epoch: int, is_clean: bool) -> int:
        """Register a broker; return its broker epoch."""
        self.transaction += 1
        proofs = self.proofs[broker_id] | {former_epoch} if is_clean else frozenset()
        self.proofs[broker_id] = proofs
        self.live[broker_id] = self.transaction
        return self.transaction

    def is_proven(self, member: int) -> bool:
        """Return whether a registered member of the ISR, or eligible replica, lost nothing (E6)."""
        epoch = self.live.get(member)
        recorded = self.state.recorded().get(member)
        return epoch is not None and (epoch == recorded or recorded in self.proofs[member])

    @property
    def proven(self) -> tuple[int, ...]:
        """The registered members that have lost no record: ISR members first, then eligible
        replicas.
        """
        return tuple(member for member in self.members if self.is_proven(member))

    @property
    def members(self) -> tuple[int, ...]:
        """The ISR, then the eligible replicas: each has every committed record (E1)."""
        return (*self.state.isr, *(member for member, _ in self.state.elr))

    # changes of leaders

    def judge(self, request: SmallRequest) -> SmallJudgement:
        """Decide on an AlterPartition request; if it is accepted, publish the new state."""
        change, state = request.change, self.state
        if self.live.get(request.sender) != request.sender_epoch:
            return STALE
        if change.leader_epoch < state.leader_epoch:
            return SmallJudgement(ErrorCode.FENCED_LEADER_EPOCH)
        if request.sender != state.leader:
            return SmallJudgement(ErrorCode.INVALID_REQUEST)
        if sorted(change.isr) == sorted(state.isr):
            return SmallJudgement(ErrorCode.NONE, state)
        if change.partition_epoch < state.partition_epoch:
            return SmallJudgement(ErrorCode.INVALID_UPDATE_VERSION, is_commanded=True)
        if any(member not in state.replicas for member in change.isr):
            return SmallJudgement(ErrorCode.INVALID_REQUEST)
        if not all(map(self.is_eligible, change.isr, change.isr_epochs)):
            return self.refuse(request)
        epochs = tuple(self.live[member] for member in change.isr)
        self.publish(state._replace(isr=change.isr, isr_epochs=epochs))
        return SmallJudgement(ErrorCode.NONE, self.state)

    def may_be_accepted(self, request: SmallRequest) -> bool:
        """Return whether a copy of this request could change the published state now."""
        change, state = request.change, self.state
        return (
            self.live.get(request.sender) == request.sender_epoch
            and change.leader_epoch == state.leader_epoch
            and request.sender == state.leader
            and change.partition_epoch == state.partition_epoch
            and all(member in state.replicas for member in change.isr)
            and all(map(self.is_eligible, change.isr, change.isr_epochs))
        )

    def is_eligible(self, member: int, epoch: int) -> bool:
        """Return whether a member of a change is alive in the incarnation that the leader saw."""
        live = self.live.get(member)
        if live is None or epoch != NO_BROKER_EPOCH:
            return live is not None and live == epoch
        if member in self.state.isr:
            return self.is_proven(member)
        return live <= self.state.written

    def refuse(self, request: SmallRequest) -> SmallJudgement:
        """Refuse a request for good: publish a new partition epoch, so that copies of the request
        fail (A8).
        """
        self.publish(self.state)
        return SmallJudgement(ErrorCode.INELIGIBLE_REPLICA)

    # the controller's own changes

    def elect(self, leader: int) -> None:
        """Publish a new leader; the ISR becomes the registered members that have lost no record."""
        state, recorded = self.state, self.state.recorded()
        isr = tuple(member for member in state.isr if self.is_proven(member))
        if leader not in isr:
            isr = (leader,)
            recorded[leader] = self.live[leader]
        epochs = tuple(recorded[member] for member in isr)
        self._publish_epoch(state._replace(leader=leader, isr=isr, isr_epochs=epochs))

    def remove(self, member: int) -> None:
        """Publish an ISR without a member that is not the leader."""
        state, recorded = self.state, self.state.recorded()
        isr = tuple(each for each in state.isr if each != member)
        epochs = tuple(recorded[each] for each in isr)
        self._publish_epoch(state._replace(isr=isr, isr_epochs=epochs))

    def leave_leaderless(self) -> None:
        """Publish that the partition has no leader; the ISR stays (V13)."""
        self._publish_epoch(self.state._replace(leader=NO_LEADER))

    def assign(self, replicas: tuple[int, ...]) -> None:
        """Publish other assigned replicas, under a new leader epoch if a replica goes (V52)."""
        state = self.state._replace(replicas=replicas)
        if len(replicas) < len(self.state.replicas):
            self._publish_epoch(state)
        else:
            self.publish(state)

    def touch(self) -> None:
        """Publish the same leader and ISR under the next partition epoch."""
        self.publish(self.state)

    def lead_on(self) -> None:
        """Publish the same leader under the next leader epoch."""
        self._publish_epoch(self.state)

    def _publish_epoch(self, state: SmallState) -> None:
        self.publish(state._replace(leader_epoch=state.leader_epoch + 1))

    def publish(self, state: SmallState) -> None:
        """Publish a state under the next partition epoch, with its eligible replicas (E1)."""
        before = self.state.recorded()
        elr: tuple[tuple[int, int], ...] = ()
        if len(state.isr) < min(self.minimum, len(state.replicas)):
            elr = tuple(
                (each, epoch)
                for each, epoch in before.items()
                if each not in state.isr and each in state.replicas
            )
        self.transaction += 1
        epoch = self.state.partition_epoch + 1
        self.state = state._replace(partition_epoch=epoch, elr=elr, written=self.transaction)
        self.history[epoch] = self.state

    def command(self) -> SmallCommand:
        """Return the LeaderAndIsr command with the published state."""
        state = self.state
        eligible = tuple(member for member, _ in state.elr)
        return SmallCommand(
            state.leader,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
            eligible,
            state.replicas,
        )


def describe(change: IsrChange) -> str:
    """Return an ISR change as text."""
    members = zip(change.isr, change.isr_epochs, strict=True)
    named = ", ".join(f"{member} of broker epoch {epoch}" for member, epoch in members)
    return f"ISR [{named}] upon partition epoch {change.partition_epoch}"
