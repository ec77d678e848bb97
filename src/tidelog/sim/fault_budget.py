"""The fault budget: of a partition's members, fewer than min.insync.replicas may lose data (E6).

The members of a partition are its published ISR and its eligible replicas. The budget uses the
partition's effective min.insync.replicas. Without this limit, the faults of a run could lose
acknowledged records even if the brokers had no defect. Stops, expired sessions, and crashes without
a loss of data are always within the budget. With `flush.before.ack`, so is the loss of unsynced
data, even at all brokers at once (V69). A loss beyond the limit is allowed if another ISR member
with all committed records stays up. The last member with all committed records must then stay up
until the other members are back. For the replicas in a failed log directory, the broker counts as
having lost data until the disk is repaired and the replicas are in sync again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.sim.checkers.replication_checker import ReplicationChecker
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.node import Incarnation
from tidelog.sim.observed.published_state import Published, PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.simulator import Simulator


class FaultBudget:
    """The crashes, losses and session expiries that the cluster of a run can survive."""

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
        #: Whether the budget forbids crashes and losses that could lose committed records; False in
        #: profiles that may lose records.
        self.is_kept = True
        #: Whether committed records are synced on all in-sync replicas, so that no power loss
        #: removes them.
        self.commits_synced = False
        self.refused_losses = 0
        #: Former members that have lost data, by partition, while the partition has fewer members
        #: than its effective min.insync.replicas.
        self._gone: dict[LogKey, dict[int, None]] = {}
        published.on_state.append(self._note_members)

    def _note_members(self, before: PublishedPartition | None, state: PublishedPartition) -> None:
        """Note former members that have lost data, until the partition has enough members again.

        A former member with a damaged log counts, too, because it soon truncates the log (V68).
        """
        if len(state.members) >= self._published.effective_minimum(state.key):
            self._gone.pop(state.key, None)
            return
        for member in () if before is None else before.members:
            if member in state.members:
                continue
            if not self._replication.has_all_committed(state.key, member) or any(
                disk.is_damaged or disk.is_failed for disk in self._disks_of(state.key, member)
            ):
                self._gone.setdefault(state.key, {})[member] = None

    def judge_crash(self, incarnation: Incarnation, wanted: Loss) -> Loss | None:
        """Return the loss that a crash may cause, at most `wanted`; None if the node must not
        crash.

        The node may lose data if each partition of which it has a replica allows this. A partition
        allows it if it has another steady member (`_steady_members`), or if even with this loss,
        fewer members than its effective min.insync.replicas have lost data. The last steady member
        of a partition must not crash while too many other members have lost data.
        """
        broker = self._brokers.get(incarnation.node_id)
        if broker is None or not self.is_kept:
            return wanted
        if self.is_spared(broker.node_id):
            return None
        if self.commits_synced:
            return wanted
        if wanted is not Loss.NONE and not self._may_lose_data(broker.node_id):
            self.refused_losses += 1
            return Loss.NONE
        return wanted

    def refuses_stop(self, node_id: int) -> bool:
        """Return whether the budget forbids that a broker stops now."""
        return self.is_kept and self.is_spared(node_id)

    def may_fail(self, node_id: int, *, loses_data: bool, disk: SimDisk | None = None) -> bool:
        """Return whether a broker's disk may fail now; with `loses_data`, unsynced pages are lost.

        If `disk` is given, only this disk fails, so only the replicas on it are checked.
        """
        if not self.is_kept:
            return True
        if self.is_spared(node_id):
            return False
        return not loses_data or all(
            self._is_covered(state, node_id)
            or any(
                member != node_id and not self._replication.is_leaving(state, member)
                for member in self._steady_members(state)
            )
            for state in self._living_states()
            if node_id in state.members
            and (disk is None or disk in self._disks_of(state.key, node_id))
        )

    def _may_lose_data(self, node_id: int) -> bool:
        return all(
            self._is_covered(state, node_id)
            or any(member != node_id for member in self._steady_members(state))
            for state in self._living_states()
            if node_id in state.members
        )

    def _is_covered(self, state: PublishedPartition, *losing: int) -> bool:
        """Return whether fewer members than min.insync.replicas have lost data, if `losing` lose
        data, too.

        A member that lost data and then left the ISR still counts, until the partition again has as
        many members as its effective min.insync.replicas (D3).
        """
        minimum = self._published.effective_minimum(state.key)
        gone = len(self._gone.get(state.key, ()))
        lost = [
            member
            for member in state.members
            if member in losing
            or self._is_unsound(state.key, member)
            or self._replication.has_lost(state, member)
            or not self._replication.has_all_committed(state.key, member)
        ]
        return len(lost) + gone < minimum

    def is_spared(self, node_id: int) -> bool:
        """Return whether a broker must stay up, because otherwise committed records could be
        lost.
        """
        return any(
            self._steady_members(state) == [node_id]
            for state in self._living_states()
            if node_id in state.isr and not self._is_covered(state)
        )

    def _steady_members(self, state: PublishedPartition) -> list[int]:
        """Return the steady ISR members: up, on a sound disk, with every committed record.

        A steady member is up and not shutting down, and its disk is sound. A steady member has
        every committed record, and has not restarted since the broker epoch that the state node
        records.
        """
        return [
            member
            for member in state.isr
            if self._brokers[member].life is not None
            and not self._brokers[member].is_stopping
            and not self._is_unsound(state.key, member)
            and self._replication.is_unchanged(state, member)
            and self._replication.has_all_committed(state.key, member)
        ]

    def _is_unsound(self, key: LogKey, node_id: int) -> bool:
        """Return whether a replica's disk has failed, has dropped pages, or is damaged."""
        return any(
            disk.is_failed or disk.has_dropped or disk.is_damaged
            for disk in self._disks_of(key, node_id)
        )

    def _disks_of(self, key: LogKey, node_id: int) -> Sequence[SimDisk]:
        """Return the disk of a replica, or all disks of its broker if no disk has the replica."""
        broker = self._brokers.get(node_id)
        if broker is None:
            return ()
        log = broker.logs.logs.get(key)
        return broker.logs.disks if log is None else (log.disk,)

    def _living_states(self) -> list[PublishedPartition]:
        return [
            state
            for key, state in self._published.partitions.items()
            if not self._published.promises_nothing(key.topic_id)
        ]

    def may_expire(self, session_id: int) -> bool:
        """Return whether a session may expire.

        The session of a running broker that must stay up must not expire, because the controller
        treats the re-registration as a restart (V10).
        """
        for broker in self._brokers.values():
            if broker.store is not None and broker.store.session_id == session_id:
                spared = self.is_kept and self.is_spared(broker.node_id)
                return broker.life is None or not spared
        return True
