"""The final phase of a run: faults have ended, and within a minute the cluster must recover.

Every replica must be in sync again, every batch acknowledged, every group member working, and every
committed record read. At the end of the phase, the clients' history and every disk are checked. If
a condition does not hold in time, the run has violated liveness.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.events.metrics import EVENTS_DROPPED
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.history.operations import Operation
from tidelog.sim.checkers.history_checker import check_history, operations
from tidelog.sim.checkers.storage_checker import check_disk
from tidelog.sim.phases import LIVENESS_LIMIT_NS, Stage, rereading
from tidelog.sim.profiles import Profile
from tidelog.sim.workload.group_clients import Committer, SimMember
from tidelog.sim.workload.partition_producers import PartitionProducer
from tidelog.sim.workload.record_churn import COMPACTED_TOPICS


class FinalPhase:
    """The final phase of one run, in which faults have ended and the cluster must recover."""

    def __init__(self, stage: Stage, profile: Profile, on_in_sync: Callable[[], None]) -> None:
        """Prepare the phase; `on_in_sync` is called when every replica is in sync again."""
        self._cluster = stage.cluster
        self._simulator = stage.cluster.simulator
        self._workload = stage.workload
        self._profile = profile
        self._stage = stage
        self._on_in_sync = on_in_sync
        #: Virtual time in ns at which the conditions of the phase must hold at the latest.
        self._limit_ns = 0

    def run(self, *, was_damaged: bool) -> None:
        """Run the phase to its end or the first violation.

        `was_damaged` means that a fault may have damaged a disk.
        """
        self._workload.stop_changing()
        self._limit_ns = self._stage.after_ns(LIVENESS_LIMIT_NS)
        if not self._wait(self._cluster.health, "in sync again"):
            return
        self._on_in_sync()
        is_promised = self._profile.keeps_promises
        if not (
            self._wait(self._cluster.commands.unassigned, "only assigned replicas are kept")
            and self._end_churn()
            and self._moves_ended()
            and self._end_producers()
            and self._end_groups()
            and self._balanced()
            and (not is_promised or self._wait(self._unread, "everything committed is read"))
            and (not was_damaged or self._read_again())
            and self._check_events()
        ):
            return
        check_history(self.operations(), self._simulator.violate, is_promised=is_promised)
        self._check_disks()

    def _wait(self, problem: Callable[[], object], what: str, kind: str = "") -> bool:
        """Run until `problem` returns nothing; return False at the final phase's time limit."""
        return self._stage.wait(problem, self._limit_ns, what, kind)

    def _wait_from_now(self, problem: Callable[[], object], what: str, kind: str = "") -> bool:
        """Run until `problem` returns nothing; return False a minute of virtual time after this
        call.
        """
        return self._stage.wait(problem, self._stage.after_ns(LIVENESS_LIMIT_NS), what, kind)

    def operations(self) -> list[Operation]:
        """Return the requests and responses of clients so far, as a history."""
        cluster = self._cluster
        commits = (commit for each in cluster.groups.commits.values() for commit in each)
        return operations(
            cluster.history,
            commits,
            [topic.topic_id for topic in cluster.published.topics.values()],
            is_compacted=self._profile.compacted,
            compacted=COMPACTED_TOPICS,
        )

    # Churn

    def _end_churn(self) -> bool:
        """Wait until the clients that change topics have stopped, and the cluster shows all
        acknowledged changes.
        """
        cluster, churn, churning = self._cluster, self._workload.churn, self._workload.churning

        def unaltered() -> str:
            return "" if churn is None else churn.unsettled(cluster) or cluster.health()

        def unsettled() -> str:
            self._abandon_hopeless()
            return "" if churning is None else churning.unfinished() or cluster.health()

        return (
            self._wait(
                lambda: churn is not None and not churn.is_done, "alterations are acknowledged"
            )
            and self._wait(unaltered, "acknowledged alterations hold", "churn")
            and (churning is None or self._wait(unsettled, "churn settles", "churn"))
        )

    def _moves_ended(self) -> bool:
        """Wait until no disk has files that a move between log directories left behind (D11)."""
        left_over = self._cluster.directory_moves.left_over
        return self._cluster.settings.log_dirs < 2 or self._wait(
            left_over, "no move leaves a copy behind", "move"
        )

    def _balanced(self) -> bool:
        """Wait until brokers plan no more moves, after the logs have stopped growing and shrinking
        (D15).
        """
        planned = self._cluster.planned_moves
        planned.nothing_grows()
        return self._wait_from_now(planned.restless, "planned moves come to rest", "move")

    # Producers

    def _end_producers(self) -> bool:
        for producer in self._workload.producers:
            producer.stopping = True
        return self._wait(
            lambda: not all(producer.is_done for producer in self._abandon_hopeless()),
            "everything produced is acknowledged",
        )

    def _abandon_hopeless(self) -> list[PartitionProducer]:
        """Stop the producers of partitions that only an operator can make available again; return
        all producers.

        A crash while brokers create the replicas of a topic can cause this, without a defect.
        """
        cluster = self._cluster
        for producer in self._workload.producers:
            key = None if producer.is_done else cluster.published.find(producer.partition)
            if key is not None and cluster.waits_for_operator(key):
                producer.abandon()
        return self._workload.producers

    # Groups

    def _end_groups(self) -> bool:
        """Wait until every group member works, then until every member has left; then check
        committed offsets.

        Groups are left out if only an operator can make their partition of `__consumer_offsets`
        available again.
        """
        members, waits = self._workload.members, self._cluster.group_waits_for_operator

        def all_working(holds: Callable[[SimMember | Committer], object]) -> bool:
            return all(holds(member) for member in members if not waits(member.plan.name))

        for member in members:
            member.is_steady = True
        if not self._wait(
            lambda: not all_working(lambda member: member.steady_rounds),
            "every member of a group works",
        ):
            return False
        for member in members:
            member.stopping = True
        if not self._wait(
            lambda: not all_working(lambda member: member.is_done), "every member leaves"
        ):
            return False
        readers = {
            member: member.client.tasks.spawn("read the last offsets", member.read_last())
            for member in members
            if not waits(member.plan.name)
        }
        return self._wait(
            lambda: not all_working(lambda member: readers[member].done()), "offsets are read"
        )

    # Records

    def _unread(self) -> bool:
        """Return whether a committed record is still unread."""
        cluster = self._cluster
        topics = [each for each in cluster.published.topics.values() if not each.is_internal]
        wanted = {topic.topic_id for topic in topics}
        return any(
            cluster.clients.read_end.get(key, 0) < len(truth.committed)
            for key, truth in cluster.replication.truths.items()
            if key.topic_id in wanted and not cluster.published.is_over(key)
        )

    def _read_again(self) -> bool:
        """Read every consumed partition again from its beginning.

        Reads from the beginning find damage that was not found before. A leader with a damaged log
        must regain its lost records from other replicas (V68).
        """
        cluster = self._cluster
        is_behind = rereading.begin(cluster, self._workload).is_behind
        return self._wait_from_now(
            lambda: is_behind() or cluster.health(), "everything committed is read again"
        ) and self._wait_from_now(
            lambda: cluster.damage.unrepaired() or cluster.health(),
            "damage that was read is repaired",
            "damage",
        )

    def _check_events(self) -> bool:
        """Check the topic of cluster events, after brokers have written all events."""
        cluster = self._cluster
        events = cluster.events
        if events is None:
            return True
        brokers = [each.broker for each in cluster.brokers.values() if each.broker is not None]
        if not self._wait_from_now(
            lambda: (
                any(not each.cluster_events.is_idle for each in brokers) or not events.topic_id()
            ),
            "all events are in their topic",
        ):
            return False
        leader = cluster.published.partitions[
            cluster.published.key(events.topic_id() or b"", 0)
        ].leader
        dropped = [each for each in brokers if each.services.metrics.value(EVENTS_DROPPED)]
        events.check(cluster.brokers[leader].logs.disks, is_complete=not dropped)
        return not self._simulator.violations

    def _check_disks(self) -> None:
        """Check the files on every broker's disk."""

        def has_gaps(topic: str) -> bool:
            is_compacted = self._profile.compacted or topic in COMPACTED_TOPICS
            return is_compacted or topic == CONSUMER_OFFSETS

        for (node_id, _), disk in self._simulator.disks.items():
            for problem in check_disk(disk, node_id, has_gaps):
                self._simulator.violate(f"disk of node {node_id}: {problem}")
