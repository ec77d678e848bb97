"""The fault budget: data is lost only where another member of each published ISR has all of it.

Without it a run would break what replication promises by more failures than it can survive. The
budget refuses a crash or a loss that goes too far, and protects the last member that still has
everything until the others are back (V10 as published state can keep it).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.sim.checkers.published_state import Published, PublishedPartition
from tidelog.sim.checkers.replication_checker import ReplicationChecker
from tidelog.sim.disk import Loss
from tidelog.sim.node import Incarnation
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.simulator import Simulator


class FaultBudget:
    """Which crashes, losses and session expiries the cluster of a run can survive."""

    def __init__(
        self,
        simulator: Simulator,
        brokers: Mapping[int, SimBroker],
        published: Published,
        replication: ReplicationChecker,
    ) -> None:
        self._simulator = simulator
        self._brokers = brokers
        self._published = published
        self._replication = replication
        #: Power losses are only taken where the budget allows them; off for known failures.
        self.is_kept = True
        self.refused_losses = 0
        self.refused_crashes = 0

    def judge_crash(self, incarnation: Incarnation, wanted: Loss) -> Loss | None:
        """Return the loss that a crash may bring, None for no crash at all.

        Data may be lost only where each published ISR with the node in it has another member that
        is up, unchanged since its recorded broker epoch, and has everything committed. From then
        until the node has left those ISRs, the last such member is spared.
        """
        broker = self._brokers.get(incarnation.node_id)
        if broker is None or not self.is_kept:
            return wanted
        if self.is_spared(broker.node_id):
            self.refused_crashes += 1
            return None
        if wanted is not Loss.NONE and not self._may_lose_data(broker.node_id):
            self.refused_losses += 1
            return Loss.NONE
        return wanted

    def refuses_stop(self, node_id: int) -> bool:
        """Whether a broker may not stop now; counts the refusal."""
        if self.is_kept and self.is_spared(node_id):
            self.refused_crashes += 1
            return True
        return False

    def may_fail(self, node_id: int, *, loses_data: bool) -> bool:
        """Whether the budget lets a broker's disk fail now, and what it has not synced be gone."""
        if not self.is_kept:
            return True
        if self.is_spared(node_id):
            return False
        return not loses_data or all(
            any(
                member != node_id and not self._replication.is_leaving(state, member)
                for member in self._steady_members(state)
            )
            for state in self._living_states()
            if node_id in state.isr
        )

    def _may_lose_data(self, node_id: int) -> bool:
        return all(
            any(member != node_id for member in self._steady_members(state))
            for state in self._living_states()
            if node_id in state.isr
        )

    def is_spared(self, node_id: int) -> bool:
        """Whether a broker is the last that stands between a power loss and lost records."""
        return any(
            self._steady_members(state) == [node_id]
            for state in self._living_states()
            if node_id in state.isr
            and (
                self._replication.has_lost_member(state)
                or any(self._is_unsound(member) for member in state.isr)
            )
        )

    def _steady_members(self, state: PublishedPartition) -> list[int]:
        """Members that are up and stay so, as they were when they were recorded, with all that is
        committed."""
        return [
            member
            for member in state.isr
            if self._brokers[member].life is not None
            and not self._brokers[member].is_stopping
            and not self._is_unsound(member)
            and self._replication.is_unchanged(state, member)
            and self._replication.has_all_committed(state.key, member)
        ]

    def _is_unsound(self, node_id: int) -> bool:
        """Whether a broker shows, or seems to have, what its disk has not."""
        return self._simulator.has_dropped(node_id) or self._simulator.is_damaged(node_id)

    def _living_states(self) -> list[PublishedPartition]:
        return [
            state
            for key, state in self._published.partitions.items()
            if not self._published.promises_nothing(key.topic_id)
        ]

    def may_expire(self, session_id: int) -> bool:
        """A spared broker keeps its session too: a registration anew is a restart to V10."""
        for broker in self._brokers.values():
            if broker.store is not None and broker.store.session_id == session_id:
                spared = self.is_kept and self.is_spared(broker.node_id)
                return broker.life is None or not spared
        return True
