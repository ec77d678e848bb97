"""Steps of brokers in the small world of replicas: crashes, starts, checkpoints, and time.

Without `flush.before.ack`, a committed record survives crashes only if one of the members on which
the controller relies loses nothing. So a broker may lose unsynced records only while another such
member has lost none.
"""

from __future__ import annotations

from typing import Final

from tidelog.replication.leader import REFUSED_JOIN_BACKOFF_MS
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_values import MAX_LAG_MS
from tidelog.sim.small.replica_set_world import (
    Arguments,
    ReplicaSetWorld,
    broker_ids,
    step_kind,
)

#: The times in ms by which a step moves the clock: a little, half of `replica.lag.time.max.ms`,
#: more than all of it.
_PASSES_MS: Final = (1, MAX_LAG_MS // 2, MAX_LAG_MS + 1)
#: The ways in which a broker of the small world goes down.
CLEANLY, KILLED, POWER_LOST, POWER_LOST_HALFWAY = range(4)


def _may_lose_records(world: ReplicaSetWorld, broker_id: int) -> bool:
    """Return whether a broker may lose its unsynced records without the loss of a committed record.

    Either all committed records are on the disks of all members (V69), or another member of the ISR
    or eligible replica has all its records.
    """
    reference = world.reference
    if reference.promised == len(reference.committed) and reference.promised:
        return True
    return _has_other_intact(world, broker_id)


def _has_other_intact(world: ReplicaSetWorld, broker_id: int) -> bool:
    """Return whether another member, or eligible replica, has all its records undamaged."""
    reference = world.reference
    return any(
        reference.is_intact(member, recorded) and world.brokers[member].damaged_from is None
        for member, recorded in world.register.state.recorded().items()
        if member != broker_id
    )


def _crashes(world: ReplicaSetWorld) -> list[Arguments]:
    found: list[Arguments] = []
    for broker in world.up():
        ways = [CLEANLY, KILLED]
        if broker.durable < len(broker.log) and _may_lose_records(world, broker.broker_id):
            ways += [POWER_LOST, POWER_LOST_HALFWAY]
        found += [(broker.broker_id, way) for way in ways]
    return found


@step_kind(
    "crash",
    8,
    _crashes,
    "broker {0} goes down (0 cleanly, 1 killed, 2 without power, 3 the same, half synced: {1})",
    "crashes",
)
def _crash(world: ReplicaSetWorld, broker_id: int, way: int) -> None:
    broker, reference = world.brokers[broker_id], world.reference
    end = len(broker.log)
    if way == CLEANLY:
        broker.checkpoint, broker.durable = broker.high_watermark, end
    kept = max(broker.durable, broker.log_start)
    if way == POWER_LOST_HALFWAY:
        kept = max(kept, (kept + end) // 2)
    elif way != POWER_LOST:
        kept = end
    broker.is_clean = way == CLEANLY
    broker.crash(kept)
    if kept < end:
        reference.lost |= {broker_id}
    reference.leadership_ends(broker_id)
    for connection in list(world.connections.values()):
        if connection.name[0] == broker_id and connection.is_open:
            world.close(connection)
        elif connection.leader == broker_id:
            world.close(connection)
            connection.is_noticed, connection.reading = True, None
            connection.requests.clear()


@step_kind(
    "expire",
    4,
    lambda world: broker_ids(
        each
        for each in world.brokers.values()
        if not each.is_up and each.broker_id in world.register.live
    ),
    "the session of broker {0} expires",
)
def _expire(world: ReplicaSetWorld, broker_id: int) -> None:
    del world.register.live[broker_id]


@step_kind(
    "start",
    8,
    lambda world: broker_ids(each for each in world.brokers.values() if not each.is_up),
    "broker {0} starts again",
)
def _start(world: ReplicaSetWorld, broker_id: int) -> None:
    broker, reference = world.brokers[broker_id], world.reference
    broker.is_up = True
    epoch = world.register.register(broker_id, broker.broker_epoch, broker.is_clean)
    broker.broker_epoch, broker.view = epoch, frozenset(world.register.live)
    if broker_id in reference.lost:
        reference.lost -= {broker_id}
        reference.intact_from[broker_id] = epoch


@step_kind(
    "view",
    8,
    lambda world: broker_ids(
        each for each in world.up() if each.view != frozenset(world.register.live)
    ),
    "broker {0} learns which brokers are alive",
)
def _view(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    broker.view = frozenset(world.register.live)
    if broker.leading is not None:
        wanted = world.wanted(broker)
        broker.run_leader(broker.leading.eligibility_changed(broker.is_eligible, world.now_ms))
        world.settle(broker, wanted)


def _damageable(world: ReplicaSetWorld) -> list[Arguments]:
    """Return the damages that may happen, as (broker id, offset of the damaged record).

    With `min.insync.replicas` above 1 no log may be damaged, because a damaged replica could become
    an eligible leader replica and stay damaged (V68).
    """
    if world.settings.minimum > 1:
        return []
    leader = world.register.state.leader
    return [
        (broker.broker_id, offset)
        for broker in world.brokers.values()
        if broker.broker_id != leader
        and broker.leading is None
        and broker.damaged_from is None
        and not broker.inbox
        and broker.operation is None
        and len(broker.log) > broker.log_start
        and _has_other_intact(world, broker.broker_id)
        for offset in ((broker.log_start + len(broker.log)) // 2,)
    ]


@step_kind(
    "damage",
    3,
    _damageable,
    "the log of broker {0} is damaged from offset {1} on",
    "damage",
)
def _damage(world: ReplicaSetWorld, broker_id: int, offset: int) -> None:
    world.brokers[broker_id].damaged_from = offset


@step_kind(
    "policy",
    2,
    lambda world: broker_ids(world.up()),
    "broker {0} learns the other value of flush.before.ack",
    "policy_changes",
)
def _policy(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    wanted = world.wanted(broker)
    world.reference.policy_changed(broker, world.now_ms)
    broker.policy_changed(world.now_ms)
    world.settle(broker, wanted)


@step_kind(
    "checkpoint",
    2,
    lambda world: broker_ids(each for each in world.up() if each.checkpoint != each.high_watermark),
    "broker {0} writes the checkpoint of its high watermark",
)
def _checkpoint(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    broker.checkpoint = broker.high_watermark


def examine(world: ReplicaSetWorld, broker: SmallBroker) -> None:
    """Let a leader look for ISR changes, and check the change that it then proposes."""
    wanted = world.wanted(broker)
    broker.examine(world.now_ms)
    world.settle(broker, wanted)
    world.reference.examined(broker, world.now_ms)


@step_kind("time", 8, lambda world: [(each,) for each in _PASSES_MS], "{0} ms pass")
def _time(world: ReplicaSetWorld, passed_ms: int) -> None:
    world.now_ms += passed_ms
    if world.now_ms - world.examined_ms >= MAX_LAG_MS // 2:
        world.examined_ms = world.now_ms
        for broker in world.leaders():
            examine(world, broker)


@step_kind(
    "wait",
    1,
    lambda _: [()],
    "so much time passes that a refused follower may be proposed again",
)
def _wait(world: ReplicaSetWorld) -> None:
    _time(world, REFUSED_JOIN_BACKOFF_MS)


@step_kind(
    "examine", 3, lambda world: broker_ids(world.leaders()), "leader {0} examines its followers"
)
def _examine(world: ReplicaSetWorld, broker_id: int) -> None:
    examine(world, world.brokers[broker_id])
