"""The reference of the small world of replicas: what must hold, computed from the whole truth.

The reference sees every log, every registration and every request under way, which no broker does.
It states each rule by its definition, without the code of `tidelog.replication`:
Every member that the controller may rely on has every committed record (A15, E1), on its disk with
`flush.before.ack` (V69). The high watermark waits for every ISR that may be published next (A6 to
A8). It rises only with enough confirmed members (V60, E1), and never falls in one leadership. A
member that a leader proposes has every committed record, unless the member has restarted since
(V63). A member leaves the ISR if, and only if, it is out of sync (V62, F1 to F7). The records below
a replica's high watermark are committed (V61).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.replication.isr import Awaits, IsrChange
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_facts import (
    LONG_AGO_MS,
    UNKNOWN,
    FollowerFacts,
    LeadershipFacts,
)
from tidelog.sim.small.replica_set_register import PublishedRegister, describe
from tidelog.sim.small.replica_set_values import (
    MAX_LAG_MS,
    SOCKET_TIMEOUT_MS,
    ReplicaSetSettings,
    SmallFetch,
    SmallRecord,
    SmallRequest,
    SmallResponse,
    SmallState,
)


class ReplicaSetReference:
    """The reference of one history: it knows the true state, and checks rules after each step."""

    __slots__ = (
        "committed",
        "intact_from",
        "leaderships",
        "lost",
        "promised",
        "settings",
        "violation",
    )

    def __init__(self, settings: ReplicaSetSettings) -> None:
        self.settings = settings
        #: All records that any leader of the history has committed, by offset.
        self.committed: list[SmallRecord] = []
        #: By broker: the broker epoch since which the broker has lost no record.
        self.intact_from: dict[int, int] = dict.fromkeys(settings.replicas, 0)
        #: Brokers that lost records in a crash and have not registered since then.
        self.lost: frozenset[int] = frozenset()
        #: Offset below which every member has all records on its disk, because leaders with
        #: `flush.before.ack` committed them, and no leader without it came since (V69).
        self.promised = 0
        self.leaderships: dict[int, LeadershipFacts] = {}
        #: The first violation of a rule in this history; "" if there was none.
        self.violation = ""

    def copy(self) -> ReplicaSetReference:
        """Return an independent copy."""
        other = ReplicaSetReference(self.settings)
        other.committed = self.committed.copy()
        other.intact_from = dict(self.intact_from)
        other.lost, other.promised, other.violation = self.lost, self.promised, self.violation
        other.leaderships = {number: facts.copy() for number, facts in self.leaderships.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Return the part of the reference's state on which later violations depend, as a hashable
        value.
        """
        intact_from = tuple(self.intact_from.items())
        return (tuple(self.committed), intact_from, self.lost, self.promised)

    def violate(self, text: str) -> None:
        """Note the first violation of the history."""
        if not self.violation:
            self.violation = text

    # what happens

    def leadership_begins(self, broker: SmallBroker, now_ms: int) -> None:
        """Note that a broker, which has every committed record, begins to lead (V12, E6)."""
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
        if not broker.flushes:
            self.promised = 0

    def policy_changed(self, broker: SmallBroker, now_ms: int) -> None:
        """Note that a broker is about to learn the other value of `flush.before.ack` (V69)."""
        leadership = self.leaderships.get(broker.broker_id)
        if leadership is None:
            return
        will_flush = not broker.flushes
        if not will_flush:
            self.promised = 0
        for facts in leadership.followers.values():
            if facts.end == len(broker.log):
                facts.caught_up_ms = now_ms
            facts.end = facts.synced if will_flush else facts.fetch_offset

    def _continue(self, mine: FollowerFacts, former: FollowerFacts, now_ms: int) -> None:
        """Keep the reads under way of a former leadership of the same broker (F7)."""
        if former.connection == (0, 0):
            return
        is_repeated = former.has_pending_read(now_ms) and former.end != UNKNOWN
        mine.previous_end = former.end if is_repeated else former.previous_end
        mine.kept_up, mine.connection = former.kept_up, former.connection
        mine.read_since_ms, mine.done_ms = former.read_since_ms, former.done_ms
        if mine.kept_up:
            mine.caught_up_ms = max(mine.caught_up_ms, mine.done_ms)

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

    def fetched(
        self, broker: SmallBroker, fetch: SmallFetch, response: SmallResponse, counts: bool
    ) -> None:
        """Check that a fetch counts only if it may, and else has the right error (V37, V63)."""
        leadership = self.leaderships.get(broker.broker_id)
        if leadership is None:
            return
        own, asked = leadership.leader_epoch, fetch.position.leader_epoch
        if asked != own:
            fenced = asked < own
            error = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
            if counts or response.error != error:
                self.violate(
                    f"V37: leader epoch {own} responds to a fetch of leader epoch {asked} with"
                    f" {ErrorCode(response.error).name}"
                )
        newest = leadership.followers[fetch.replica_id].newest_epoch
        if counts and NO_BROKER_EPOCH != fetch.broker_epoch < newest:
            self.violate(
                f"V63: a fetch of broker epoch {fetch.broker_epoch} of broker {fetch.replica_id}"
                f" counts after one of {newest}"
            )

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
        if now_ms - received_ms <= SOCKET_TIMEOUT_MS:
            facts.done_ms = now_ms
            if facts.kept_up:
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
        self._risen(broker, self._counting(broker, now_ms))
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
        self,
        broker: SmallBroker,
        change: IsrChange,
        brokers: dict[int, SmallBroker],
        register: PublishedRegister,
        fetching: int,
        now_ms: int,
    ) -> None:
        """Check an ISR change that a leader has just proposed (V62, V63, A1, A8)."""
        role, leadership = broker.leading, self.leaderships[broker.broker_id]
        assert role is not None, "a leader proposes"
        if sorted(change.isr) == sorted(role.isr.committed):
            self.violate(f"A8: the confirmed ISR {list(change.isr)} is proposed again")
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
            is_joining = member not in role.isr.committed
            is_new = is_joining and member not in leadership.target
            if is_new and epoch == NO_BROKER_EPOCH and member != fetching:
                self.violate(
                    f"V63: broker {member}, whose fetches have no broker epoch, must join the ISR,"
                    " but has not fetched now"
                )
            if epoch == NO_BROKER_EPOCH or epoch != other.broker_epoch or not other.is_up:
                continue
            if role.leader_epoch != register.state.leader_epoch:
                continue  # the controller refuses whatever an outdated leader proposes
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
        now_ms: int,
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
                self._waited(broker, now_ms)
            self._confirmed(broker, register)
            self._risen(broker, tuple(leadership.followers))
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
        if broker.flushes:
            self.promised = max(self.promised, mark)
        known = register.history[role.isr.partition_epoch]
        if len(known.isr) < self._minimum(known):
            self.violate(f"V60: records are committed with the confirmed ISR {list(known.isr)}")
        if known.elr:
            self.violate(f"E1: records are committed beside the eligible replicas {known.elr}")
        for request in requests:
            if request.sender == broker.broker_id and register.may_be_accepted(request):
                self._awaited(request.change, broker, brokers)

    def _minimum(self, state: SmallState) -> int:
        return min(self.settings.leader_minimum, len(state.replicas))

    def _counting(self, broker: SmallBroker, now_ms: int) -> tuple[int, ...]:
        """Return the followers for which the high watermark waits (V60)."""
        role = broker.leading
        assert role is not None, "a leader waits for followers"
        counting = list(role.isr.committed)
        for change in (*role.isr.in_flight, *([role.isr.queued] if role.isr.queued else [])):
            counting += change.isr
        followers = self.leaderships[broker.broker_id].followers
        return tuple(
            number
            for number, facts in followers.items()
            if number in counting
            or (
                number in role.replicas
                and broker.is_eligible(number)
                and (facts.end == len(broker.log) or now_ms - facts.caught_up_ms <= MAX_LAG_MS)
            )
        )

    def _risen(self, broker: SmallBroker, counting: Iterable[int]) -> None:
        """Check that the high watermark is not below what these followers have (V60)."""
        role = broker.leading
        assert role is not None, "a leader has a high watermark"
        if role.has_eligible or role.is_below_minimum:
            return
        followers = self.leaderships[broker.broker_id].followers
        end = broker.durable if broker.flushes else len(broker.log)
        reached = min([end, *(followers[number].end for number in counting)])
        if role.high_watermark < reached:
            self.violate(f"V60: the high watermark {role.high_watermark} is not {reached}")

    def _waited(self, broker: SmallBroker, now_ms: int) -> None:
        """Check that the high watermark waits for a follower that is about to join (V60)."""
        if self.settings.counts_pending_reads:
            return  # only a follower's next fetch shows when it was caught up (F6)
        followers = self.leaderships[broker.broker_id].followers
        for number in self._counting(broker, now_ms):
            if followers[number].end < broker.high_watermark:
                self.violate(
                    f"V60: the high watermark {broker.high_watermark} does not wait for broker"
                    f" {number}, which has fetched to {followers[number].end}"
                )

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
        elif role.is_below_minimum != (len(published.isr) < self._minimum(published)):
            self.violate(f"A7: the confirmed ISR {list(published.isr)} is compared wrongly")

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
            if broker.durable < self.promised:
                self.violate(
                    f"V69: {self.promised} records are committed on disks, but member {member} has"
                    f" only {broker.durable} on its disk"
                )
            is_promised = self.promised == len(self.committed)
            if not is_promised and not self.is_intact(member, recorded):
                continue
            if not _has(broker, self.committed):
                self.violate(
                    f"A15: member {member} of {_members(register.state)} has not every committed"
                    f" record: its log ends at {len(broker.log)}, {len(self.committed)} are"
                    " committed"
                )

    def is_intact(self, member: int, recorded: int) -> bool:
        """Return whether a broker has lost no record since this broker epoch."""
        return recorded >= self.intact_from[member] and member not in self.lost

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
