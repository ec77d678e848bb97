"""Steps of administrators in the small world of controllers.

Administrators create, grow, move and delete topics, cancel moves, elect leaders, and change
configurations. A request goes to a broker that believes to be the controller.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, Op, SetData
from tidelog.sim.small.controller_host import ControllerHost
from tidelog.sim.small.controller_world import Arguments, ControllerWorld, controller_step
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

#: Topics that administrators create and delete.
NAMES = ("t0", "t1")
#: The most partitions of a topic.
_MOST_PARTITIONS = 3


def _controllers(world: ControllerWorld) -> list[ControllerHost]:
    return [host for host in world.live_hosts() if host.controller.is_active]


def _lists(world: ControllerWorld) -> list[str]:
    return _lists_of(world.settings.brokers)


@cache
def _lists_of(brokers: tuple[int, ...]) -> list[str]:
    """Return lists of replicas, each as text: `1.2`."""
    return [
        ".".join(map(str, replicas))
        for count in (1, 2, 3)
        for replicas in itertools.permutations(brokers, count)
    ] + ["1.1"]


def _targets(world: ControllerWorld, name: str) -> list[str]:
    """Return the targets of a move, each as text.

    A member that has lost records must not become the only replica before the controller notices
    the loss, because the guarantee of E6 would not hold then.
    """
    found = _lists(world)
    return found if world.reference.is_whole(name) else [each for each in found if "." in each]


def _replicas(text: str | int) -> tuple[int, ...]:
    return tuple(int(each) for each in str(text).split("."))


def _with_names(world: ControllerWorld, exists: bool) -> list[Arguments]:
    return [
        (host.broker_id, name)
        for host in _controllers(world)
        for name in NAMES
        if (name in world.reference.topics) is exists
    ]


@controller_step(
    "create",
    3,
    lambda world: [
        (*choice, replicas) for choice in _with_names(world, False) for replicas in _lists(world)
    ],
    "an administrator asks controller {0} for topic {1} with replicas {2}",
    "topics",
)
def _create(world: ControllerWorld, host_id: int, name: str, replicas: str) -> None:
    world.topic_made(name)
    wanted = CreatableTopic(name, -1, -1, [CreatableReplicaAssignment(0, _replicas(replicas))])
    request = CreateTopicsRequest(topics=[wanted])
    host = world.hosts[host_id]
    world.ask_admin(
        host, f"create {name}", lambda refusal: host.controller.create_topics(request, refusal)
    )


@controller_step(
    "delete",
    2,
    lambda world: [(*choice, by_id) for choice in _with_names(world, True) for by_id in (0, 1)],
    "an administrator asks controller {0} to delete topic {1} (by id: {2})",
    "topics",
)
def _delete(world: ControllerWorld, host_id: int, name: str, by_id: int) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    if by_id:
        topic_id = world.reference.topics[name].topic_id
        world.reference.deleted_ids.add(topic_id)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id)], timeout_ms=30_000)
    else:
        world.reference.deleted_names.add(name)
    host = world.hosts[host_id]
    world.ask_admin(
        host, f"delete {name}", lambda refusal: host.controller.delete_topics(request, refusal)
    )


@controller_step(
    "store_deletion",
    1,
    lambda world: [
        (name,)
        for name in world.reference.topics
        if world.store.tree.get(layout.delete_topic_path(name)) is None
    ],
    "a tool stores the request to delete topic {0}",
    "topics",
)
def _store_deletion(world: ControllerWorld, name: str) -> None:
    world.reference.deleted_names.add(name)
    world.store.commit([Create(layout.delete_topic_path(name), b"")], 0)


@controller_step(
    "grow",
    1,
    lambda world: [
        (*choice, replicas)
        for choice in _with_names(world, True)
        if len(world.reference.topics[str(choice[1])].partitions) < _MOST_PARTITIONS
        for replicas in _lists(world)
    ],
    "an administrator asks controller {0} for another partition of {1} on {2}",
    "topics",
)
def _grow(world: ControllerWorld, host_id: int, name: str, replicas: str) -> None:
    count = len(world.reference.topics[name].partitions) + 1
    assignment = [CreatePartitionsAssignment(_replicas(replicas))]
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, count, assignment)])
    host = world.hosts[host_id]
    world.ask_admin(
        host, f"grow {name}", lambda refusal: host.controller.create_partitions(request, refusal)
    )


def _partitions(world: ControllerWorld) -> list[Arguments]:
    return [
        (host.broker_id, name, partition)
        for host in _controllers(world)
        for name, topic in world.reference.topics.items()
        for partition in topic.partitions
    ]


def _reassign(
    world: ControllerWorld, host_id: int, name: str, partition: int, replicas: Any
) -> None:
    moved = ReassignableTopic(name, [ReassignablePartition(partition, replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[moved])
    _ask(world, host_id, f"reassign {name}-{partition} to {replicas}", request)


def _ask(
    world: ControllerWorld,
    host_id: int,
    what: str,
    request: Any,
    check: Callable[[Any], None] | None = None,
) -> None:
    host = world.hosts[host_id]

    def ask(refusal: Callable[[], Any]) -> Any:
        return host.controller.ask(request, refusal)

    world.ask_admin(host, what, ask, check)


@controller_step(
    "reassign",
    4,
    lambda world: [
        (*choice, replicas)
        for choice in _partitions(world)
        for replicas in _targets(world, str(choice[1]))
    ],
    "an administrator asks controller {0} to move {1}-{2} to {3}",
    "reassignments",
)
def _move(world: ControllerWorld, host_id: int, name: str, partition: int, replicas: str) -> None:
    target = _replicas(replicas)
    world.reference.targets.setdefault(TopicPartition(name, partition), set()).add(target)
    _reassign(world, host_id, name, partition, target)


@controller_step(
    "cancel",
    2,
    lambda world: [
        choice for choice in _partitions(world) if _is_moving(world, str(choice[1]), int(choice[2]))
    ],
    "an administrator asks controller {0} to cancel the move of {1}-{2}",
    "reassignments",
)
def _cancel(world: ControllerWorld, host_id: int, name: str, partition: int) -> None:
    _reassign(world, host_id, name, partition, None)


def _is_moving(world: ControllerWorld, name: str, partition: int) -> bool:
    topic = world.reference.topics[name]
    return bool(topic.adding.get(partition) or topic.removing.get(partition))


@controller_step(
    "elect",
    2,
    lambda world: [(*choice, kind) for choice in _partitions(world) for kind in (0, 0, 0, 1)],
    "an administrator asks controller {0} for a leader of {1}-{2} (unclean: {3})",
    "elections",
)
def _elect(world: ControllerWorld, host_id: int, name: str, partition: int, kind: int) -> None:
    if kind:
        world.reference.forced.add(TopicPartition(name, partition))
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[TopicPartitions(name, [partition])]
    )
    topic_partition = TopicPartition(name, partition)
    known = world.reference.states.get(topic_partition)
    since = -1 if known is None else known.leader_epoch

    def check(response: Any) -> None:
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                if kind == 0 and result.error_code == ErrorCode.NONE:
                    world.reference.check_preferred(topic_partition, since)

    _ask(world, host_id, f"elect {name}-{partition}", request, check)


@controller_step(
    "store_election",
    1,
    lambda world: [
        (name, partition)
        for name, topic in world.reference.topics.items()
        for partition in topic.partitions
        if world.store.tree.get(layout.PREFERRED_REPLICA_ELECTION) is None
    ],
    "a tool stores the request to elect the preferred leader of {0}-{1}",
    "tools",
)
def _store_election(world: ControllerWorld, name: str, partition: int) -> None:
    data = layout.encode_partition_list([TopicPartition(name, partition)])
    world.store.commit([Create(layout.PREFERRED_REPLICA_ELECTION, data)], 0)


@controller_step(
    "store_move",
    2,
    lambda world: [
        (name, partition, replicas)
        for name, topic in world.reference.topics.items()
        for partition in topic.partitions
        for replicas in _targets(world, name)
        if world.store.tree.get(layout.REASSIGN_PARTITIONS) is None
    ],
    "a tool stores the request to move {0}-{1} to {2}",
    "tools",
)
def _store_move(world: ControllerWorld, name: str, partition: int, replicas: str) -> None:
    topic_partition = TopicPartition(name, partition)
    target = _replicas(replicas)
    world.reference.targets.setdefault(topic_partition, set()).add(target)
    data = layout.encode_reassignments([ReassignmentEntry(topic_partition, target)])
    world.store.commit([Create(layout.REASSIGN_PARTITIONS, data)], 0)


@controller_step(
    "store_cancel",
    1,
    lambda world: [()] if world.store.tree.get(layout.CANCEL_REASSIGNMENTS) is None else [],
    "a tool stores the request to cancel all moves",
    "tools",
)
def _store_cancel(world: ControllerWorld) -> None:
    world.store.commit([Create(layout.CANCEL_REASSIGNMENTS, b"")], 0)


@controller_step(
    "store_vain_deletion",
    1,
    lambda world: [()] if world.store.tree.get(layout.delete_topic_path("nothing")) is None else [],
    "a tool stores the request to delete a topic that does not exist",
    "tools",
)
def _store_vain_deletion(world: ControllerWorld) -> None:
    world.store.commit([Create(layout.delete_topic_path("nothing"), b"")], 0)


@controller_step(
    "configure",
    1,
    lambda world: [
        (name, minimum, unclean)
        for name in world.reference.topics
        for minimum in ((1, 2) if world.reference.is_whole(name) else (2,))
        for unclean in (0, 0, 1)
    ],
    "topic {0} gets min.insync.replicas {1} and unclean elections {2}",
    "configurations",
)
def _configure(world: ControllerWorld, name: str, minimum: int, unclean: int) -> None:
    world.least_minimums[name] = min(world.least_minimums[name], minimum)
    if unclean:
        world.unclean_topics.add(name)
    path = layout.config_path("topics", name)
    data = layout.encode_config(
        {
            "min.insync.replicas": str(minimum),
            "unclean.leader.election.enable": "true" if unclean else "false",
        }
    )
    op: Op = Create(path, data)
    if world.store.tree.get(path) is not None:
        op = SetData(path, data, ANY_VERSION)
    world.store.commit([op], 0)
    for host in world.live_hosts():
        host.controller.configs_changed([name])
