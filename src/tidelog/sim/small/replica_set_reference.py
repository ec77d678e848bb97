"""The reference of the small world of replicas: what must hold, computed from the whole truth.

The reference sees every log, every registration and every request under way, which no broker does.
It states each rule by its definition, without the code of `tidelog.replication`:
Every member that the controller may rely on has every committed record (A15, E1), on its disk with
`flush.before.ack` (V69). The high watermark waits for every ISR that may be published next (A6 to
A8). It rises only with enough confirmed members (V60, E1), and never falls in one leadership. A
proposed member has the records for which its broker epoch stands (V63). A member leaves the ISR if,
and only if, it is out of sync (V62, F1 to F7). A replica believes only committed records to be
committed (V61).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.replication.isr import Awaits, IsrChange
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_register import PublishedRegister, describe
from tidelog.sim.small.replica_set_values import (
    MAX_LAG_MS,
    SOCKET_TIMEOUT_MS,
    ReplicaSetSettings,
    SmallRecord,
    SmallRequest,
    SmallState,
)

#: A time that lies further in the past than any time limit.
LONG_AGO_MS: Final = -1_000
#: The value for a log end that is not known.
UNKNOWN: Final = -1


class FollowerFacts:
    """What one follower's fetches have shown the leader in one leadership, by the definitions of F1
    to F7.
    """

    __slots__ = (
        "caught_up_ms",
        "connection",
        "counted_epoch",
        "end",
        "fetched_ms",
        "kept_up",
        "previous_end",
        "read_since_ms",
    )

    def __init__(self, caught_up_ms: int, previous_end: int) -> None:
        self.caught_up_ms = caught_up_ms
        #: The leader's log end when the follower's last fetch arrived.
        self.previous_end = previous_end
        #: The fetch offset of the follower's last fetch.
        self.end = UNKNOWN
        self.fetched_ms = LONG_AGO_MS
        #: Whether the last fetch reached the leader's log end, or the log end at the time of the
        #: fetch before it (F5).
        self.kept_up = False
        #: The connection of the follower's last fetch. `read_since_ms` is the arrival time of the
        #: fetch for which the leader reads from its disk; -1 if the leader reads for no fetch.
        self.connection: tuple[int, int] = (0, 0)
        self.read_since_ms = -1
        #: Broker epoch of the last fetch that had every committed record, and all records of
        #: earlier leader epochs (V63).
        self.counted_epoch = NO_BROKER_EPOCH

    def copy(self) -> FollowerFacts:
        """Return an independent copy."""
        other = FollowerFacts(self.caught_up_ms, self.previous_end)
        other.end, other.fetched_ms, other.kept_up = self.end, self.fetched_ms, self.kept_up
        other.connection, other.read_since_ms = self.connection, self.read_since_ms
        other.counted_epoch = self.counted_epoch
        return other

    def fetched(
        self, offset: int, leader_end: int, connection: tuple[int, int], now_ms: int
    ) -> None:
        """Note a fetch of the follower that counts as progress (F2)."""
        self.kept_up = offset >= leader_end or (
            self.previous_end != UNKNOWN and offset >= self.previous_end
        )
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.previous_end and self.fetched_ms > self.caught_up_ms:
            self.caught_up_ms = self.fetched_ms
        self.end, self.previous_end, self.fetched_ms = offset, leader_end, now_ms
        self.connection, self.read_since_ms = connection, -1

    def has_pending_read(self, now_ms: int) -> bool:
        """Return whether a read for this follower is under way that keeps it in sync (F5, F7)."""
        age_ms = now_ms - self.read_since_ms
        return self.kept_up and self.read_since_ms >= 0 and age_ms <= SOCKET_TIMEOUT_MS


class LeadershipFacts:
    """What the reference knows of one leadership: its followers, and its high watermark."""

    __slots__ = ("followers", "high_watermark", "is_continued", "leader_epoch", "target")

    def __init__(self, leader_epoch: int, high_watermark: int, target: tuple[int, ...]) -> None:
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        #: The ISR that the leader wanted to have after the last step.
        self.target = target
        self.followers: dict[int, FollowerFacts] = {}
        #: Whether the same broker led in the leader epoch before, and continues the reads under way
        #: (F7).
        self.is_continued = False

    def copy(self) -> LeadershipFacts:
        """Return an independent copy."""
        other = LeadershipFacts(self.leader_epoch, self.high_watermark, self.target)
        other.followers = {number: facts.copy() for number, facts in self.followers.items()}
        other.is_continued = self.is_continued
        return other


class ReplicaSetReference:
    """The reference of one history: it knows the true state, and checks rules after each step."""

    __slots__ = ("committed", "intact_from", "leaderships", "lost", "settings", "violation")

    def __init__(self, settings: ReplicaSetSettings) -> None:
        self.settings = settings
        #: All records that any leader of the history has committed, by offset.
        self.committed: list[SmallRecord] = []
        #: By broker: the broker epoch since which the broker has lost no record.
        self.intact_from: dict[int, int] = dict.fromkeys(settings.replicas, 0)
        #: Brokers that lost records in a crash and have not registered since then.
        self.lost: frozenset[int] = frozenset()
        self.leaderships: dict[int, LeadershipFacts] = {}
        #: The first violation of a rule in this history; "" if there was none.
        self.violation = ""

    def copy(self) -> ReplicaSetReference:
        """Return an independent copy."""
        other = ReplicaSetReference(self.settings)
        other.committed = self.committed.copy()
        other.intact_from = dict(self.intact_from)
        other.lost, other.violation = self.lost, self.violation
        other.leaderships = {number: facts.copy() for number, facts in self.leaderships.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Return the part of the reference's state on which later violations depend, as a hashable
        value.
        """
        return (tuple(self.committed), tuple(self.intact_from.items()), self.lost)

    def violate(self, text: str) -> None:
        """Note the first violation of the history."""
        if not self.violation:
            self.violation = text

    # what happens

    def leadership_begins(self, broker: SmallBroker, now_ms: int) -> None:
        """Note that a broker begins to lead; it has every committed record (V12, E6)."""
        role = broker.leading
        assert role is not None, "the broker leads"
        former = self.leaderships.get(broker.broker_id)
        facts = LeadershipFacts(role.leader_epoch, role.high_watermark, role.isr.committed)
        facts.is_continued = former is not None
        for replica in self.settings.replicas:
            if replica == broker.broker_id:
                continue
            is_member = replica in role.isr.committed
            mine = FollowerFacts(
                now_ms if is_member else LONG_AGO_MS, len(broker.log) if is_member else UNKNOWN
            )
            facts.followers[replica] = mine
            if former is not None and self.settings.counts_pending_reads:
                self._continue(mine, former.followers[replica], now_ms)
        self.leaderships[broker.broker_id] = facts

    def _continue(self, mine: FollowerFacts, former: FollowerFacts, now_ms: int) -> None:
        """Keep the reads under way of a former leadership of the same broker (F7)."""
        if former.connection == (0, 0):
            return
        is_repeated = former.has_pending_read(now_ms) and former.end != UNKNOWN
        mine.previous_end = former.end if is_repeated else former.previous_end
        mine.kept_up, mine.connection = former.kept_up, former.connection
        mine.read_since_ms = former.read_since_ms

    def leadership_ends(self, broker_id: int) -> None:
        """Note that a broker no longer leads."""
        self.leaderships.pop(broker_id, None)

    def appended(self, broker_id: int, former_end: int, now_ms: int) -> None:
        """Note a leader's append: a follower that had all earlier records was caught up until now
        (F3).
        """
        for facts in self.leaderships[broker_id].followers.values():
            if facts.end == former_end:
                facts.caught_up_ms = now_ms

    def read_done(
        self, broker_id: int, connection: tuple[int, int], received_ms: int, now_ms: int
    ) -> None:
        """Note that the leader has ended its read for the last fetch of a connection (F6)."""
        leadership = self.leaderships.get(broker_id)
        if leadership is None or not self.settings.counts_pending_reads:
            return
        facts = leadership.followers[connection[0]]
        if facts.connection != connection:
            return
        if facts.kept_up and now_ms - received_ms <= SOCKET_TIMEOUT_MS:
            facts.caught_up_ms = max(facts.caught_up_ms, now_ms)
        facts.read_since_ms = -1

    def read_dropped(self, broker_id: int, connection: tuple[int, int]) -> None:
        """Note that the leader learns that a connection is closed (F7)."""
        leadership = self.leaderships.get(broker_id)
        if leadership is not None:
            facts = leadership.followers[connection[0]]
            if facts.connection == connection:
                facts.read_since_ms = -1

    def change_dropped(self, broker_id: int) -> None:
        """Note that the controller refused the newest change, so that the leader wants another ISR.

        The ISR that the leader falls back to may lack members that are in sync by now.
        """
        self.leaderships[broker_id].target = ()

    # what must hold

    def is_in_sync(self, broker: SmallBroker, member: int, now_ms: int) -> bool:
        """Return whether a member is in sync by F3 to F6, and by the limit in bytes (V62)."""
        facts = self.leaderships[broker.broker_id].followers[member]
        is_reading = facts.has_pending_read(now_ms) and broker.is_eligible(member)
        is_reading = is_reading and self.settings.counts_pending_reads
        behind = len(broker.log) - max(0, facts.end)
        if 0 <= self.settings.max_lag_bytes < behind and not is_reading:
            return False
        return (
            facts.end == len(broker.log) or is_reading or now_ms - facts.caught_up_ms <= MAX_LAG_MS
        )

    def examined(self, broker: SmallBroker, now_ms: int) -> None:
        """Check that an examination left no member in the ISR that is out of sync (V62)."""
        role = broker.leading
        assert role is not None, "a leader examines"
        if role.isr.awaits in (Awaits.RESPONSE, Awaits.COMMAND):
            return
        for member in target_of(broker):
            if member not in role.isr.committed or member == broker.broker_id:
                continue
            if not self.is_in_sync(broker, member, now_ms):
                self.violate(
                    f"V62: broker {member} stays in the ISR that leader {broker.broker_id} wants,"
                    " although it is out of sync"
                )

    def proposed(
        self, broker: SmallBroker, change: IsrChange, brokers: dict[int, SmallBroker], now_ms: int
    ) -> None:
        """Check an ISR change that a leader has just proposed (V62, V63, A1)."""
        role, leadership = broker.leading, self.leaderships[broker.broker_id]
        assert role is not None, "a leader proposes"
        for member in leadership.target:
            if member in change.isr or member == broker.broker_id:
                continue
            if member in role.isr.committed and self.is_in_sync(broker, member, now_ms):
                self.violate(f"F3 to F7: broker {member} must leave the ISR, but is in sync")
        for member, epoch in zip(change.isr, change.isr_epochs, strict=True):
            other = brokers[member]
            facts = leadership.followers.get(member)
            if facts is not None and epoch != facts.counted_epoch:
                self.violate(
                    f"V63: broker {member} is proposed with broker epoch {epoch}, but the fetches"
                    f" that counted are of {facts.counted_epoch}"
                )
            if epoch == NO_BROKER_EPOCH or epoch != other.broker_epoch or not other.is_up:
                continue
            is_joining = member not in role.isr.committed
            needed = role.high_watermark
            if is_joining:
                needed = max(needed, role.epoch_start_offset)
                if not broker.is_eligible(member):
                    self.violate(f"V63: broker {member} must join the ISR, but is not alive")
            if not _has(other, broker.log[:needed]):
                self.violate(
                    f"V63: broker epoch {epoch} of broker {member} is proposed for the ISR, but its"
                    f" log ends at {len(other.log)}, and {needed} is needed"
                )

    def after_step(
        self,
        brokers: dict[int, SmallBroker],
        register: PublishedRegister,
        requests: Iterable[SmallRequest],
    ) -> None:
        """Check all rules that must hold between two steps of a history."""
        for broker in brokers.values():
            role = broker.leading
            if role is None:
                self._believed(broker)
                continue
            leadership = self.leaderships[broker.broker_id]
            moved = role.high_watermark != leadership.high_watermark
            if moved:
                self._moved(broker, leadership, brokers, register, requests)
            self._confirmed(broker, register)
            self._counted(broker, register, requests)
            leadership.target = target_of(broker)
        self._kept(brokers, register)

    def _moved(
        self,
        broker: SmallBroker,
        leadership: LeadershipFacts,
        brokers: dict[int, SmallBroker],
        register: PublishedRegister,
        requests: Iterable[SmallRequest],
    ) -> None:
        """Check the new high watermark of a leader (V60, A6 to A8, E1)."""
        role = broker.leading
        assert role is not None, "a leader's high watermark moves"
        before, mark = leadership.high_watermark, role.high_watermark
        leadership.high_watermark = mark
        if not before <= mark <= len(broker.log):
            self.violate(f"V60: the high watermark moves from {before} to {mark}")
            return
        for offset in range(max(before, broker.log_start), mark):
            record = broker.log[offset]
            if offset >= len(self.committed):
                self.committed.append(record)
            elif offset >= broker.log_start and self.committed[offset] != record:
                self.violate(
                    f"V60: leader {broker.broker_id} commits {record} at offset {offset}, where"
                    f" {self.committed[offset]} is committed"
                )
        if broker.shown_high_watermark != mark:
            self.violate("V60: the high watermark moved, but requests that wait got no response")
        known = register.history[role.isr.partition_epoch]
        if len(known.isr) < register.minimum:
            self.violate(f"V60: records are committed with the confirmed ISR {list(known.isr)}")
        if known.elr:
            self.violate(f"E1: records are committed beside the eligible replicas {known.elr}")
        for request in requests:
            if request.sender == broker.broker_id and register.may_be_accepted(request):
                self._awaited(request.change, broker, brokers)

    def _awaited(
        self, change: IsrChange, broker: SmallBroker, brokers: dict[int, SmallBroker]
    ) -> None:
        """Check that the high watermark waits for the members of the ISR change under way (A8)."""
        committed = broker.log[: broker.high_watermark]
        for member in change.isr:
            if member not in self.lost and not _has(brokers[member], committed):
                self.violate(
                    f"A8: the high watermark {len(committed)} does not wait for broker {member},"
                    f" whose log ends at {len(brokers[member].log)}, although the controller may"
                    f" still accept the {describe(change)}"
                )

    def _counted(
        self, broker: SmallBroker, register: PublishedRegister, requests: Iterable[SmallRequest]
    ) -> None:
        """Check that the high watermark waits for all ISR changes that may be accepted (A8)."""
        role = broker.leading
        assert role is not None, "a leader counts members"
        for request in requests:
            if request.sender != broker.broker_id or not register.may_be_accepted(request):
                continue
            for member in request.change.isr:
                follower = role.followers.get(member)
                if follower is not None and not follower.in_maximal_isr:
                    self.violate(
                        f"A8: broker {member} does not count for the high watermark, although the"
                        f" controller may still accept the {describe(request.change)}"
                    )

    def _confirmed(self, broker: SmallBroker, register: PublishedRegister) -> None:
        role = broker.leading
        assert role is not None, "a leader has a confirmed ISR"
        published = register.history.get(role.isr.partition_epoch)
        if published is None or sorted(published.isr) != sorted(role.isr.committed):
            self.violate(
                f"A9: leader {broker.broker_id} believes in ISR {list(role.isr.committed)} at"
                f" partition epoch {role.isr.partition_epoch}"
            )

    def _believed(self, broker: SmallBroker) -> None:
        """Check that the records below a replica's high watermark are committed (V61)."""
        mark = broker.high_watermark
        if mark > max(len(broker.log), broker.log_start):
            self.violate(
                f"V38: the high watermark {mark} of broker {broker.broker_id} is above its log end"
                f" {len(broker.log)}"
            )
        start = broker.log_start
        if mark > len(self.committed) or broker.log[start:mark] != self.committed[start:mark]:
            self.violate(
                f"V61: broker {broker.broker_id} believes its records below {mark} to be committed"
            )

    def _kept(self, brokers: dict[int, SmallBroker], register: PublishedRegister) -> None:
        """Check that each ISR member and eligible replica has every committed record."""
        for member, recorded in register.state.recorded().items():
            broker = brokers[member]
            if self.settings.flush_before_ack:
                if broker.durable < len(self.committed):
                    self.violate(
                        f"V69: {len(self.committed)} records are committed, but member {member} has"
                        f" only {broker.durable} on its disk"
                    )
            elif recorded < self.intact_from[member] or member in self.lost:
                continue
            if not _has(broker, self.committed):
                self.violate(
                    f"A15: member {member} of {_members(register.state)} has not every committed"
                    f" record: its log ends at {len(broker.log)}, {len(self.committed)} are"
                    " committed"
                )

    def led(self, broker: SmallBroker, register: PublishedRegister) -> None:
        """Check that the leader of the newest epoch has every committed record (V12, E6)."""
        state = register.state
        if broker.broker_id != state.leader or broker.known[0] != state.leader_epoch:
            return
        if not _has(broker, self.committed):
            self.violate(f"E6: leader {broker.broker_id} has not every committed record")


def target_of(broker: SmallBroker) -> tuple[int, ...]:
    """Return the ISR that a leader wants: its newest change, or else the confirmed ISR (A8)."""
    role = broker.leading
    assert role is not None, "a leader wants an ISR"
    if role.isr.queued is not None:
        return role.isr.queued.isr
    return role.isr.in_flight[-1].isr if role.isr.in_flight else role.isr.committed


def _has(broker: SmallBroker, records: list[SmallRecord]) -> bool:
    start = broker.log_start
    return len(broker.log) >= len(records) and broker.log[start : len(records)] == records[start:]


def _members(state: SmallState) -> str:
    elr = [member for member, _ in state.elr]
    return f"ISR {list(state.isr)}" + (f" with eligible {elr}" if elr else "")
