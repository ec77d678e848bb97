"""Model 5, pending reads: one leader whose reads end whenever they like, and one follower.

Real: the leader's decisions, follower progress and pending reads (F2 to F8), with time. A fetch
that finds records begins a read. It ends at any later time, and the follower then has what it read.
The follower's connection closes, it dies with or without word, and it fetches again. The leader
examines it with every unit of time, and the controller accepts each change at once. It also changes
the ISR itself, as another broker has died: the same broker leads on under a new leader epoch. What
it has read for an earlier epoch brings the follower nothing.

Bounds: records written, time, leader epochs, deaths (one).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.support.models.explorer import State, Step, Table

from tidelog.replication.effects import Effects, SendAlterPartition
from tidelog.replication.isr import IsrState
from tidelog.replication.leader import LeaderReplica
from tidelog.replication.pending_reads import PendingRead, PendingReads

LEADER, FOLLOWER = 1, 2
_EPOCH = 7
NO_TIME = -1


class Bounds(NamedTuple):
    """How much happens; times in units, each of which the leader examines its follower once."""

    max_offset: int = 2
    max_time: int = 7
    #: `replica.lag.time.max.ms` and `replica.socket.timeout.ms`.
    lag: int = 1
    socket_timeout: int = 3
    #: Leader epochs after the first.
    max_epochs: int = 0

    def __str__(self) -> str:
        epochs = f", {self.max_epochs + 1} leader epochs" if self.max_epochs else ""
        return f"{self.max_offset} records, time {self.max_time}{epochs}"


#: The same broker leads on under another epoch at any time. Shorter times keep the states few.
LED_ON: Final = Bounds(max_time=4, lag=0, socket_timeout=2, max_epochs=1)


class World(NamedTuple):
    """One state; `leader` is never changed, its copies are."""

    leader: LeaderReplica
    now: int = 0
    #: The end of the follower's log.
    end: int = 0
    #: The fetch in flight: its number, when it arrived, the end of what is read, and the leader
    #: epoch; None without.
    fetch: tuple[int, int, int, int] | None = None
    #: The leader's LEO when the last fetch arrived, with which F5 compares the next one. A fetch
    #: that a new epoch makes void is repeated: then its own offset.
    last_end: int = 0
    #: The fetch in flight is one of a member of the ISR that F5 counts.
    counts: bool = False
    is_connected: bool = True
    is_alive: bool = True
    #: When the follower had died, and when its leader had heard of it.
    died: int = NO_TIME
    heard: int = NO_TIME
    #: Since when the follower lacks records.
    behind: int = NO_TIME

    def key(self) -> tuple[object, ...]:
        """The whole state as a value, without the number of the fetch."""
        fetch = None if self.fetch is None else self.fetch[1:]
        return (self.leader.key(), *self._replace(fetch=None)[1:], fetch)


class PendingModel:
    """States are numbers of worlds."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.name = f"pending reads {self.bounds}"
        self._worlds: Table[World] = Table()

    # the exploration

    def first(self) -> State:
        """Both are in sync and empty; the follower has fetched."""
        leader = LeaderReplica(
            broker_id=LEADER,
            broker_epoch=1,
            leader_epoch=0,
            isr=IsrState((LEADER, FOLLOWER), 0),
            replicas=(LEADER, FOLLOWER),
            epoch_start_offset=0,
            log_end_offset=0,
            high_watermark=0,
            min_insync_replicas=1,
            max_lag_ms=self.bounds.lag,
            is_eligible=lambda _: True,
            now_ms=0,
            counts_pending_reads=True,
        )
        leader.fetched(FOLLOWER, _EPOCH, 0, 0, 0, reads=PendingReads(self.bounds.socket_timeout))
        return self._state(World(leader))

    def canonical(self, state: State) -> State:
        """Each state stands for itself: the two replicas differ."""
        return state

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What the client, the follower, the disk, the network and time may do."""
        world = self._worlds.values[state[0]]
        for step, after in self._steps(world):
            yield step, self._state(after)

    def _state(self, world: World) -> State:
        lacks = world.end < world.leader.log_end_offset
        if not lacks:
            world = world._replace(behind=NO_TIME)
        elif world.behind == NO_TIME:
            world = world._replace(behind=world.now)
        return (self._worlds.number(world.key(), world),)

    def _steps(self, world: World) -> Iterator[tuple[Step, World]]:
        if world.leader.log_end_offset < self.bounds.max_offset:
            leader = world.leader.copy()
            leader.appended(leader.log_end_offset + 1, world.now)
            yield ("write",), world._replace(leader=leader)
        if world.is_alive and world.fetch is None:
            yield ("fetch", world.end), _fetch(world)
        if world.fetch is not None:
            yield ("read",), _read(world)
            if world.is_connected:
                yield ("close",), _close(world)
        if world.is_alive:
            dead = world._replace(is_alive=False, died=world.now)
            yield ("die silently",), dead
            yield ("die",), _close(dead)._replace(heard=world.now)
        if world.now < self.bounds.max_time:
            leader = world.leader.copy()
            _accept(leader, leader.examine(world.now + 1), world.now + 1)
            yield ("time",), world._replace(leader=leader, now=world.now + 1)
        if world.leader.leader_epoch < self.bounds.max_epochs:
            yield ("lead on",), _lead_on(world)

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants that do not hold."""
        world, bounds = self._worlds.values[state[0]], self.bounds
        leader, now = world.leader, world.now
        is_member = FOLLOWER in leader.isr.committed
        found = []
        if is_member and leader.high_watermark > world.end:
            found.append("ValidHighWatermark")
        if is_member and world.died != NO_TIME and world.behind != NO_TIME:
            # A unit until the leader looks, and one in which the time has passed.
            limit = bounds.lag + 1
            since = max(world.died, world.behind)
            if now - since > bounds.socket_timeout + limit:
                found.append("DeadFollowerLeaves")
            if world.heard != NO_TIME and now - max(world.heard, world.behind) > limit:
                found.append("HeardDeathCounts")
        if not is_member and world.counts and world.fetch is not None:
            received = world.fetch[1]
            if now - received <= bounds.socket_timeout:
                found.append("HealthyFollowerStays")
        return tuple(found)

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        match step:
            case ("write",):
                return "client -> 1: a record"
            case ("fetch", end):
                return f"2 -> 1: fetch from {end}"
            case ("read",):
                return "1: the read is done"
            case ("close",):
                return "the connection closes"
            case ("time",):
                return "time passes, and 1 examines 2"
            case ("lead on",):
                return "the controller -> 1: lead on, under another epoch"
        return f"2: {step[0]}"

    def describe(self, state: State) -> str:
        """The leader's view, and what is so."""
        world = self._worlds.values[state[0]]
        leader = world.leader
        return (
            f"time {world.now}: ISR {list(leader.isr.committed)}, log end {leader.log_end_offset},"
            f" high watermark {leader.high_watermark}; 2 ends at {world.end}, fetch {world.fetch}"
        )


def _reads(leader: LeaderReplica) -> PendingReads:
    """The reads of the follower's session, without entries where the leader has forgotten them."""
    return leader.followers[FOLLOWER].reads or PendingReads(Bounds().socket_timeout)


def _accept(leader: LeaderReplica, effects: Effects, now: int) -> None:
    """The controller accepts what the leader proposes, at once."""
    for effect in effects:
        if isinstance(effect, SendAlterPartition):
            change = effect.change
            leader.change_sent(change)
            follow_up = leader.change_accepted(
                change, change.isr, leader.leader_epoch, change.partition_epoch + 1, now
            )
            _accept(leader, follow_up, now)


def _lead_on(world: World) -> World:
    """The controller publishes another leader epoch; this leader has changed nothing itself."""
    former, now = world.leader, world.now
    leader = LeaderReplica(
        broker_id=LEADER,
        broker_epoch=1,
        leader_epoch=former.leader_epoch + 1,
        isr=IsrState(former.isr.committed, former.isr.partition_epoch + 1),
        replicas=former.replicas,
        epoch_start_offset=former.log_end_offset,
        log_end_offset=former.log_end_offset,
        high_watermark=former.high_watermark,
        min_insync_replicas=1,
        max_lag_ms=former.max_lag_ms,
        is_eligible=lambda _: True,
        now_ms=now,
        counts_pending_reads=True,
    )
    leader.continues(former, now)
    _accept(leader, leader.examine(now), now)
    behind = now if world.behind != NO_TIME else NO_TIME
    last_end = world.end if world.counts else world.last_end
    return world._replace(leader=leader, behind=behind, last_end=last_end)


def _fetch(world: World) -> World:
    """A fetch arrives on a connection of its own where the last one is closed."""
    leader, now, end = world.leader.copy(), world.now, world.leader.log_end_offset
    reads = _reads(leader)
    _accept(leader, leader.fetched(FOLLOWER, _EPOCH, world.end, 0, now, reads=reads), now)
    counts = FOLLOWER in leader.isr.committed and world.end >= min(end, world.last_end)
    world = world._replace(leader=leader, last_end=end, is_connected=True)
    if world.end >= end:
        reads.done(0, PendingRead(_EPOCH, now), now)
        return world
    number = reads.begin(PendingRead(_EPOCH, now))
    return world._replace(fetch=(number, now, end, leader.leader_epoch), counts=counts)


def _read(world: World) -> World:
    """The read is done; the follower gets it if it lives and waits, under the epoch it asked."""
    assert world.fetch is not None
    leader = world.leader.copy()
    number, received, end, epoch = world.fetch
    if world.is_connected:
        _reads(leader).done(number, PendingRead(_EPOCH, received), world.now)
    world = world._replace(leader=leader, fetch=None, counts=False)
    if world.is_connected and world.is_alive and epoch == leader.leader_epoch:
        return world._replace(end=end)
    return world


def _close(world: World) -> World:
    """The connection closes; the leader's read goes on."""
    leader = world.leader.copy()
    if world.fetch is not None:
        _reads(leader).drop(world.fetch[0])
    return world._replace(leader=leader, is_connected=False, counts=False)
