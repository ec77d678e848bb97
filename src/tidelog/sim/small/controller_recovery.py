"""The end of a history of controllers: all faults end, and the cluster must come to rest.

All brokers run, all messages arrive, leaders propose every follower that has caught up, and time
passes. Then one controller must act, each partition must have a leader and a full ISR, each broker
must have the newest state of each partition, and no request may wait.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.types import NO_BROKER_EPOCH, TopicPartition
from tidelog.metadata import layout
from tidelog.sim.small import controller_broker_steps
from tidelog.sim.small.controller_host import RECOVERY_WAIT_MS
from tidelog.sim.small.controller_world import CONTROLLER_STEPS, ControllerWorld

#: Number of rounds after which a recovery that is not complete has failed.
_ROUNDS: Final = 40
#: The text of the violation if the cluster is not at rest after all rounds of the recovery.
NOT_RECOVERED: Final = "not recovered"
#: Nodes of the store whose children are requests; no request may be left in the end.
_REQUESTS: Final = (
    layout.DELETE_TOPICS,
    layout.PARTITIONS_ADD,
    layout.REASSIGNMENT_REQUESTS,
    layout.REASSIGNMENTS,
    layout.ISR_CHANGES,
    layout.LOG_DIR_EVENTS,
)
#: Nodes of the store that are requests themselves; none of them may be left in the end.
_REQUEST_NODES: Final = (
    layout.REASSIGN_PARTITIONS,
    layout.PREFERRED_REPLICA_ELECTION,
    layout.CANCEL_REASSIGNMENTS,
)


def recover(world: ControllerWorld) -> None:
    """End all faults, and check that the cluster comes to rest in a right state."""
    if world.live_hosts() and _dead(world):
        _rest_without_the_dead(world)
    missing = ""
    for number in range(_ROUNDS):
        if world.reference.violation:
            return
        _round(world, number)
        missing = what_is_missing(world)
        if number and not missing:
            break
    if missing:
        world.reference.violate(f"{NOT_RECOVERED}: {missing}")
    for topic_partition in world.reference.states:
        world.reference.check_members(topic_partition)


def _dead(world: ControllerWorld) -> list[int]:
    return [each for each in world.brokers if not world.brokers[each].is_up]


def _rest_without_the_dead(world: ControllerWorld) -> None:
    """Let the cluster come to rest while dead brokers stay dead: live ISR members then lead."""
    for broker_id in _dead(world):
        if world.registered_epoch(broker_id) != NO_BROKER_EPOCH:
            CONTROLLER_STEPS["expire"].act(world, broker_id)
    for number in range(4):
        if not world.reference.violation:
            _round(world, number, starts=False)
    if not any(host.controller.is_active for host in world.live_hosts()):
        world.reference.violate("V40: no live broker has become the controller")
    for topic_partition, state in world.reference.states.items():
        live = [
            each
            for each, epoch in zip(state.isr, state.isr_epochs or (), strict=True)
            if world.registered_epoch(each) == epoch
            and not world.brokers[each].is_leaving
            and topic_partition in world.brokers[each].replicas
        ]
        leader = state.leader
        if live and (leader < 0 or world.registered_epoch(leader) == NO_BROKER_EPOCH):
            world.reference.violate(f"V11: {topic_partition} has leader {leader}, {live} may lead")


def _round(world: ControllerWorld, number: int, *, starts: bool = True) -> None:
    _bring_up(world, starts=starts)
    for _ in range(20):
        for host in world.live_hosts():
            host.turn(serves_writes=True)
        if not world.deliver_everything():
            break
    for arguments in controller_broker_steps.fetches(world):
        CONTROLLER_STEPS["fetch"].act(world, *arguments)
    _propose(world, number)
    if number % 8 == 7:
        _elect_lost(world)
    for host in world.live_hosts():
        host.turn(serves_writes=True)
    while world.answers:
        controller_broker_steps.deliver_answer(world, 0)
    world.deliver_everything()
    if number % 4 == 1:
        # The controller checks reassignments and unreadable nodes every five seconds (V50).
        world.clock.advance(6_000)
    else:
        world.clock.advance(RECOVERY_WAIT_MS if number % 2 else 120)
    _check_failures(world)


def _elect_lost(world: ControllerWorld) -> None:
    """Let an operator elect leaders of partitions whose members have all lost their replicas (D3).

    A creation of a partition that was cut short may leave only such members.
    """
    active = [host.broker_id for host in world.live_hosts() if host.controller.is_active]
    for topic_partition, state in list(world.reference.states.items()):
        members = [world.brokers[each] for each in (*state.isr, *state.elr)]
        if state.leader < 0 and not any(topic_partition in each.replicas for each in members):
            CONTROLLER_STEPS["elect"].act(world, active[-1], *topic_partition, 1)


def _check_failures(world: ControllerWorld) -> None:
    for host in world.hosts.values():
        if host.failures:
            world.reference.violate(f"failed: broker {host.broker_id}: {host.failures[0]}")


def _bring_up(world: ControllerWorld, *, starts: bool) -> None:
    for host in world.live_hosts():
        host.session.is_cut = host.is_paused = False
        host.turn(serves_writes=True)
    for broker in list(world.brokers.values()):
        if starts and broker.is_up and (broker.is_leaving or broker.offline):
            CONTROLLER_STEPS["stop"].act(world, broker.broker_id)
    for name in ("start", "rejoin") if starts else ("rejoin",):
        kind = CONTROLLER_STEPS[name]
        for arguments in list(kind.options(world)):
            kind.act(world, *arguments)
            world.loop.run_ready()


def _propose(world: ControllerWorld, number: int) -> None:
    active = [host for host in world.live_hosts() if host.controller.is_active]
    if not active:
        return
    for leader, topic_partition, replica in list(controller_broker_steps.leaders(world)):
        if world.brokers[leader].broker_epoch == NO_BROKER_EPOCH:
            continue
        # The controller may hold back its response to an ISR expansion (A11). The leader then waits
        # for the response, and asks again only in every third round.
        if not (replica.is_asking and world.settings.linger_ms) or number % 3 == 2:
            replica.is_asking = False
            member = _wanted(world, leader, topic_partition)
            if replica.proposals and number % 2:
                controller_broker_steps.send_proposal(
                    world, leader, topic_partition, replica.proposals[-1]
                )
            elif member is not None:
                CONTROLLER_STEPS["propose"].act(world, leader, *topic_partition, member)
    while world.requests:
        controller_broker_steps.ask_broker_request(
            world, world.requests.pop(0), active[-1].broker_id
        )


def _wanted(world: ControllerWorld, leader: int, topic_partition: TopicPartition) -> int | None:
    replica = world.brokers[leader].replicas[topic_partition]
    ready = controller_broker_steps.joining(topic_partition, replica)
    live = [each for each in ready if world.registered_epoch(each) == replica.fetched[each][0]]
    if live:
        return live[0]
    return leader if replica.recovery else None


def what_is_missing(world: ControllerWorld) -> str:
    """Return what keeps the world from rest; "" if the world is at rest."""
    active = [host for host in world.live_hosts() if host.controller.is_active]
    if len(active) != 1:
        return f"{len(active)} controllers are active"
    for path in _REQUESTS:
        names = world.store.tree.children(path)
        if names:
            return f"{path} has {names}"
    for path in _REQUEST_NODES:
        if world.store.tree.get(path) is not None:
            return f"{path} still exists"
    for request in world.admin_requests:
        waits = request.response is None and not request.is_refused
        if waits and request.host.is_up:
            return f"{request.what} waits for its response"
    if any(world.frames.values()):
        return "commands are on their way"
    return _partition_missing(world) or _broker_missing(world)


def _partition_missing(world: ControllerWorld) -> str:
    reference = world.reference
    for name, topic in reference.topics.items():
        if topic.adding or topic.removing:
            return f"topic {name} is being reassigned: {topic.adding} {topic.removing}"
        for partition, replicas in topic.partitions.items():
            topic_partition = TopicPartition(name, partition)
            state = reference.states.get(topic_partition)
            if state is None:
                return f"{topic_partition} has no state"
            if state.leader < 0:
                return f"{topic_partition} has no leader, ISR {list(state.isr)}"
            if sorted(state.isr) != sorted(replicas):
                return f"{topic_partition} has the ISR {list(state.isr)} of {list(replicas)}"
    return ""


def _broker_missing(world: ControllerWorld) -> str:
    reference = world.reference
    for broker in world.brokers.values():
        who = f"broker {broker.broker_id}"
        for topic_partition in broker.shown:
            if topic_partition not in reference.states:
                return f"{who} shows {topic_partition}, which does not exist"
        hosted = {
            topic_partition
            for topic_partition in reference.states
            if broker.broker_id
            in reference.topics[topic_partition.topic].partitions[topic_partition.partition]
        }
        stray = [each for each in broker.replicas if each not in hosted]
        if stray:
            return f"{who} has replicas of {stray[0]}, which is not assigned to it"
        for topic_partition, state in reference.states.items():
            topic_id = reference.topics[topic_partition.topic].topic_id
            newest = (state.leader_epoch, state.partition_epoch)
            shown = broker.shown.get(topic_partition)
            if shown is None or shown.topic_id != topic_id:
                return f"{who} does not show {topic_partition}"
            if (shown.state.leader_epoch, shown.state.zk_version) != newest:
                return f"{who} shows an older state of {topic_partition}"
            if list(shown.state.replicas) != list(
                reference.topics[topic_partition.topic].partitions[topic_partition.partition]
            ):
                return f"{who} shows replicas {list(shown.state.replicas)} of {topic_partition}"
            if topic_partition not in hosted:
                continue
            replica = broker.replicas.get(topic_partition)
            if replica is None or replica.topic_id != topic_id:
                return f"{who} has no replica of {topic_partition}"
            if replica.leader_epoch != state.leader_epoch:
                return f"{who} has an older role in {topic_partition}"
    return ""
