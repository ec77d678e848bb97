"""Steps of group members in the small world of a coordinator; clients also make mistakes.

A client does what Kafka's clients do (choice 0 of a step), or it repeats itself, or uses member ids
and generations of earlier times. It also leaves while it joins, or asks a former coordinator.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.sim.small.coordinator_world import READ_TOPICS, Arguments, coordinator_step
from tidelog.sim.small.group_asks import GROUP, SIMPLE_GROUP, ScriptedMember
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.registry import (
    DELETE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)

#: The retention in ms that a client requests, if it chooses the retention of its offsets itself.
CHOSEN_RETENTION_MS: Final = 100_000
#: Clients that join with this version or a later one name the protocol in SyncGroup.
_NAMES_PROTOCOL_FROM: Final = 9
_GROUPS: Final = (GROUP, SIMPLE_GROUP)
_PARTITIONS: Final = (("t", 0), ("t", 1), ("u", 0))


def _brokers(world: Any) -> list[int]:
    """Return the brokers that clients ask: those that lead or believe so, and one that does not."""
    up = [broker.broker_id for broker in world.up()]
    leading = [broker_id for broker_id in up if world.brokers[broker_id].coordinates]
    return leading + [broker_id for broker_id in up if broker_id not in leading][:1]


def _of_clients(count: int) -> Any:
    """Return the options of a step with three arguments: client, broker, number below `count`."""

    def options(world: Any) -> list[Arguments]:
        found: list[Arguments] = []
        for broker_id in _brokers(world):
            # Most requests go to the coordinator, and most are what a good client sends.
            weight = 3 if world.brokers[broker_id].coordinates else 1
            for client in range(len(world.tenant.clients)):
                found += [(client, broker_id, 0)] * (count * weight)
                found += [(client, broker_id, choice) for choice in range(1, count)]
        return found

    return options


def _client(world: Any, number: int) -> ScriptedMember:
    client: ScriptedMember = world.tenant.clients[number]
    return client


def _oldest(client: ScriptedMember) -> str:
    return client.member_ids[0] if client.member_ids else "nobody"


def _idle(world: Any) -> list[Arguments]:
    """Return the clients that wait for no answer, each with the brokers that coordinate."""
    return [
        (number, broker.broker_id)
        for broker in world.up()
        if broker.coordinates
        for number, client in enumerate(world.tenant.clients)
        if not client.is_waiting
    ]


@coordinator_step("act", 70, _idle, "client {0} sends its next request to broker {1}")
def _act(world: Any, number: int, broker_id: int) -> None:
    client = _client(world, number)
    if not client.has_joined:
        _join(world, number, broker_id, 0)
    elif not client.is_stable:
        _sync(world, number, broker_id, 0)
    elif world.clock.now_ms // 100 % 2:
        _commit(world, number, broker_id, 0)
    else:
        _heartbeat(world, number, broker_id, 0)


@coordinator_step("join", 12, _of_clients(3), "client {0} joins at broker {1} (choice {2})")
def _join(world: Any, number: int, broker_id: int, choice: int) -> None:
    client = _client(world, number)
    member_id = (client.member_id, "", _oldest(client))[choice]
    world.tenant.ask(client, broker_id, JOIN_GROUP, client.version, client.joining(member_id))


@coordinator_step(
    "change",
    3,
    lambda world: [
        (number, topics) for number in range(len(world.tenant.clients)) for topics in range(3)
    ],
    "client {0} changes its subscription to choice {1}",
)
def _change(world: Any, number: int, topics: int) -> None:
    _client(world, number).topics = topics


@coordinator_step(
    "restart",
    3,
    lambda world: [(number,) for number in range(len(world.tenant.clients))],
    "client {0} is a new process without a member id",
)
def _restart(world: Any, number: int) -> None:
    client = _client(world, number)
    client.has_joined = client.is_stable = False
    if client.member_id:
        client.member_ids.append("")


@coordinator_step("sync", 12, _of_clients(4), "client {0} syncs at broker {1} (choice {2})")
def _sync(world: Any, number: int, broker_id: int, choice: int) -> None:
    client = _client(world, number)
    joined = client.joined
    generation = client.generation - (choice == 2)
    members: list[str] = []
    if joined is not None:
        members = [each.member_id for each in joined.members]
    if choice == 1:
        members = [client.member_id or "nobody", "nobody"]
    given = [
        SyncGroupRequestAssignment(each, f"{generation} {each} by {number}".encode())
        for each in members
    ]
    name = None if joined is None else joined.protocol_name
    if choice == 3:
        name = "other"
    message = SyncGroupRequest(
        GROUP, generation, client.member_id, client.instance_id, assignments=given
    )
    version = 3
    if client.version >= _NAMES_PROTOCOL_FROM:
        version, message.protocol_type, message.protocol_name = 5, "consumer", name or "range"
    world.tenant.ask(client, broker_id, SYNC_GROUP, version, message)


@coordinator_step(
    "heartbeat", 10, _of_clients(5), "client {0} sends a heartbeat to broker {1} (choice {2})"
)
def _heartbeat(world: Any, number: int, broker_id: int, choice: int) -> None:
    client = _client(world, number)
    generation = client.generation + (0, -1, 1, 0, 0)[choice]
    member_id = _oldest(client) if choice == 3 else client.member_id
    instance_id = None if choice == 4 else client.instance_id
    message = HeartbeatRequest(GROUP, generation, member_id, instance_id)
    world.tenant.ask(client, broker_id, HEARTBEAT, 4, message)


def _committing(
    group: str, generation: int, member_id: str, instance_id: str | None, *offsets: int
) -> OffsetCommitRequest:
    """Return an OffsetCommit of `offsets`, one for each partition in the order of _PARTITIONS.

    A partition whose offset is below 0 is left out.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in zip(_PARTITIONS, offsets, strict=False):
        if offset >= 0:
            each = OffsetCommitRequestPartition(partition, offset, -1, f"at {offset}")
            topics.setdefault(topic, []).append(each)
    return OffsetCommitRequest(
        group,
        generation,
        member_id,
        instance_id,
        topics=[OffsetCommitRequestTopic(name, parts) for name, parts in topics.items()],
    )


@coordinator_step("commit", 14, _of_clients(7), "client {0} commits at broker {1} (choice {2})")
def _commit(world: Any, number: int, broker_id: int, choice: int) -> None:
    client = _client(world, number)
    world.tenant.values += 1
    value = world.tenant.values
    generation, member_id, instance_id = client.generation, client.member_id, client.instance_id
    if choice == 1:
        generation -= 1
    elif choice == 2:
        generation, member_id, instance_id = -1, "", None
    elif choice == 3:
        member_id = _oldest(client)
    elif choice == 4:
        generation = -1
    offsets = (value, value, value) if choice == 5 else (value,) if value % 2 else (-1, value)
    message = _committing(GROUP, generation, member_id, instance_id, *offsets)
    version = 9
    if choice == 6:
        # Before version 5, the client chooses the retention; static members need version 7.
        message.retention_time_ms, message.group_instance_id, version = CHOSEN_RETENTION_MS, None, 4
    world.tenant.ask(client, broker_id, OFFSET_COMMIT, version, message)


def _at_brokers(count: int) -> Any:
    """Return the options of a step with two arguments: broker, number below `count`."""
    return lambda world: [
        (broker_id, choice) for broker_id in _brokers(world) for choice in range(count)
    ]


@coordinator_step(
    "store", 8, _at_brokers(2), "an administrator commits an offset at broker {0} (choice {1})"
)
def _store(world: Any, broker_id: int, choice: int) -> None:
    world.tenant.values += 1
    message = _committing(SIMPLE_GROUP, -1, "", None, world.tenant.values)
    version = 9
    if choice:
        message.retention_time_ms, version = CHOSEN_RETENTION_MS, 4
    world.tenant.ask(None, broker_id, OFFSET_COMMIT, version, message)


@coordinator_step("leave", 8, _of_clients(4), "client {0} leaves at broker {1} (choice {2})")
def _leave(world: Any, number: int, broker_id: int, choice: int) -> None:
    client = _client(world, number)
    gone = MemberIdentity(client.member_id, client.instance_id)
    if choice == 1:
        gone = MemberIdentity("", client.instance_id)
    elif choice == 2:
        gone = MemberIdentity(_oldest(client), client.instance_id)
    members = [gone]
    if choice == 3:
        members = [
            MemberIdentity(each.member_id, each.instance_id) for each in world.tenant.clients
        ]
    world.tenant.ask(client, broker_id, LEAVE_GROUP, 5, LeaveGroupRequest(GROUP, "", members))


@coordinator_step(
    "abandon",
    3,
    lambda world: [
        (number,)
        for number, client in enumerate(world.tenant.clients)
        if any(ask.is_open for ask in client.asks)
    ],
    "client {0} closes its connection",
    "lost_connections",
)
def _abandon(world: Any, number: int) -> None:
    world.tenant.abandon(_client(world, number))


@coordinator_step(
    "fetch_offsets",
    8,
    _at_brokers(4),
    "the offsets of a group are fetched from broker {0} (choice {1})",
)
def _fetch_offsets(world: Any, broker_id: int, choice: int) -> None:
    topics = None
    if choice > 1:
        topics = [
            OffsetFetchRequestTopic(name, list(range(count))) for name, count in READ_TOPICS.items()
        ]
    group = _GROUPS[choice % 2]
    world.tenant.ask(None, broker_id, OFFSET_FETCH, 7, OffsetFetchRequest(group, topics))


@coordinator_step(
    "delete_offsets",
    5,
    _at_brokers(6),
    "an offset of a group is deleted at broker {0} (choice {1})",
)
def _delete_offsets(world: Any, broker_id: int, choice: int) -> None:
    topic, partition = _PARTITIONS[choice // 2]
    deleted = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])
    message = OffsetDeleteRequest(_GROUPS[choice % 2], [deleted])
    world.tenant.ask(None, broker_id, OFFSET_DELETE, 0, message)


@coordinator_step("delete_group", 5, _at_brokers(2), "a group is deleted at broker {0} ({1})")
def _delete_group(world: Any, broker_id: int, choice: int) -> None:
    message = DeleteGroupsRequest([_GROUPS[choice]])
    world.tenant.ask(None, broker_id, DELETE_GROUPS, 2, message)
