"""Steps in the small world of a coordinator: brokers act, leaders change, and time passes.

A kind of steps without a `fault` is part of every history. The others are faults: each history
draws which of them exist. The steps of clients are in another module (`group_steps`).
"""

from __future__ import annotations

from typing import Final

from tidelog.core.errors import ErrorCode
from tidelog.sim.small.coordinator_world import (
    Arguments,
    CoordinatorBroker,
    CoordinatorWorld,
    coordinator_step,
    ids,
    refusing,
)

#: Delays of the step `time` in ms, from less than every timeout to more than every timeout.
_DELAYS_MS: Final = (10, 400, 3_000, 6_100, 20_100, 301_000)
_RETENTION_DELAY_MS: Final = 11 * 60_000
_JUMPS_MS: Final = (-3_600_000, 3_600_000)


def _follower(world: CoordinatorWorld) -> list[CoordinatorBroker]:
    """Return the broker that fetches from the registered leader, if both know of it."""
    leader = world.brokers[world.register.leader]
    follower = world.brokers[3 - leader.broker_id]
    is_following = follower.is_up and follower.known_epoch == world.register.leader_epoch
    return [follower] if is_following and world.is_registered_leader(leader) else []


@coordinator_step("fetch", 40, lambda world: ids(_follower(world)), "follower {0} fetches once")
def _fetch(world: CoordinatorWorld, broker_id: int) -> None:
    leader = world.brokers[world.register.leader]
    world.brokers[broker_id].replica.copy_from(leader.replica)


@coordinator_step(
    "turn", 8, lambda world: [()] if world.is_busy else [], "the loop has a turn", "busy"
)
def _turn(world: CoordinatorWorld) -> None:
    world.is_busy = False


@coordinator_step(
    "busy", 6, lambda world: [] if world.is_busy else [()], "the loop is busy", "busy"
)
def _busy(world: CoordinatorWorld) -> None:
    world.is_busy = True


def _delays(world: CoordinatorWorld) -> list[Arguments]:
    # While the loop is busy, time stands still until the next turn.
    return [] if world.is_busy else [(delay_ms,) for delay_ms in _DELAYS_MS]


@coordinator_step("time", 18, _delays, "{0} ms pass")
def _time(world: CoordinatorWorld, delay_ms: int) -> None:
    world.wait(delay_ms)


@coordinator_step(
    "retention",
    2,
    lambda world: [] if world.is_busy else [()],
    "the retention of offsets passes",
)
def _retention(world: CoordinatorWorld) -> None:
    world.wait(_RETENTION_DELAY_MS)


@coordinator_step(
    "jump",
    2,
    lambda _: [(jump_ms,) for jump_ms in _JUMPS_MS],
    "the wall clock jumps by {0} ms",
    "clock_jumps",
)
def _jump(world: CoordinatorWorld, jump_ms: int) -> None:
    world.clock.jump(jump_ms)


@coordinator_step(
    "elect",
    14,
    lambda world: [(member,) for member in world.register.isr if world.brokers[member].is_up],
    "the controller elects broker {0}",
    "elections",
)
def _elect(world: CoordinatorWorld, leader: int) -> None:
    world.elect(leader)


@coordinator_step(
    "obey",
    24,
    lambda world: [
        (broker.broker_id, number)
        for broker in world.up()
        for number in range(min(2, len(broker.inbox)))
    ],
    "broker {0} obeys command {1}",
)
def _obey(world: CoordinatorWorld, broker_id: int, number: int) -> None:
    world.obey(world.brokers[broker_id], number)


@coordinator_step(
    "resign",
    2,
    lambda world: ids(broker for broker in world.up() if broker.coordinates),
    "broker {0} ends its leadership by itself, and gets the command to lead once more",
    "elections",
)
def _resign(world: CoordinatorWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    world.end_role(broker)
    broker.known_epoch = broker.replica.leader_epoch - 1
    broker.inbox.append((world.register.leader, world.register.leader_epoch))


@coordinator_step(
    "shrink",
    4,
    lambda world: [()] if _follower(world) and len(world.register.isr) > 1 else [],
    "the follower leaves the ISR",
    "isr_changes",
)
def _shrink(world: CoordinatorWorld) -> None:
    world.set_isr((world.register.leader,))


def _may_expand(world: CoordinatorWorld) -> list[Arguments]:
    leader = world.brokers[world.register.leader].replica
    is_caught_up = leader.fetched_end >= leader.high_watermark
    return [()] if _follower(world) and len(world.register.isr) == 1 and is_caught_up else []


@coordinator_step("expand", 8, _may_expand, "the follower joins the ISR", "isr_changes")
def _expand(world: CoordinatorWorld) -> None:
    world.set_isr((1, 2))


@coordinator_step("crash", 2, lambda world: ids(world.up()), "broker {0} crashes", "crashes")
def _crash(world: CoordinatorWorld, broker_id: int) -> None:
    world.crash(world.brokers[broker_id])


@coordinator_step(
    "start",
    12,
    lambda world: ids(broker for broker in world.brokers.values() if not broker.is_up),
    "broker {0} starts",
    "crashes",
)
def _start(world: CoordinatorWorld, broker_id: int) -> None:
    world.start(world.brokers[broker_id])


_REFUSALS: Final = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)


@coordinator_step(
    "refuse",
    4,
    lambda world: [
        (broker.broker_id, int(code))
        for broker in world.up()
        if broker.coordinates
        for code in _REFUSALS
    ],
    "the log of broker {0} will refuse the next append with error {1}",
    "refused_appends",
)
def _refuse(world: CoordinatorWorld, broker_id: int, code: int) -> None:
    replica = world.brokers[broker_id].replica
    is_storage = code == ErrorCode.KAFKA_STORAGE_ERROR
    replica.append_error = (
        replica.storage_error("pwrite") if is_storage else refusing(ErrorCode(code))
    )


@coordinator_step(
    "slow",
    8,
    lambda world: ids(broker for broker in world.up() if not broker.replica.is_slow),
    "the disk of broker {0} becomes slow",
    "slow_disks",
)
def _slow(world: CoordinatorWorld, broker_id: int) -> None:
    world.brokers[broker_id].replica.is_slow = True


@coordinator_step(
    "fast",
    6,
    lambda world: ids(broker for broker in world.up() if broker.replica.is_slow),
    "the disk of broker {0} becomes fast",
    "slow_disks",
)
def _fast(world: CoordinatorWorld, broker_id: int) -> None:
    world.brokers[broker_id].replica.hurry()


@coordinator_step(
    "write",
    14,
    lambda world: ids(broker for broker in world.up() if broker.replica.unwritten),
    "the disk of broker {0} writes a batch",
    "slow_disks",
)
def _write(world: CoordinatorWorld, broker_id: int) -> None:
    world.brokers[broker_id].replica.write()


@coordinator_step(
    "fail_writes",
    4,
    lambda world: ids(broker for broker in world.up() if broker.replica.unwritten),
    "the writes of broker {0} fail",
    "slow_disks",
)
def _fail_writes(world: CoordinatorWorld, broker_id: int) -> None:
    world.brokers[broker_id].replica.fail_writes()


@coordinator_step(
    "read",
    14,
    lambda world: ids(broker for broker in world.up() if broker.replica.slow_reads),
    "the disk of broker {0} reads a part of the log",
    "slow_disks",
)
def _read(world: CoordinatorWorld, broker_id: int) -> None:
    world.brokers[broker_id].replica.end_read()


@coordinator_step(
    "fail_read",
    2,
    lambda world: ids(world.up()),
    "the next read of broker {0} fails",
    "slow_disks",
)
def _fail_read(world: CoordinatorWorld, broker_id: int) -> None:
    world.brokers[broker_id].replica.fails_reads = True


@coordinator_step(
    "compact",
    5,
    lambda world: [(broker.broker_id, drops) for broker in world.up() for drops in (0, 1)],
    "broker {0} compacts its log (and removes tombstones: {1})",
    "compaction",
)
def _compact(world: CoordinatorWorld, broker_id: int, drops: int) -> None:
    replica = world.brokers[broker_id].replica
    # A tombstone stays until the follower has copied it, as if `delete.retention.ms` were long.
    end = min(each.replica.log_end_offset for each in world.brokers.values())
    replica.compact(min(end, replica.high_watermark, world.register.committed_end), bool(drops))
