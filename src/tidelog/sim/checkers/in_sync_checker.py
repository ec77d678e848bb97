"""Invariants of the ISR: dead followers must leave, healthy followers must stay (V62, F5, F7).

A dead follower that lacks records of its leader must leave the ISR within 1.5 times
`replica.lag.time.max.ms`, because leaders examine their followers twice in that time. Slow reads of
the leader must not keep a dead follower in the ISR. The limit counts from the end of the dead
follower's connections to the leader, at the latest from `replica.socket.timeout.ms` after the
death. The leader does not notice the end of a connection after a power loss, a pause or a cut link.

In profiles whose followers stay healthy, a leader must not remove a follower from the ISR once the
follower has fetched the partition from this leader. In profiles with broker deaths and slow reads,
a leader must not remove a follower that has had all records of the leader, as long as both brokers
live. The death of another broker does not remove a live follower from the ISR (F7). The checker
reads the decisions of leaders, and the state of processes and links, which only the simulator
knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.core.types import TopicPartition
from tidelog.replication import isr as isr_rules
from tidelog.replication.progress import NEVER_MS
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.published_state import PublishedPartition

if TYPE_CHECKING:
    from tidelog.replication.leader import LeaderReplica

#: Additional time in ms for a leader's timers, and until it notices a broken connection.
_SLACK_MS: Final = 300
#: Interval in ns between two checks of the leaders.
_LOOK_NS: Final = 20 * NS_PER_MS
#: If more than this time in ns passes between two checks, all brokers were stopped, and the times
#: of dead followers are measured from the start again.
_GAP_NS: Final = 200 * NS_PER_MS
#: Stands for the end time of a dead follower's connection that is still open at the leader.
NEVER_HEARD: Final = -1
#: Maximum virtual time until a leader must know a published state of its partition.
LIMIT_NS: Final = 5_000_000_000


class _Dead(NamedTuple):
    """A dead follower that is still in the ISR of a leader, in one leader epoch."""

    leader: tuple[int, int]
    topic_partition: TopicPartition
    leader_epoch: int
    follower: int


class _KeptUp(NamedTuple):
    """A leader and a follower that has had all the leader's records; each is (broker id,
    incarnation).
    """

    leader: tuple[int, int]
    topic_partition: TopicPartition
    follower: tuple[int, int]


class InSyncChecker(Checker):
    """Checker of the members that leaders keep in their ISRs."""

    def __init__(
        self, run: CheckedRun, settings: BrokerSettings, is_connected: Callable[[int, int], bool]
    ) -> None:
        """Begin to check.

        `is_connected` returns whether a broker has an open connection from another broker's host.
        """
        super().__init__(run)
        config, profile = settings.of(1), settings.profile
        self._is_connected = is_connected
        self._limit_ms = config.replica_lag_time_max_ms * 3 // 2 + _SLACK_MS
        self._unheard_ms = config.replica_socket_timeout_ms
        self._looked_ns = 0
        #: For each dead follower that lacks records: when it was first seen in an ISR, and when its
        #: last connection to the leader had ended.
        self._seen: dict[_Dead, tuple[int, int]] = {}
        #: Number of dead followers that leaders removed from their ISRs.
        self.removed = 0
        #: Followers that have had all records of a leader at some time during its current
        #: leadership.
        self._kept_up: set[_KeptUp] = set()
        self._healthy_stay = profile.healthy_stay
        #: Number of new leader epochs in which the same leader kept a follower that was in sync.
        self.led_on = 0
        if profile.isr_stands or profile.healthy_stay:
            run.published.on_state.append(self._changed)

    def after_event(self) -> None:
        """Check the leaders at intervals, after an event of a broker."""
        now_ns = self._now_ns()
        if now_ns - self._looked_ns < _LOOK_NS:
            return
        if now_ns - self._looked_ns > _GAP_NS:
            self._seen = {}  # all brokers were stopped, so the leaders' timers did not run
        self._looked_ns = now_ns
        if self._healthy_stay:
            self._note_kept_up()
        present = {}
        for dead in self._dead_members():
            since_ns, heard_ns = self._seen.get(dead, (now_ns, NEVER_HEARD))
            is_heard = not self._is_connected(dead.leader[0], dead.follower)
            if heard_ns == NEVER_HEARD and is_heard:
                heard_ns = now_ns
            present[dead] = (since_ns, heard_ns)
            self._judge(dead, now_ns, since_ns, heard_ns)
        self.removed += sum(1 for dead in self._seen if dead not in present)
        self._seen = present

    def _judge(self, dead: _Dead, now_ns: int, since_ns: int, heard_ns: int) -> None:
        limit_ns = since_ns + (self._limit_ms + self._unheard_ms) * NS_PER_MS
        if heard_ns != NEVER_HEARD:
            limit_ns = min(limit_ns, heard_ns + self._limit_ms * NS_PER_MS)
        if now_ns > limit_ns:
            self._violate(
                f"{dead.topic_partition}: leader {dead.leader[0]} in epoch {dead.leader_epoch}"
                f" keeps follower {dead.follower} in the ISR, dead and behind for"
                f" {(now_ns - since_ns) // NS_PER_MS} ms, {(now_ns - limit_ns) // NS_PER_MS} ms too"
                " long (F7)"
            )

    def _dead_members(self) -> Iterator[_Dead]:
        """Yield the dead followers that lack records and could be removed from the ISR."""
        for leader, topic_partition, core in self._leaderships():
            # While an ISR change of the leader is in flight, the leader cannot propose to remove
            # another follower (A8).
            if not self._is_silent(leader[0]) and not core.isr.in_flight:
                for follower in self._kept(core):
                    yield _Dead(leader, topic_partition, core.leader_epoch, follower)

    def _leaderships(self) -> Iterator[tuple[tuple[int, int], TopicPartition, LeaderReplica]]:
        """Yield ((broker id, incarnation), partition, leader replica) for each leader."""
        for broker in self._brokers.values():
            for topic_partition, core in broker.leaderships():
                yield (broker.node_id, broker.incarnation), topic_partition, core

    def _kept(self, core: LeaderReplica) -> list[int]:
        return [
            member
            for member in isr_rules.target_isr(core.isr)
            if member != core.broker_id
            and member in self._brokers
            and member in core.followers
            and core.followers[member].log_end_offset != core.log_end_offset
            and self._is_silent(member)
        ]

    def _is_silent(self, broker_id: int) -> bool:
        life = self._brokers[broker_id].life
        return life is None or life.paused

    def _changed(self, before: PublishedPartition | None, now: PublishedPartition) -> None:
        if before is None or now.leader != before.leader:
            return
        stays = self._has_kept_up if self._healthy_stay else self._has_fetched
        if self._healthy_stay and now.leader_epoch > before.leader_epoch:
            # Members that died or restarted do not count: the controller itself removes them from
            # the ISR.
            self.led_on += any(stays(now, member) for member in now.isr if member != now.leader)
            self._forget_left(now)
            return
        left = [member for member in before.isr if member not in now.isr and stays(now, member)]
        if left and now.isr:
            self._violate(
                f"{now.key}: {left} left the ISR of leader {now.leader}, although every follower is"
                " healthy and only the leader's reads are slow (F5)"
            )
        self._forget_left(now)

    def _forget_left(self, now: PublishedPartition) -> None:
        """Remove followers that left the ISR from `_kept_up`, until they have caught up again."""
        name = self._published.name(now.key)
        self._kept_up = {
            each
            for each in self._kept_up
            if each.topic_partition != name or each.follower[0] in now.isr
        }

    def _note_kept_up(self) -> None:
        """Note the ISR members that have all records of their leaders now."""
        led = set()
        for leader, topic_partition, core in self._leaderships():
            led.add((leader, topic_partition))
            for member in core.isr.committed:
                follower = core.followers.get(member)
                if (
                    follower is not None
                    and follower.log_end_offset == core.log_end_offset
                    and follower.broker_epoch == self._brokers[member].broker_epoch
                ):
                    life = (member, self._brokers[member].incarnation)
                    self._kept_up.add(_KeptUp(leader, topic_partition, life))
        self._kept_up = {
            each
            for each in self._kept_up
            if (each.leader, each.topic_partition) in led
            and not self._brokers[each.follower[0]].reads_slowly
        }

    def _has_kept_up(self, now: PublishedPartition, member: int) -> bool:
        """Return whether a member is alive and has had all records of the leader in this
        leadership.
        """
        leader, follower = self._brokers[now.leader], self._brokers[member]
        kept_up = _KeptUp(
            (now.leader, leader.incarnation),
            self._published.name(now.key),
            (member, follower.incarnation),
        )
        return not self._is_silent(member) and kept_up in self._kept_up

    def _has_fetched(self, now: PublishedPartition, follower: int) -> bool:
        """Return whether the leader has received a fetch of the follower for this partition.

        A leader may not have received any: the first fetch of a follower may wait behind a slow
        read of another partition on the same connection.
        """
        name = self._published.name(now.key)
        return any(
            topic_partition == name and core.followers[follower].last_fetch_ms > NEVER_MS
            for topic_partition, core in self._brokers[now.leader].leaderships()
        )


class IsrViewChecker(Checker):
    """Comparison of leaders' ISRs with the published ISRs (A3, A9).

    A leader must learn of each published state of its leader epoch within `LIMIT_NS`, even if it
    did not request the change. The checker runs in profiles without cut links and pauses: only
    these delay commands for longer.
    """

    def __init__(
        self, run: CheckedRun, after_ns: Callable[[int, Callable[[], None]], object]
    ) -> None:
        """`after_ns` calls a function after a virtual time."""
        super().__init__(run)
        self._after_ns = after_ns
        run.published.on_state.append(self._changed)

    def _changed(self, _: PublishedPartition | None, now: PublishedPartition) -> None:
        if now.leader in self._brokers:
            self._after_ns(LIMIT_NS, lambda: self._check(now))

    def _check(self, state: PublishedPartition) -> None:
        """Check that a leader knows the published state; called `LIMIT_NS` after the state was
        published.
        """
        if self._published.partitions.get(state.key) is not state:
            return
        name = self._published.name(state.key)
        core = dict(self._brokers[state.leader].leaderships()).get(name)
        if core is None or core.leader_epoch != state.leader_epoch:
            return
        if core.isr.partition_epoch < state.partition_epoch:
            self._violate(
                f"{name}: leader {state.leader} goes on with the ISR {core.isr.committed} of"
                f" partition epoch {core.isr.partition_epoch}, where {state.isr} of"
                f" {state.partition_epoch} is published since {LIMIT_NS // 10**9} s (A9)"
            )
