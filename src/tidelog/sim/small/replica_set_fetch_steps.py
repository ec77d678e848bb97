"""Steps of clients and fetches in the small world of replicas, and of operations on logs.

A kind of steps without a `fault` is part of every history. The others are faults: each history
draws which of them exist.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.errors import ErrorCode
from tidelog.replication.pending_reads import NO_READ, PendingRead
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_world import (
    Arguments,
    ReplicaSetWorld,
    SmallConnection,
    UnderwayRead,
    broker_ids,
    step_kind,
)

#: Maximum number of records in a log; at this length leaders append no more.
_MAX_RECORDS: Final = 12


@step_kind(
    "write",
    10,
    lambda world: broker_ids(each for each in world.leaders() if len(each.log) < _MAX_RECORDS),
    "a client writes a record to broker {0}",
)
def _write(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    world.values += 1
    former_end = len(broker.log)
    world.reference.appended(broker_id, former_end, world.now_ms)
    broker.write(world.values, world.now_ms)


def _may_fetch(world: ReplicaSetWorld) -> list[Arguments]:
    ready: list[Arguments] = []
    for broker in world.up():
        connection = world.connection_of(broker.broker_id)
        if (connection is None or not connection.is_waiting) and broker.fetch() is not None:
            ready.append((broker.broker_id,))
    return ready


@step_kind("fetch", 20, _may_fetch, "broker {0} sends a fetch")
def _fetch(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    fetch, role = broker.fetch(), broker.following
    assert fetch is not None and role is not None, "a follower fetches"
    connection = world.connection_of(broker_id)
    if connection is None:
        world.dialled[broker_id] += 1
        name = (broker_id, world.dialled[broker_id])
        connection = world.connections[name] = SmallConnection(name, role.leader)
    connection.requests.append(fetch)
    connection.is_waiting = True


def _arrivals(world: ReplicaSetWorld) -> list[Arguments]:
    return [
        (*each.name, is_slow)
        for each in world.connections.values()
        if each.requests and each.reading is None and world.brokers[each.leader].is_up
        for is_slow in (0, 1)
    ]


@step_kind(
    "arrive",
    22,
    _arrivals,
    "the fetch of broker {0} arrives on its connection {1} (slow disk: {2})",
)
def _arrive(world: ReplicaSetWorld, follower: int, number: int, is_slow: int) -> None:
    connection = world.connections[follower, number]
    fetch = connection.requests.pop(0)
    broker, reference = world.brokers[connection.leader], world.reference
    wanted = world.wanted(broker)
    if broker.leading is not None and len(broker.log) != broker.leading.log_end_offset:
        raise AssertionError("a leader knows its log end")
    needed = 0
    if broker.leading is not None:
        needed = max(broker.high_watermark, broker.leading.epoch_start_offset)
    world.fetching = follower
    response, counts = broker.serve(fetch, connection.reads, world.now_ms)
    reference.fetched(broker, fetch, response, counts)
    read = PendingRead(fetch.broker_epoch, world.now_ms)
    if counts:
        facts = reference.leaderships[broker.broker_id].followers[follower]
        facts.fetched(fetch, broker, connection.name, world.now_ms)
        if facts.end >= needed:
            facts.counted_epoch = fetch.broker_epoch
    world.settle(broker, wanted)
    world.fetching = 0
    if response.records and is_slow:
        number = connection.reads.begin(read)
        role = broker.leading
        assert role is not None, "only a leader reads for followers"
        connection.reading = UnderwayRead(number, read, role, response)
        if counts:
            facts.read_since_ms = world.now_ms
        return
    if connection.reads.is_watched:
        # A refused fetch also ends the pending reads of its session.
        connection.reads.done(NO_READ, read, world.now_ms)
        reference.read_done(broker.broker_id, connection.name, read.received_ms, world.now_ms)
    if connection.is_open:
        connection.responses.append(response)


@step_kind(
    "read",
    14,
    lambda world: [each.name for each in world.connections.values() if each.reading is not None],
    "the leader's disk has read for connection {1} of broker {0}",
)
def _read(world: ReplicaSetWorld, follower: int, number: int) -> None:
    connection = world.connections[follower, number]
    reading = connection.reading
    assert reading is not None, "a read is under way"
    connection.reading = None
    if not reading.is_awaited:
        connection.reads.ended(reading.number)
        return
    response = reading.response
    broker = world.brokers[connection.leader]
    if broker.role is not reading.role:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = response._replace(error=error, records=())
    connection.reads.done(reading.number, reading.read, world.now_ms)
    received_ms = reading.read.received_ms
    world.reference.read_done(broker.broker_id, connection.name, received_ms, world.now_ms)
    if connection.is_open:
        connection.responses.append(response)


@step_kind(
    "deliver",
    22,
    lambda world: [each.name for each in world.connections.values() if each.responses],
    "the response on connection {1} reaches broker {0}",
)
def _deliver(world: ReplicaSetWorld, follower: int, number: int) -> None:
    connection = world.connections[follower, number]
    response = connection.responses.pop(0)
    connection.is_waiting = False
    broker = world.brokers[follower]
    role, operation = broker.following, broker.operation
    is_stale = role is None or response.position != role.position
    broker.answered(response)
    if is_stale and broker.operation is not operation:
        world.reference.violate(f"V33: broker {follower} applies the response to an earlier fetch")


def _operations(world: ReplicaSetWorld) -> list[SmallBroker]:
    return [broker for broker in world.up() if broker.operation is not None]


@step_kind(
    "complete",
    24,
    lambda world: broker_ids(_operations(world)),
    "broker {0} completes its operation",
)
def _complete(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    role = broker.following
    assert role is not None, "only a follower has operations under way"
    leader = world.brokers.get(role.leader)
    start = None
    leading = None if leader is None else leader.leading
    if leader is not None and leading is not None and leading.leader_epoch == role.leader_epoch:
        start = leader.log_start
    broker.end_operation(start)


@step_kind(
    "fail",
    8,
    lambda world: [(each.broker_id, part) for each in _operations(world) for part in (0, 1)],
    "the operation of broker {0} fails (a part of it is done: {1})",
    "failing_operations",
)
def _fail(world: ReplicaSetWorld, broker_id: int, part: int) -> None:
    world.brokers[broker_id].fail_operation(bool(part))


@step_kind(
    "resume",
    12,
    lambda world: broker_ids(each for each in world.up() if each.is_backing_off),
    "broker {0} fetches again after a pause",
)
def _resume(world: ReplicaSetWorld, broker_id: int) -> None:
    world.brokers[broker_id].resume()


@step_kind(
    "close",
    5,
    lambda world: [
        (each.broker_id,) for each in world.up() if world.connection_of(each.broker_id) is not None
    ],
    "broker {0} gives up its connection to the leader",
    "lost_connections",
)
def _close(world: ReplicaSetWorld, broker_id: int) -> None:
    connection = world.connection_of(broker_id)
    assert connection is not None, "the connection is open"
    world.close(connection)


@step_kind(
    "notice",
    4,
    lambda world: [
        each.name for each in world.connections.values() if not each.is_open and not each.is_noticed
    ],
    "the leader learns that connection {1} of broker {0} is closed",
)
def _notice(world: ReplicaSetWorld, follower: int, number: int) -> None:
    connection = world.connections[follower, number]
    connection.is_noticed = True
    connection.requests.clear()
    reading = connection.reading
    if reading is not None:
        connection.reads.drop(reading.number)
        connection.reading = reading._replace(is_awaited=False)
        world.reference.read_dropped(connection.leader, connection.name)


@step_kind(
    "sync",
    12,
    lambda world: broker_ids(each for each in world.up() if each.durable < len(each.log)),
    "broker {0} syncs its log",
)
def _sync(world: ReplicaSetWorld, broker_id: int) -> None:
    world.brokers[broker_id].synced(world.now_ms)


@step_kind(
    "delete",
    3,
    lambda world: broker_ids(
        each for each in world.leaders() if each.log_start < each.high_watermark
    ),
    "leader {0} deletes its records below the high watermark",
    "deleted_records",
)
def _delete(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    broker.advance_log_start(broker.high_watermark)
