"""The final phase of a run: faults are over, and within a minute the cluster must recover.

Every replica must be in sync again, every batch acknowledged, every group member working, every
committed record read. Then the clients' history is judged and every disk is checked. A condition
that does not hold in time is a violation of liveness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.broker.events.metrics import EVENTS_DROPPED
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.history.operations import Operation
from tidelog.sim import rereading
from tidelog.sim.checkers.history_checker import check_history, operations
from tidelog.sim.checkers.storage_checker import check_disk
from tidelog.sim.client_workload import ClientWorkload
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.profiles import Profile
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.churn import Churn
from tidelog.sim.workload.churn_kinds import Churning
from tidelog.sim.workload.group_clients import Committer, GroupMember
from tidelog.sim.workload.partition_producers import PartitionProducer
from tidelog.sim.workload.record_churn import COMPACTED_TOPICS

#: Time after the faults within which everything must be in sync, acknowledged and read.
LIVENESS_LIMIT_NS: Final = 60 * NS_PER_S

#: Runs until a condition no longer holds or a limit is reached. Returns whether the condition ended
#: in time and without a violation.
Wait = Callable[[Callable[[], bool], int, str], bool]


class FinalPhase:
    """The final phase of one run."""

    def __init__(
        self,
        cluster: SimCluster,
        workload: ClientWorkload,
        profile: Profile,
        wait: Wait,
        on_in_sync: Callable[[], None],
    ) -> None:
        """Prepare the phase; `on_in_sync` is called when every replica is in sync again."""
        self._cluster = cluster
        self._simulator = cluster.simulator
        self._workload = workload
        self._profile = profile
        self._wait = wait
        self._on_in_sync = on_in_sync

    def run(self, *, was_damaged: bool) -> None:
        """Run the phase to its end or the first violation.

        `was_damaged`: a fault may have damaged a disk.
        """
        workload = self._workload
        workload.stop_changing()
        limit_ns = self._simulator.now_ns + LIVENESS_LIMIT_NS
        if not self._wait(lambda: bool(self._cluster.health()), limit_ns, "in sync again"):
            return
        self._on_in_sync()
        unassigned = self._cluster.commands.unassigned
        if not self._wait(lambda: bool(unassigned()), limit_ns, "only assigned replicas are kept"):
            return
        if workload.churn is not None and not self._end_churn(workload.churn, limit_ns):
            return
        if workload.churning is not None and not self._settled(workload.churning, limit_ns):
            return
        if not self._moves_ended(limit_ns):
            return
        if not self._end_producers(limit_ns) or not self._end_groups(limit_ns):
            return
        if not self._balanced():
            return
        is_promised = self._profile.keeps_promises
        if is_promised and not self._wait(self._unread, limit_ns, "everything committed is read"):
            return
        if was_damaged and not self._read_again():
            return
        if not self._check_events():
            return
        check_history(self.operations(), self._simulator.violate, is_promised=is_promised)
        self._check_disks()

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

    def _end_churn(self, churn: Churn, limit_ns: int) -> bool:
        """Check that every added partition exists and every replica has the last configuration."""
        done = self._wait(lambda: not churn.is_done, limit_ns, "alterations are acknowledged")
        if not done:
            return False
        topic = self._cluster.published.topics[churn.topic]
        if len(topic.assignment) < churn.partitions:
            self._simulator.violate(
                f"topic {churn.topic} has partitions {sorted(topic.assignment)}, but"
                f" {churn.partitions} were acknowledged"
            )
        if self._wait(
            lambda: bool(self._unaltered(churn) or self._cluster.health()),
            limit_ns,
            "replicas use the last configuration",
        ):
            return True
        self._simulator.note(-1, "churn", "; ".join(self._unaltered(churn)))
        return False

    def _unaltered(self, churn: Churn) -> list[str]:
        return churn.differences(
            (f"{partition.topic_partition} on broker {node_id}", partition.log.config)
            for node_id, node in self._cluster.brokers.items()
            if node.broker is not None
            for partition in node.broker.replicas.all()
            if partition.topic_partition.topic == churn.topic
        )

    def _settled(self, churning: Churning, limit_ns: int) -> bool:
        """Wait until all churn has ended and its acknowledged changes hold."""

        def unsettled() -> bool:
            self._abandon_hopeless()
            return bool(churning.unfinished() or self._cluster.health())

        if self._wait(unsettled, limit_ns, "churn settles"):
            return True
        self._simulator.note(-1, "churn", churning.unfinished())
        return False

    def _moves_ended(self, limit_ns: int) -> bool:
        """Wait until no move between log directories has left anything behind (D11)."""
        if self._cluster.settings.log_dirs < 2:
            return True
        left_over = self._cluster.directory_moves.left_over
        if self._wait(lambda: bool(left_over()), limit_ns, "no move leaves a copy behind"):
            return True
        self._simulator.note(-1, "move", left_over())
        return False

    def _balanced(self) -> bool:
        """Wait until nothing moves by a plan of a broker any more: all sizes are the last (D15)."""
        planned = self._cluster.planned_moves
        planned.nothing_grows()
        limit_ns = self._simulator.now_ns + LIVENESS_LIMIT_NS
        if self._wait(planned.is_restless, limit_ns, "planned moves come to rest"):
            return True
        self._simulator.note(-1, "move", planned.latest)
        return False

    # Producers

    def _end_producers(self, limit_ns: int) -> bool:
        for producer in self._workload.producers:
            producer.stopping = True
        return self._wait(
            lambda: not all(producer.is_done for producer in self._abandon_hopeless()),
            limit_ns,
            "everything produced is acknowledged",
        )

    def _abandon_hopeless(self) -> list[PartitionProducer]:
        """Return all producers; stop those of partitions that wait for an operator.

        A partition of a topic that was created late may begin to wait at any time.
        """
        cluster = self._cluster
        for producer in self._workload.producers:
            topic = cluster.published.topics.get(producer.partition.topic)
            if producer.is_done or topic is None:
                continue
            key = cluster.published.key(topic.topic_id, producer.partition.partition)
            if cluster.waits_for_operator(key):
                producer.abandon()
        return self._workload.producers

    # Groups

    def _end_groups(self, limit_ns: int) -> bool:
        """Wait until every member works and commits, then leaves; then check committed offsets.

        The coordinator's partition of a group may wait for an operator. Members of such a group are
        not waited for.
        """
        members = self._workload.members

        def working() -> list[GroupMember | Committer]:
            return [member for member in members if not self._waits_for_operator(member)]

        for member in members:
            member.is_steady = True
        if not self._wait(
            lambda: not all(member.steady_rounds for member in working()),
            limit_ns,
            "every member of a group works",
        ):
            return False
        for member in members:
            member.stopping = True
        if not self._wait(
            lambda: not all(member.is_done for member in working()), limit_ns, "every member leaves"
        ):
            return False
        readers = {
            member: member.client.tasks.spawn("read the last offsets", member.read_last())
            for member in working()
        }
        return self._wait(
            lambda: not all(readers[member].done() for member in working()),
            limit_ns,
            "offsets are read",
        )

    def _waits_for_operator(self, member: GroupMember | Committer) -> bool:
        topic = self._cluster.published.topics.get(CONSUMER_OFFSETS)
        partition = self._cluster.groups.partition_of(member.plan.name)
        return topic is not None and self._cluster.waits_for_operator(
            self._cluster.published.key(topic.topic_id, partition)
        )

    # Records

    def _unread(self) -> bool:
        """Return whether a committed record is still unread."""
        cluster = self._cluster
        for topic in cluster.published.topics.values():
            if topic.is_internal:
                continue
            for key, truth in cluster.replication.truths.items():
                read_end = cluster.clients.read_end.get(key, 0)
                is_of_topic = key.topic_id == topic.topic_id
                if is_of_topic and cluster.published.is_over(key):
                    continue
                if is_of_topic and read_end < len(truth.committed):
                    return True
        return False

    def _read_again(self) -> bool:
        """Read every consumed partition again from its beginning.

        The reads find damage that was not found before. A leader with damage must regain its lost
        records from other replicas (V68).
        """
        cluster = self._cluster
        is_behind = rereading.begin(cluster, self._workload).is_behind
        limit_ns = self._simulator.now_ns + LIVENESS_LIMIT_NS
        if not self._wait(
            lambda: is_behind() or bool(cluster.health()),
            limit_ns,
            "everything committed is read again",
        ):
            return False
        limit_ns = self._simulator.now_ns + LIVENESS_LIMIT_NS
        if self._wait(
            lambda: bool(cluster.damage.unrepaired() or cluster.health()),
            limit_ns,
            "damage that was read is repaired",
        ):
            return True
        self._simulator.note(-1, "damage", cluster.damage.unrepaired())
        return False

    def _check_events(self) -> bool:
        """Check the topic of cluster events, after brokers have written all events."""
        cluster = self._cluster
        events = cluster.events
        if events is None:
            return True
        brokers = [each.broker for each in cluster.brokers.values() if each.broker is not None]
        limit_ns = self._simulator.now_ns + LIVENESS_LIMIT_NS
        if not self._wait(
            lambda: (
                any(not each.cluster_events.is_idle for each in brokers) or not events.topic_id()
            ),
            limit_ns,
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
        """Check the files that the brokers leave on every disk."""

        def has_gaps(topic: str) -> bool:
            is_compacted = self._profile.compacted or topic in COMPACTED_TOPICS
            return is_compacted or topic == CONSUMER_OFFSETS

        for (node_id, _), disk in self._simulator.disks.items():
            for problem in check_disk(disk, node_id, has_gaps):
                self._simulator.violate(f"disk of node {node_id}: {problem}")
