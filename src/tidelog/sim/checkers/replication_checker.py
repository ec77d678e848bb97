"""Invariants of replication, checked after every event.

A record is committed as soon as the high watermark of a leader is above its offset. A committed
record never changes. It is in every log whose high watermark is above its offset, and in the log of
every later leader. A member of the maximal ISR has all committed records if it still has the broker
epoch in the state node. A broker may take the role of leader although a later leader epoch exists;
it then commits nothing (V65). A leader's high watermark never decreases within a leader epoch.
Records below a log's start were committed, and DeleteRecords or retention may have removed them.

If an invariant holds only while losses of data stay within the fault budget, its violation is
reported as a broken promise. Other invariants hold always: two records with the same leader epoch
and offset are the same record. No leader epoch or partition epoch decreases within one incarnation
of a partition. A leader epoch has one leader. No follower's high watermark is above the end of the
committed records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.sim.batches import GONE, is_tombstone, key_of
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.checkers.data_losses import DataLosses
from tidelog.sim.disk import SimDisk
from tidelog.sim.listeners import CallbackList
from tidelog.sim.observed.claims import ReplicaClaim
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey, ReplicaLog
from tidelog.sim.sim_broker import SimBroker


@dataclass(slots=True, eq=False)
class _Seen:
    """The state of a replica when the checker last saw it."""

    claim: ReplicaClaim
    incarnation: int = -1
    log_version: int = -1
    #: Whether the node lost data since the replica was last in sync. After a loss, truncated
    #: records may be back in the log, below a high watermark that was written later. The checks
    #: skip such a replica until it leads, is in sync, or has only committed records.
    is_doubtful: bool = False
    #: Whether the replica was removed. If it is created again, it has no role at first.
    is_removed: bool = False


@dataclass(slots=True, eq=False)
class Truth:
    """The committed records, and everything else that the checker knows of one partition."""

    name: TopicPartition
    #: Record number (unique in the run) of each committed record, by offset.
    committed: list[int] = field(default_factory=list)
    #: By leader epoch, the end of the committed records after the last commit in this epoch.
    ends: dict[int, int] = field(default_factory=dict)
    #: By record key: the offset of the last committed record with this key.
    last_of_key: dict[int, int] = field(default_factory=dict)
    #: By (leader epoch, offset), the number of each record that was ever in a log.
    values: dict[tuple[int, int], int] = field(default_factory=dict)
    #: For each record, by (leader epoch, offset): the nodes that ever had it, one bit for each node
    #: id.
    stored_by: dict[tuple[int, int], int] = field(default_factory=dict)

    def commit(self, numbers: list[int], leader_epoch: int) -> None:
        """Add the next records, which the leader of `leader_epoch` committed."""
        for offset, number in enumerate(numbers, len(self.committed)):
            self.last_of_key[key_of(number)] = offset
        self.committed += numbers
        self.ends[leader_epoch] = len(self.committed)

    def committed_before(self, leader_epoch: int) -> int:
        """Return the end offset of the records that leaders of lower epochs committed."""
        return max((end for epoch, end in self.ends.items() if epoch < leader_epoch), default=0)

    def agrees(self, offset: int, number: int) -> bool:
        """Return whether a log may hold record `number` at a committed offset.

        A log holds the committed record, or GONE in its place. Compaction may have removed the
        record if its key has a later committed record, or if the record is a tombstone.
        """
        committed = self.committed[offset]
        if number != GONE:
            return number == committed
        return is_tombstone(committed) or self.last_of_key[key_of(committed)] > offset


class ReplicationChecker(Checker):
    """Comparison of replicas' logs, of brokers' claims about their replicas, and of published
    state.
    """

    def __init__(
        self, run: CheckedRun, deleted_before: Callable[[LogKey], int] = lambda key: 0
    ) -> None:
        """Begin to check.

        `deleted_before` returns the offset below which a DeleteRecords request may have removed a
        partition's records.
        """
        super().__init__(run)
        self.truths: dict[LogKey, Truth] = {}
        #: Time at which each record was first seen in any log.
        self.first_stored_ns: dict[int, int] = {}
        self.truncations = 0
        #: Replicas whose log directory is intact but not mounted. Such replicas must not lead.
        self.missing: dict[tuple[int, LogKey], None] = {}
        #: Called when a leader's high watermark rises: (node id, claim, first newly committed
        #: offset).
        self.on_committed: CallbackList[[int, ReplicaClaim, int]] = CallbackList()
        #: Called when the pending ISR changes of a leader have changed: (node id, claim).
        self.on_proposed: CallbackList[[int, ReplicaClaim]] = CallbackList()
        self._deleted_before = deleted_before
        self._losses = DataLosses()
        #: Broker epoch of each node's last registration, and the incarnation that made it.
        self._registered_in: dict[int, tuple[int, int]] = {}
        self._seen: dict[tuple[int, LogKey], _Seen] = {}
        run.published.on_state.append(self._state_changed)
        run.published.on_broker.append(self._broker_registered)

    # Events

    def add(self, node: SimBroker) -> None:
        """Begin to follow the logs of a broker."""
        node.logs.on_cut = self._cut
        node.logs.on_gone = self._gone
        node.logs.on_grown = self._grown
        node.logs.lives_of = self._published.lives

    def after_event(self, node: SimBroker) -> None:
        """Check the replicas of a broker after one of its events was executed."""
        changed = [log.key for log in node.logs.follow()]
        incarnation = node.incarnation
        for claim in node.claims(changed):
            if claim.leader_epoch < 0:
                claim = _in_the_life_of_its_log(node, claim)
            log = node.logs.logs.get(claim.key) or node.logs.adopt(str(claim.name), claim.key)
            if log is None and claim.key.life:
                self._check_life(node, claim)
            seen = self._seen.get((node.node_id, claim.key))
            if seen is None:
                unseen = ReplicaClaim(claim.key, claim.name, False, -1, -1, (), ())
                seen = self._seen[(node.node_id, claim.key)] = _Seen(unseen)
            if (
                claim != seen.claim
                or seen.incarnation != incarnation
                or (log is not None and log.version != seen.log_version)
            ):
                self._look(node, claim, log, seen)

    def crashed(
        self,
        node: SimBroker,
        *,
        lossy: bool,
        keeps_committed: bool = False,
        struck: Collection[SimDisk] | None = None,
    ) -> None:
        """Record the death of a node, and read the files that its disks kept.

        If the crash is `lossy`, `struck` are the disks that lost data, by default all. With
        `keeps_committed`, the loss must not remove committed records (V69): the node still counts
        as intact, and its files are checked at once.
        """
        logs = node.logs
        keys: Collection[LogKey] | None = None
        if struck is not None and not all(disk in struck for disk in logs.disks):
            keys = [key for key, log in logs.logs.items() if log.disk in struck]
        self._losses.died(node.node_id, keys if lossy and not keeps_committed else ())
        if lossy:
            for (node_id, key), seen in self._seen.items():
                if node_id == node.node_id and (keys is None or key in keys):
                    seen.is_doubtful = True
        logs.follow()
        if lossy and keeps_committed:
            for state in self._published.partitions.values():
                if node.node_id in state.members:
                    self._check_member(state, node.node_id, "its power failed, V69")

    def _broker_registered(self, broker_id: int, broker_epoch: int) -> None:
        node = self._brokers.get(broker_id)
        is_dead = node is not None and not node.is_up
        self._losses.registered(broker_id, broker_epoch, is_dead=is_dead)
        if node is not None:
            self._registered_in[broker_id] = (broker_epoch, node.incarnation)

    def store_put_back(self) -> None:
        """Record that the store was restored from an older copy, while no broker runs."""
        self._losses.store_put_back()
        self._registered_in.clear()

    def high_watermark(self, node_id: int, key: LogKey) -> int:
        """Return the high watermark in a node's last claim; -1 if the node never made a claim."""
        seen = self._seen.get((node_id, key))
        return -1 if seen is None else seen.claim.high_watermark

    # Logs

    def truth(self, key: LogKey, name: TopicPartition | None = None) -> Truth:
        """Return what the checker knows of a partition; begin with nothing at the first call."""
        found = self.truths.get(key)
        if found is None:
            topic = self._published.all_topics.get(key.topic_id)
            fallback = TopicPartition(topic.name if topic else "?", key.partition)
            found = self.truths[key] = Truth(name or fallback)
        return found

    def has_skipped(self, key: LogKey, node_id: int, number: int) -> bool:
        """Return whether a node's log began after a committed record (V67).

        Retention can remove a record before a follower has copied it; the follower's log then
        begins after the record.
        """
        truth = self.truths.get(key)
        log = self._brokers[node_id].logs.logs.get(key)
        if truth is None or log is None:
            return False
        return number in truth.committed[: log.skipped_before]

    def _grown(self, log: ReplicaLog, first: int) -> None:
        """Check new records of a log.

        Two records with the same leader epoch and offset must be the same record. A leader appends
        with its own leader epoch, which begins at the log end when it became leader (V31).
        """
        truth = self.truth(log.key)
        seen = self._seen.get((log.node_id, log.key))
        led = -1
        observed = self._brokers[log.node_id]
        # Only records that a live leader appended are checked. After a power loss that undid a
        # truncation, the truncated records are back in the log.
        if seen is not None and observed.is_up and seen.incarnation == observed.incarnation:
            led = seen.claim.leader_epoch if seen.claim.is_leader else -1
        values, stored_by = truth.values, truth.stored_by
        node = 1 << log.node_id
        now_ns = self._now_ns()
        for offset in range(first, log.end):
            index = offset - log.start
            number = log.numbers[index]
            epoch = log.epochs[index]
            if number == GONE:
                continue
            if epoch < led:
                self._violate(
                    f"{truth.name} offset {offset}: leader {log.node_id} appended record {number}"
                    f" under epoch {epoch} when its epoch was {led} (V31)"
                )
            stored_by[(epoch, offset)] = stored_by.get((epoch, offset), 0) | node
            known = values.setdefault((epoch, offset), number)
            if known != number:
                self._violate(
                    f"{truth.name} offset {offset} epoch {epoch}: record {number} on node"
                    f" {log.node_id}, record {known} elsewhere"
                )
            self.first_stored_ns.setdefault(number, now_ns)

    def _gone(self, log: ReplicaLog) -> None:
        """Forget the role of a replica that its broker no longer hosts.

        Its records stay known, because the replica may be restored.
        """
        seen = self._seen.get((log.node_id, log.key))
        if seen is not None:
            seen.claim = seen.claim._replace(is_leader=False)
            seen.is_removed = True

    def _cut(self, log: ReplicaLog, _end_before: int) -> None:
        node = self._brokers[log.node_id]
        if node.is_up:
            self.truncations += 1
        state = self._published.partitions.get(log.key)
        if state is not None and log.node_id in state.isr:
            self._check_member(state, log.node_id, "cut its log")

    # Claims

    def _look(
        self, node: SimBroker, claim: ReplicaClaim, log: ReplicaLog | None, seen: _Seen
    ) -> None:
        if seen.is_removed and claim.leader_epoch < 0:
            return
        seen.is_removed = False
        truth, before = self.truth(claim.key, claim.name), seen.claim
        same_life = seen.incarnation == node.incarnation
        end = log.end if log is not None else 0
        if seen.is_doubtful:
            seen.is_doubtful = not self._is_reconciled(node, claim, log, truth)
            seen.log_version = -1
        if claim.high_watermark > end and not seen.is_doubtful:
            self._violate(
                f"{truth.name}: node {node.node_id} has the high watermark {claim.high_watermark}"
                f" and its log ends at {end}"
            )
            return
        if same_life and claim.leader_epoch < before.leader_epoch:
            self._violate(
                f"{truth.name}: node {node.node_id} went back from leader epoch"
                f" {before.leader_epoch} to {claim.leader_epoch}"
            )
        if claim.leader_epoch >= 0 and not (
            same_life and claim.leader_epoch == before.leader_epoch
        ):
            self._check_topic(node, claim, truth)
        same_term = same_life and before.is_leader and claim.leader_epoch == before.leader_epoch
        if claim.is_leader and not same_term and not self._published.is_over(claim.key):
            self._new_leader(node, claim, log, truth)
        if same_term and claim.is_leader and claim.high_watermark < before.high_watermark:
            self._violate(
                f"{truth.name}: the high watermark of leader {node.node_id} in epoch"
                f" {claim.leader_epoch} went back from {before.high_watermark} to"
                f" {claim.high_watermark}"
            )
        rewritten = not same_life or log is None or log.version != seen.log_version
        if not seen.is_doubtful:
            first = 0 if rewritten else max(0, before.high_watermark)
            self._compare(node, claim, log, truth, first)
        if log is not None and log.start:
            self._check_start(log, truth)
        seen.incarnation, seen.claim = node.incarnation, claim
        if claim.in_flight != before.in_flight:
            self.on_proposed(node.node_id, claim)
            self._check_joining(claim)
        state = self._published.partitions.get(claim.key)
        if state is not None and state.leader == node.node_id:
            self._check_maximal(state, claim)
        seen.log_version = -1 if log is None else log.version

    def _check_start(self, log: ReplicaLog, truth: Truth) -> None:
        """Check that the records below a log's start were committed, and were allowed to be
        removed.

        No other check finds a wrong log start, because each comparison begins at the log's
        start.
        """
        allowed = min(self._deleted_before(log.key), len(truth.committed))
        if log.start > allowed:
            self._violate(
                f"{truth.name}: the log of node {log.node_id} begins at offset {log.start};"
                f" {len(truth.committed)} records are committed, and nothing from offset"
                f" {self._deleted_before(log.key)} on may be gone"
            )

    def _check_life(self, node: SimBroker, claim: ReplicaClaim) -> None:
        """Check that a broker does not take a role in a re-added partition with the log of the
        removed partition.

        Only tidelog has a request to remove one partition of a topic. The removed partition is an
        earlier incarnation with the same topic id and partition number.
        """
        former = [key for key in node.logs.logs if key[:2] == claim.key[:2]]
        for key in former:
            log = node.logs.logs[key]
            if key.life < claim.key.life and log.numbers and claim.leader_epoch >= 0:
                self._violate(
                    f"{claim.name}: node {node.node_id} has a role of epoch {claim.leader_epoch}"
                    f" for its replica of the removed partition {key} (V71)"
                )

    def _check_topic(self, node: SimBroker, claim: ReplicaClaim, truth: Truth) -> None:
        """Check that a broker which registered after a topic's deletion takes no role in this
        topic.

        A command of the controller is valid for one registration of the broker only. A broker that
        registers after the deletion of a topic gets only commands for the recreated topic, and must
        not apply them to its replica of the deleted topic (V23).
        """
        topic = self._published.all_topics.get(claim.key.topic_id)
        broker_epoch, incarnation = self._registered_in.get(node.node_id, (-1, -1))
        if (
            topic is not None
            and 0 <= topic.deleted_zxid < broker_epoch
            and incarnation == node.incarnation
        ):
            self._violate(
                f"{truth.name}: node {node.node_id} took a role in epoch {claim.leader_epoch}"
                f" for its replica of topic {claim.key}, which was gone before it registered"
            )

    def _is_reconciled(
        self, node: SimBroker, claim: ReplicaClaim, log: ReplicaLog | None, truth: Truth
    ) -> bool:
        """Return whether the checks apply again to a replica that has lost data.

        The checks apply to a replica that leads, is in sync, or has only committed records. A
        replica that lost data and has a wrong record stays unchecked, even if this record is above
        its high watermark. A truncation lowers the high watermark before the records are removed; a
        node that dies in between may restart with the old high watermark.
        """
        if claim.is_leader or self._is_in_sync(claim.key, node):
            return True
        end = 0 if log is None else log.end
        if claim.high_watermark > end:
            return False
        return not _lacks(log, truth, min(end, len(truth.committed)))

    def _is_in_sync(self, key: LogKey, node: SimBroker) -> bool:
        state = self._published.partitions.get(key)
        return (
            state is not None and node.node_id in state.isr and self.is_intact(state, node.node_id)
        )

    def _new_leader(
        self, node: SimBroker, claim: ReplicaClaim, log: ReplicaLog | None, truth: Truth
    ) -> None:
        self._published.leads(claim.key, claim.leader_epoch, node.node_id, str(truth.name))
        problem = _lacks(log, truth, truth.committed_before(claim.leader_epoch))
        if problem:
            self._promise(
                f"{truth.name}: node {node.node_id} leads in epoch {claim.leader_epoch} without"
                f" what was committed: {problem}"
            )

    def _compare(
        self, node: SimBroker, claim: ReplicaClaim, log: ReplicaLog | None, truth: Truth, first: int
    ) -> None:
        """Check that the records below the high watermark are the committed records.

        If a leader's high watermark has risen, further records are now committed.
        """
        if log is None or claim.high_watermark <= first:
            return
        committed = truth.committed
        known_end = min(claim.high_watermark, len(committed))
        for offset in range(max(first, log.start), known_end):
            number = log.numbers[offset - log.start]
            if not truth.agrees(offset, number):
                self._promise(
                    f"{truth.name} offset {offset}, below the high watermark of node"
                    f" {node.node_id}: record {number} there, record {committed[offset]} was"
                    " committed"
                )
                break
        if claim.high_watermark <= len(committed):
            return
        if not claim.is_leader:
            self._violate(
                f"{truth.name}: follower {node.node_id} has the high watermark"
                f" {claim.high_watermark}, no leader ever had more than {len(committed)}"
            )
            return
        more = log.numbers[len(committed) - log.start : claim.high_watermark - log.start]
        if GONE in more:
            self._violate(
                f"{truth.name} offset {len(committed) + more.index(GONE)}: leader {node.node_id}"
                " has compacted it before it was committed"
            )
            return
        self._check_copies(claim, log, truth)
        self.on_committed(node.node_id, claim, len(committed))
        truth.commit(more, claim.leader_epoch)
        self._check_isr(claim)

    def _check_copies(self, claim: ReplicaClaim, log: ReplicaLog, truth: Truth) -> None:
        """Check that at least min.insync.replicas replicas have had a newly committed record.

        A replica that has lost the record since still counts (V60, V64).
        """
        if self._published.is_over(claim.key):
            return
        minimum = self._published.effective_minimum(claim.key)
        for offset in range(len(truth.committed), claim.high_watermark):
            nodes = truth.stored_by[(log.epochs[offset - log.start], offset)]
            if nodes.bit_count() < minimum:
                holders = [node_id for node_id in self._brokers if nodes >> node_id & 1]
                self._violate(
                    f"{truth.name}: the leader of epoch {claim.leader_epoch} committed offset"
                    f" {offset}, which only {holders} ever had (V60)"
                )
                return

    # The ISR

    def _check_isr(self, claim: ReplicaClaim) -> None:
        """Check that every replica that counts for the high watermark has the newly committed
        records.
        """
        state = self._published.partitions.get(claim.key)
        if state is None:
            return
        for member in state.isr:
            self._check_member(state, member, f"high watermark {claim.high_watermark}")
        self._check_joining(claim)

    def _check_joining(self, claim: ReplicaClaim) -> None:
        """Check replicas that are about to join the ISR.

        A replica must have all committed records as soon as the leader proposes to add it to the
        ISR (A7).
        """
        state = self._published.partitions.get(claim.key)
        if state is None or state.leader_epoch != claim.leader_epoch:
            return  # skip the claim of a deposed leader
        for member, broker_epoch in claim.in_flight:
            if member not in state.isr and self._losses.is_intact(claim.key, member, broker_epoch):
                self._check_log(state, member, "its joining was proposed")

    def _state_changed(self, _: PublishedPartition | None, state: PublishedPartition) -> None:
        for member in state.isr:
            self._check_member(state, member, f"ISR {state.isr} was published")
        seen = self._seen.get((state.leader, state.key))
        if seen is not None:
            self._check_maximal(state, seen.claim)

    def _check_maximal(self, state: PublishedPartition, leader: ReplicaClaim) -> None:
        """Check that the leader's maximal ISR contains every member of the published ISR (A7,
        A8).
        """
        if not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        left_out = [member for member in state.isr if member not in leader.maximal_isr]
        if left_out and self._brokers[state.leader].is_up:
            self._violate(
                f"{self.truth(state.key).name}: leader {state.leader} of epoch"
                f" {state.leader_epoch} does not wait for {left_out} of the published ISR"
                f" {state.isr}, only for {leader.maximal_isr}"
            )

    def is_intact(self, state: PublishedPartition, member: int) -> bool:
        """Return whether a member has lost no data since the broker epoch that the state node
        records for it.

        The member still has this broker epoch, or its process died under this epoch without a loss
        of data.
        """
        recorded = state.epoch_of(member)
        return recorded is not None and self._losses.is_intact(state.key, member, recorded)

    def is_unchanged(self, state: PublishedPartition, member: int) -> bool:
        """Return whether a member's process runs and still has the broker epoch in the state node.

        A broker that re-registers after an expired session has a new broker epoch, so it counts as
        restarted (V10).
        """
        node = self._brokers.get(member)
        recorded = state.epoch_of(member)
        return (
            node is not None
            and self._registered_in.get(member) == (recorded, node.incarnation)
            and self._published.brokers.get(member) == recorded
        )

    def is_leaving(self, state: PublishedPartition, member: int) -> bool:
        """Return whether the leader's pending ISR change would remove a member."""
        seen = self._seen.get((state.leader, state.key))
        leader = None if seen is None else seen.claim
        return (
            leader is not None
            and leader.is_leader
            and leader.leader_epoch == state.leader_epoch
            and bool(leader.in_flight)
            and all(member != each for each, _ in leader.in_flight)
        )

    def has_lost(self, state: PublishedPartition, member: int) -> bool:
        """Return whether a member has lost data under the broker epoch that the state node records
        for it, or later.
        """
        return self._losses.has_lost(state.key, member, state.epoch_of(member) or 0)

    def has_all_committed(self, key: LogKey, node_id: int) -> bool:
        """Return whether a node's log has every committed record of a partition."""
        node = self._brokers.get(node_id)
        truth = self.truths.get(key)
        if node is None or truth is None:
            return node is not None
        return not _lacks(node.logs.logs.get(key), truth)

    def _check_member(self, state: PublishedPartition, member: int, when: str) -> None:
        if self.is_intact(state, member):
            self._check_log(state, member, when)

    def _check_log(self, state: PublishedPartition, member: int, when: str) -> None:
        node = self._brokers.get(member)
        truth = self.truths.get(state.key)
        if node is None or truth is None or self._published.is_over(state.key):
            return
        if (member, state.key) in self.missing:
            # The log directory is not mounted; another check requires that the broker does not lead
            # (D3).
            return
        problem = _lacks(node.logs.logs.get(state.key), truth)
        if problem:
            self._promise(
                f"{truth.name}: member {member} of the maximal ISR ({state.isr}, partition epoch"
                f" {state.partition_epoch}) lacks committed records ({when}): {problem}"
            )


def _in_the_life_of_its_log(node: SimBroker, claim: ReplicaClaim) -> ReplicaClaim:
    """Return the claim, as a claim about the incarnation to which the broker's log belongs.

    The log may belong to an earlier incarnation of the partition: the partition was removed and
    added again, and the broker has no role for its replica yet. Its claim then has no leader epoch,
    so `claim` wrongly names the latest incarnation.
    """
    logs = node.logs.logs
    former = [key for key in logs if key[:2] == claim.key[:2]]
    if claim.key in logs or not former:
        return claim
    return claim._replace(key=max(former))


def _lacks(log: ReplicaLog | None, truth: Truth, end: int | None = None) -> str:
    """Describe the first committed record (up to `end`) that a log lacks; empty if it lacks
    none.
    """
    committed = truth.committed if end is None else truth.committed[:end]
    if not committed:
        return ""
    if log is None:
        return f"it has no log, {len(committed)} records are committed"
    if log.end < len(committed):
        return f"its log ends at {log.end}, {len(committed)} records are committed"
    agreed = max(log.agreed, log.start)
    if log.numbers[agreed - log.start : len(committed) - log.start] == committed[agreed:]:
        log.agreed = max(agreed, len(committed))
        return ""
    for offset in range(agreed, len(committed)):
        if not truth.agrees(offset, log.numbers[offset - log.start]):
            return (
                f"offset {offset} holds record {log.numbers[offset - log.start]}, record"
                f" {committed[offset]} was committed"
            )
    log.agreed = max(agreed, len(committed))
    return ""
