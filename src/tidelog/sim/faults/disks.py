"""Faults of brokers' disks: slow, full, failing, damaged and replaced disks, and power losses.

The disk itself counts the effects of faults (`SimDisk.effects`), because a planned error may never
have an effect.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.sim import log_dir_failure
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.faults.kinds import kind, kind_at_broker, kind_at_disk, scenario
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.node import Strike
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker

_READS: Final = ("pread", "pread_cached", "read_file")
_WRITES: Final = ("pwritev", "truncate", "rename", "unlink")
_SYNCS: Final = ("fsync", "fsync_directory", "sync_volume")
_POWER_LOSSES: Final = (Loss.PREFIX, Loss.TORN, Loss.REORDERED, Loss.ALL_UNSYNCED)


#: Positions of the base offset and (the second range) of the leader epoch in the header of a batch.
_BASE_OFFSET: Final = range(8)
_LEADER_EPOCH: Final = range(12, 16)
_LOGS: Final = (".log",)
_INDEXES: Final = (".index", ".timeindex", ".snapshot")
_TEXTS: Final = ("-checkpoint", "meta.properties", "partition.metadata", "cleanshutdown")
#: Directory into which faults move replicas' directories out of their log directory.
_AWAY: Final = "/away"


def take_away(context: FaultContext, broker: SimBroker, name: str) -> bool:
    """Take a replica's directory out of its log directory, while the broker is down.

    Return False if there is no directory of the given name.
    """
    disk = broker.logs.holder(name)
    if disk is None:
        return False
    path = f"{disk.root}/{name}"
    context.note(f"{path} of {broker.node_id} is away")
    _move(disk, path, f"{_AWAY}/{name}")
    return True


def put_back(context: FaultContext, broker: SimBroker, name: str) -> None:
    """Put back a directory that was taken away, while the broker is down.

    If the broker has created the replica again since then, the directory stays away: an operator
    would not overwrite the newer replica.
    """
    holder = broker.logs.holder(name)
    if holder is not None:
        context.note(f"{holder.root}/{name} of {broker.node_id} was created again")
        return
    away = f"{_AWAY}/{name}"
    (disk,) = [disk for disk in broker.logs.disks if disk.find(away) is not None]
    path = f"{disk.root}/{name}"
    context.note(f"{path} of {broker.node_id} is back")
    _move(disk, away, path)


def _move(disk: SimDisk, old: str, new: str) -> None:
    """Rename a directory durably, so that no power loss undoes it."""
    disk.make_directories(_AWAY)
    disk.rename(old, new)
    for directory in ("/", _AWAY, disk.root):
        disk.sync_directory(directory)


@kind_at_disk
def slow_disk(context: FaultContext, broker: SimBroker, disk: SimDisk) -> None:
    """Slow down operations on a broker's disk for a while."""
    name = context.named(broker, disk)
    disk.slow = True
    context.note(f"slow disk of {name}")

    def quick() -> None:
        if disk.slow:
            disk.slow = False
            context.note(f"disk of {name} is quick again")

    context.until(context.draw.uniform(100, 2_500), quick)


@kind
def slow_reads(context: FaultContext) -> bool:
    """Slow down a leader's disk reads for a while, as if the page cache had none of its log."""
    found = _quick_leader(context)
    if found is None:
        return False
    longest_ms = context.draw.choice((150, 500, 1_500, 1_500))
    what = f"take up to {longest_ms} ms"
    _delay_reads(context, found, (longest_ms / 3, longest_ms), what, (2_000, 8_000))
    return True


def _quick_leader(context: FaultContext) -> tuple[SimDisk, str] | None:
    """Return a disk of a random leader, and its name for the trace; None if its reads are slow
    already.
    """
    broker = context.leader()
    if broker is None:
        return None
    disk = context.any_disk(broker)
    return None if disk.read_ns is not None else (disk, context.named(broker, disk))


def _delay_reads(
    context: FaultContext,
    found: tuple[SimDisk, str],
    read_ms: tuple[float, float],
    what: str,
    while_ms: tuple[float, float],
) -> None:
    """Let each read of a disk take a random time within `read_ms`, for a time within `while_ms` or
    until the faults end.
    """
    disk, name = found
    disk.read_ns = int(read_ms[0] * NS_PER_MS), int(read_ms[1] * NS_PER_MS)
    context.note(f"reads of {name} {what}")

    def quick() -> None:
        if disk.read_ns is not None:
            disk.read_ns = None
            context.note(f"reads of {name} are quick again")

    context.until(context.draw.uniform(*while_ms), quick)


@kind
def hung_reads(context: FaultContext) -> bool:
    """Let disk reads of a leader hang for seconds."""
    found = _quick_leader(context)
    if found is None:
        return False
    _delay_reads(context, found, (3_000, 6_000), "hang", (500, 6_000))
    return True


@kind
def lose_power(context: FaultContext) -> bool:
    """Cut a broker's power; a part of its unsynced data survives, perhaps torn or out of order."""
    broker = context.any_broker()
    loss = context.draw.choice(_POWER_LOSSES)
    if broker is None or not context.cluster.budget.may_fail(broker.node_id, loses_data=True):
        return False
    return broker.crash(loss, f"power loss ({loss.value})")


@kind_at_broker
def lose_power_at_sync(context: FaultContext, broker: SimBroker) -> None:
    """Cut a broker's power right before one of its syncs; a part of its unsynced data survives."""
    # Most syncs come just after a segment has rolled, so both the new and the previous segment have
    # unsynced data.
    assert broker.life is not None
    loss = context.draw.choice(_POWER_LOSSES)
    planned = Strike(context.draw.randrange(1, 4), loss, "files.fsync")
    context.note(f"power of {broker.node_id} is lost at sync {planned.countdown} ({loss.value})")
    broker.life.plan_strike(planned)


@scenario
def power_fails_everywhere(context: FaultContext) -> Scenario:
    """Cut the power of all brokers at once; a part of their unsynced data survives (V69).

    Without `flush.before.ack`, acknowledged records are safe only if one broker loses no data.
    """
    cluster = context.cluster
    assert cluster.budget.commits_synced, "a profile for flush.before.ack"
    while True:
        yield context.draw.uniform(300, 3_000)
        died = [
            broker.crash(context.draw.choice(_POWER_LOSSES), "the power fails everywhere")
            for broker in cluster.brokers.values()
        ]
        if any(died):
            context.count("scenario")


@kind
def read_errors(context: FaultContext) -> bool:
    """Let reads of a broker's disk fail, from a random call until the disk is repaired."""
    return _fail_calls(context, _READS, errno.EIO)


@kind
def write_errors(context: FaultContext) -> bool:
    """Let writes to a broker's disk fail, or make it read-only, from a random call until repair."""
    return _fail_calls(context, _WRITES, context.draw.choice((errno.EIO, errno.EROFS)))


@kind
def sync_errors(context: FaultContext) -> bool:
    """Let one or all syncs of a broker's disk fail for a while; the unsynced data is lost."""
    number = context.draw.choice((errno.EIO, errno.EIO, errno.ENOSPC))
    return _fail_calls(context, _SYNCS, number, loses_data=True, once=context.draw.random() < 0.5)


@kind_at_disk
def full_disk(context: FaultContext, broker: SimBroker, disk: SimDisk) -> None:
    """Fill a broker's disk almost completely for a while."""
    disk.fill(context.draw.randrange(context.draw.choice((1, 300, 6_000))))
    name = context.named(broker, disk)
    context.note(f"full disk of {name}: {disk.used_bytes} of {disk.capacity_bytes} bytes")
    context.until(context.about(200, 1_500, 4_000), disk.free)


@kind_at_broker
def fill_directory(context: FaultContext, broker: SimBroker) -> bool:
    """Fill a log directory of one broker, or of each broker, and free it after seconds."""
    draw = context.draw
    brokers = [broker]
    if draw.random() < 0.25:
        brokers = [each for each in context.cluster.brokers.values() if each.life is not None]
    filled = [disk for disk in map(context.any_disk, brokers) if not disk.is_filled]
    for disk in filled:
        disk.fill(draw.randrange(draw.choice((1, 300, 2_000, 20_000))))
    names = ", ".join(map(str, (each.node_id for each in brokers)))
    context.note(f"directories of {names} are filled: {[disk.root for disk in filled]}")

    def free() -> None:
        for disk in filled:
            disk.free()
        context.note(f"directories of {names} are freed")

    context.until(context.about(500, 2_500, 6_000), free)
    return bool(filled)


@kind_at_broker
def slow_directory(context: FaultContext, broker: SimBroker) -> bool:
    """Slow down one log directory, or all directories of a broker or the cluster, for seconds."""
    draw = context.draw
    pairs = [(broker, context.any_disk(broker))]
    if draw.random() < 0.25:
        pairs = [(broker, disk) for disk in broker.logs.disks]
    elif draw.random() < 0.25:
        brokers = context.cluster.brokers.values()
        pairs = [(each, disk) for each in brokers for disk in each.logs.disks]
    slowed = [(each, disk) for each, disk in pairs if not disk.slow]
    for _, disk in slowed:
        log_dir_failure.slow(disk)
    names = ", ".join(f"{disk.root} of {each.node_id}" for each, disk in slowed)
    context.note(f"slow directories: {names}")
    log_dir_failure.restart_given_up(context.cluster)

    def quick() -> None:
        for _, disk in slowed:
            log_dir_failure.quicken(disk)
        context.note(f"quick again: {names}")

    context.until(context.about(800, 2_500, 6_000), quick)
    return bool(slowed)


@kind_at_disk
def short_writes(context: FaultContext, broker: SimBroker, disk: SimDisk) -> None:
    """Let some of the next writes of a broker write only a part of their bytes."""
    disk.short_writes = context.draw.randrange(1, 40)
    context.note(f"{disk.short_writes} short writes of {context.named(broker, disk)}")
    context.at_end(partial(setattr, disk, "short_writes", 0))


@kind_at_disk
def replaced_disk(context: FaultContext, broker: SimBroker, disk: SimDisk) -> bool:
    """Kill a broker and replace its disk by an empty disk."""
    name = f"its disk {disk.root}" if len(broker.logs.disks) > 1 else "its disk"
    if not context.cluster.budget.may_fail(broker.node_id, loses_data=True):
        return False
    if not broker.crash(Loss.ALL_UNSYNCED, f"{name} is replaced"):
        return False
    broker.empty_disk(disk)
    return True


@kind
def damaged_batches(context: FaultContext) -> bool:
    """Flip a bit of a log of a broker that is down, or truncate a log."""
    return _damage(context, _LOGS)


@kind
def damaged_indexes(context: FaultContext) -> bool:
    """Flip a bit of an index or snapshot file of a broker that is down, or truncate the file."""
    return _damage(context, _INDEXES)


@kind
def damaged_checkpoints(context: FaultContext) -> bool:
    """Truncate a checkpoint or properties file of a broker that is down, or make it unreadable."""
    return _damage(context, _TEXTS)


@kind
def damaged_leaders(context: FaultContext) -> bool:
    """Flip a bit of a log under its running leader, while other replicas are in sync."""
    published = context.cluster.published
    keys = [
        key for key in published.partitions if not published.all_topics[key.topic_id].is_internal
    ]
    return bool(keys) and damage_leader(context, context.draw.choice(keys))


def damage_leader(context: FaultContext, key: LogKey) -> bool:
    """Flip a bit of a partition's log under its running leader; return False without a target."""
    cluster = context.cluster
    if any(cluster.simulator.is_damaged(node_id) for node_id in cluster.brokers):
        return False  # another replica is damaged already
    state, topic = cluster.published.partitions[key], cluster.published.all_topics[key.topic_id]
    broker = cluster.brokers.get(state.leader)
    if broker is None or broker.life is None or len(state.isr) < 2:
        return False
    if not cluster.budget.may_fail(broker.node_id, loses_data=True):
        return False
    draw = context.draw
    name = f"{topic.name}-{key.partition}"
    disk = broker.logs.holder(name)
    if disk is None:
        return False
    paths = [
        path
        for path, file in disk.files()
        if path.startswith(f"{disk.root}/{name}/") and path.endswith(_LOGS) and file.data
    ]
    if not paths:
        return False
    path = draw.choice(paths)
    position, mask = draw.randrange(len(disk.file(path).data)), 1 << draw.randrange(8)
    _flip(context, disk, path, _behind(_LEADER_EPOCH, bytes(disk.file(path).data), position), mask)
    broker.damaged_disks[disk] = None
    _operate(context, broker)
    return True


def _damage(context: FaultContext, suffixes: tuple[str, ...]) -> bool:
    """Damage a file of a broker that may lose data; the broker is down already, or is killed."""
    cluster = context.cluster
    down = [broker for broker in cluster.brokers.values() if broker.life is None]
    broker = (
        context.draw.choice(down) if down and context.draw.random() < 0.7 else context.any_broker()
    )
    if broker is None or not cluster.budget.may_fail(broker.node_id, loses_data=True):
        return False
    if any(cluster.simulator.is_damaged(node_id) for node_id in cluster.brokers):
        return False  # another replica is damaged already
    if broker.life is not None and not broker.crash(
        context.draw.choice((Loss.UNSYNCED, Loss.ALL_UNSYNCED)), "dies, and its disk is damaged"
    ):
        return False
    disk = context.any_disk(broker)
    paths = [
        path
        for path, file in disk.files()
        if path.endswith(suffixes)
        and file.data
        and "-delete/" not in path
        and "-stray/" not in path
    ]
    if not paths:
        return False
    _damage_file(context, disk, context.draw.choice(paths), is_text=suffixes is _TEXTS)
    broker.damaged_disks[disk] = None
    cluster.replication.crashed(broker, lossy=True, struck=[disk])
    _operate(context, broker)
    return True


def _damage_file(context: FaultContext, disk: SimDisk, path: str, *, is_text: bool) -> None:
    size_bytes = len(disk.file(path).data)
    draw = context.draw
    if draw.random() < 0.3:
        cut = draw.randrange(size_bytes)
        context.note(f"{path} is truncated: {cut} of {size_bytes} bytes")
        disk.cut_short(path, cut)
        return
    position = draw.randrange(size_bytes)
    # Flip the highest bit of a character in a text file: Kafka's text files have no checksum, and a
    # flipped low bit could turn a digit into another valid digit.
    mask = 0x80 if is_text else 1 << draw.randrange(8)
    _flip(context, disk, path, position, mask)


def _flip(context: FaultContext, disk: SimDisk, path: str, position: int, mask: int) -> None:
    size_bytes = len(disk.file(path).data)
    if path.endswith(_LOGS) and _is_compacted(context, path):
        position = _behind(_BASE_OFFSET, bytes(disk.file(path).data), position)
    context.note(f"{path}: bits {mask:#x} of byte {position} of {size_bytes} flip")
    disk.flip(path, position, mask)


def _is_compacted(context: FaultContext, path: str) -> bool:
    topic = path.split("/")[-2].rpartition("-")[0]
    every = context.cluster.settings.profile.compacted
    return every or topic == CONSUMER_OFFSETS or topic in context.cluster.settings.compacted_topics


def _behind(field: range, data: bytes, position: int) -> int:
    """Return the position, or the position after `field` if it is within that field of a batch
    header.

    Faults avoid some fields that no checksum covers. Neighboring batches reveal a wrong base
    offset, except in compacted logs, which have gaps. A read does not check the leader epoch of a
    batch, so a follower could copy a wrong epoch.
    """
    start = _batch_start(data, position)
    return start + field.stop if start is not None and position - start in field else position


def _batch_start(data: bytes, position: int) -> int | None:
    """Return the start of the batch that contains a position; None without a whole batch."""
    start = 0
    while start + _LEADER_EPOCH.start <= len(data):
        end = start + _LEADER_EPOCH.start + int.from_bytes(data[start + 8 : start + 12], "big")
        if not start < end <= len(data):
            return None
        if position < end:
            return start
        start = end
    return None


def _operate(context: FaultContext, broker: SimBroker) -> None:
    """Empty the damaged disks of a broker that refuses to start, as the operators' guide says.

    The simulated operator checks the broker periodically, and first waits until the fault budget
    allows the loss of the broker's data.
    """

    def look() -> None:
        if not broker.was_damaged:
            return
        may_fail = context.cluster.budget.may_fail
        if (
            broker.was_refused
            and broker.life is None
            and all(
                may_fail(broker.node_id, loses_data=True, disk=disk)
                for disk in broker.damaged_disks
            )
        ):
            for disk in list(broker.damaged_disks):
                context.note(f"the operator empties the disk of {context.named(broker, disk)}")
                broker.empty_disk(disk)
            return
        context.later(500, look)

    context.later(500, look)


def _fail_calls(
    context: FaultContext,
    calls: tuple[str, ...],
    number: int,
    *,
    loses_data: bool = False,
    once: bool = False,
) -> bool:
    """Plan that calls of a random broker's disk fail with an errno, beginning with a random
    call.
    """
    broker = context.any_broker()
    if broker is None:
        return False
    disk = context.any_disk(broker)
    if disk.fault is not None:
        return False
    left = context.draw.randrange(1, context.draw.choice((2, 8, 60)))
    name = context.named(broker, disk)
    context.note(f"{calls[0]} of {name} fails with {errno.errorcode[number]} in {left} calls")
    may_fail = partial(context.cluster.budget.may_fail, broker.node_id, loses_data=loses_data)
    fail_calls(context, broker, disk, calls, number, left, may_fail, is_once=once)
    return True


def fail_calls(
    context: FaultContext,
    broker: SimBroker,
    disk: SimDisk,
    calls: tuple[str, ...],
    number: int,
    left: int,
    may_fail: Callable[[], bool],
    *,
    is_once: bool,
    note: str = "",
) -> None:
    """Let the `left`-th call in `calls` fail with an errno, and all later ones unless `is_once`.

    A call fails only if `may_fail` returns true at that time. After a random time the calls of the
    disk succeed again. `note` ends the trace line of a failed call.
    """

    def fault(call: str, _: str) -> int:
        nonlocal left
        if call not in calls:
            return 0
        left -= 1
        if left > 0 or not may_fail():
            return 0
        if is_once:
            disk.fault = None
        text = f"{call} fails with {errno.errorcode[number]}{note}"
        context.cluster.simulator.note(broker.node_id, "disk", text)
        return number

    disk.fault = fault

    def repair() -> None:
        if disk.fault is fault:
            disk.fault = None

    context.until(context.draw.uniform(300, 4_000), repair)
