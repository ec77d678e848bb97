"""Steps of brokers in the small world of controllers.

Commands arrive, followers fetch, leaders propose ISRs and resign, brokers ask for their controlled
shutdown, and log directories fail. Requests and responses wait until a step delivers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, RECOVERED, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import Create, SetData
from tidelog.sim.small.controller_broker import SmallProposal, SmallReplica
from tidelog.sim.small.controller_host import ControllerHost
from tidelog.sim.small.controller_reference import AskedIsr
from tidelog.sim.small.controller_world import (
    Arguments,
    BrokerRequest,
    ControllerWorld,
    controller_step,
)
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedTopic,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)

#: Errors after which a leader no longer counts a proposed ISR (A8).
_FINAL_ERRORS = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)


def _deliverable(world: ControllerWorld) -> list[Arguments]:
    return [
        (broker_id, place) for broker_id in world.frames for place in world.deliverable(broker_id)
    ]


@controller_step("obey", 30, _deliverable, "command {1} arrives at broker {0}")
def _obey(world: ControllerWorld, broker_id: int, place: int) -> None:
    world.obey(broker_id, world.frames[broker_id][place])


@controller_step(
    "arrive",
    12,
    lambda world: [(broker_id,) for broker_id, frames in world.frames.items() if frames],
    "all commands arrive at broker {0}",
)
def _arrive(world: ControllerWorld, broker_id: int) -> None:
    while world.frames[broker_id]:
        world.obey(broker_id, world.frames[broker_id][0])
        world.loop.run_ready()


@controller_step(
    "break_link", 2, _deliverable, "the connection of command {1} to broker {0} breaks", "links"
)
def _break_link(world: ControllerWorld, broker_id: int, place: int) -> None:
    # The command may still arrive, after those of the next connection.
    world.frames[broker_id][place].link.close("the connection broke")


def leaders(world: ControllerWorld) -> Iterator[tuple[int, TopicPartition, SmallReplica]]:
    """Return the replicas that lead, as their brokers believe."""
    for broker in world.up():
        for topic_partition, replica in broker.replicas.items():
            if replica.leads(broker.broker_id):
                yield broker.broker_id, topic_partition, replica


def _leading(world: ControllerWorld) -> list[Arguments]:
    return [(leader, *topic_partition) for leader, topic_partition, _ in leaders(world)]


@controller_step("append", 8, _leading, "leader {0} of {1}-{2} appends a record")
def _append(world: ControllerWorld, broker_id: int, topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    world.append(world.brokers[broker_id].replicas[topic_partition])
    world.advance(broker_id, topic_partition)


@controller_step("replicate", 10, _leading, "leader {0} of {1}-{2} appends; all followers fetch")
def _replicate(world: ControllerWorld, broker_id: int, topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    world.append(world.brokers[broker_id].replicas[topic_partition])
    for follower, leader, *followed in fetches(world):
        if leader == broker_id and tuple(followed) == (topic, partition):
            _fetch(world, int(follower), broker_id, topic, partition)
    world.advance(broker_id, topic_partition)


def fetches(world: ControllerWorld) -> list[Arguments]:
    """Return the fetches that are possible: follower, leader and partition."""
    found: list[Arguments] = []
    for leader, topic_partition, replica in leaders(world):
        for follower in world.up():
            mine = follower.replicas.get(topic_partition)
            if (
                mine is not None
                and follower.broker_id != leader
                and mine.topic_id == replica.topic_id
                and mine.leader_epoch == replica.leader_epoch
                and not mine.is_stopped
            ):
                found.append((follower.broker_id, leader, *topic_partition))
    return found


@controller_step("fetch", 20, fetches, "broker {0} fetches {2}-{3} from leader {1}")
def _fetch(world: ControllerWorld, follower: int, leader: int, topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    source = world.brokers[leader].replicas[topic_partition]
    broker = world.brokers[follower]
    mine = broker.replicas[topic_partition]
    same = 0
    while same < min(len(mine.log), len(source.log)) and mine.log[same] == source.log[same]:
        same += 1
    mine.synced = min(mine.synced, same)
    mine.log[same:] = source.log[same:]
    if source.fetched.get(follower, (0, 0))[0] <= broker.latest_epoch:
        source.fetched[follower] = (broker.latest_epoch, len(mine.log))
    world.advance(leader, topic_partition)


@controller_step(
    "sync",
    2,
    lambda world: [(broker.broker_id,) for broker in world.up()],
    "broker {0} flushes its logs",
    "crashes",
)
def _sync(world: ControllerWorld, broker_id: int) -> None:
    for replica in world.brokers[broker_id].replicas.values():
        replica.synced = len(replica.log)


def proposals(world: ControllerWorld) -> list[Arguments]:
    """Return the ISR changes that leaders may propose: leader, partition, and the member."""
    found: list[Arguments] = []
    for leader, topic_partition, replica in leaders(world):
        if world.brokers[leader].broker_epoch == NO_BROKER_EPOCH or replica.is_asking:
            continue
        assert replica.state is not None, "a leader has a role"
        found += [(leader, *topic_partition, each) for each in replica.isr if each != leader]
        if replica.recovery != RECOVERED:
            found.append((leader, *topic_partition, leader))
        found += [
            (leader, *topic_partition, member) for member in joining(topic_partition, replica)
        ]
    return found


def joining(topic_partition: TopicPartition, replica: SmallReplica) -> list[int]:
    """Return the followers that may join the ISR (V63, R10)."""
    state = replica.state
    assert state is not None, "a leader has a role"
    least = max(replica.high_watermark, replica.epoch_start)
    return [
        follower
        for follower, (_, end) in replica.fetched.items()
        if end >= least
        and follower in state.replicas
        and follower not in replica.isr
        and follower not in state.idle
    ]


@controller_step("propose", 16, proposals, "leader {0} of {1}-{2} proposes to add or remove {3}")
def _propose(world: ControllerWorld, leader: int, topic: str, partition: int, member: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    replica = world.brokers[leader].replicas[topic_partition]
    epochs = _epochs_after(world, leader, replica, member)
    proposal = SmallProposal(epochs, replica.partition_epoch, replica.leader_epoch)
    replica.proposals.append(proposal)
    send_proposal(world, leader, topic_partition, proposal)


def _epochs_after(
    world: ControllerWorld, leader: int, replica: SmallReplica, member: int
) -> dict[int, int]:
    """Return the ISR after `member` joins or leaves it, as broker ids with broker epochs.

    A broker epoch that the leader does not know is NO_BROKER_EPOCH.
    """
    isr = [each for each in replica.isr if each != member or member == leader]
    if member not in replica.isr:
        isr.append(member)
    epochs = {each: replica.fetched.get(each, (NO_BROKER_EPOCH, 0))[0] for each in isr}
    epochs[leader] = world.brokers[leader].broker_epoch
    return epochs


@controller_step(
    "repeat",
    4,
    lambda world: [
        (leader, *topic_partition)
        for leader, topic_partition, replica in leaders(world)
        if replica.proposals
        and not replica.is_asking
        and world.brokers[leader].broker_epoch != NO_BROKER_EPOCH
    ],
    "leader {0} of {1}-{2} repeats its request",
)
def _repeat(world: ControllerWorld, leader: int, topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    replica = world.brokers[leader].replicas[topic_partition]
    send_proposal(world, leader, topic_partition, replica.proposals[-1])


def send_proposal(
    world: ControllerWorld,
    leader: int,
    topic_partition: TopicPartition,
    proposal: SmallProposal,
) -> None:
    """Let a leader send its AlterPartition request."""
    broker = world.brokers[leader]
    replica = broker.replicas[topic_partition]
    replica.is_asking = True
    partition, epochs = topic_partition.partition, proposal.isr
    data = RequestPartitionData(
        partition_index=partition,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[BrokerState(each, epoch) for each, epoch in epochs.items()],
        leader_recovery_state=RECOVERED,
        partition_epoch=proposal.partition_epoch,
        minimum=world.effective_minimum(topic_partition, replica),
    )
    asked = AskedIsr(
        leader, proposal.leader_epoch, proposal.partition_epoch, frozenset(epochs.items())
    )
    world.reference.asked.setdefault((replica.topic_id, partition), set()).add(asked)
    request = AlterPartitionRequest(
        leader,
        broker.broker_epoch,
        [RequestTopicData(topic_id=replica.topic_id, partitions=[data])],
        may_hold=world.settings.linger_ms > 0,
    )

    def ask(host: ControllerHost, refusal: Any) -> Any:
        return host.controller.alter_partition(request, 3, refusal)

    world.requests.append(
        BrokerRequest(
            leader,
            world.processes[leader],
            f"ISR {epochs} of {topic_partition}",
            ask,
            partial(_isr_answered, world, leader, topic_partition, proposal),
        )
    )


def _isr_answered(
    world: ControllerWorld,
    leader: int,
    topic_partition: TopicPartition,
    proposal: SmallProposal,
    response: AlterPartitionResponse | None,
) -> None:
    replica = world.brokers[leader].replicas.get(topic_partition)
    if replica is None or replica.leader_epoch != proposal.leader_epoch:
        return
    if response is None or response.error_code != ErrorCode.NONE:
        replica.is_asking = False
        return
    for topic in response.topics:
        for data in topic.partitions:
            world.reference.check_isr_response(topic.topic_id, data)
            replica.is_asking = False
            if data.error_code in _FINAL_ERRORS:
                replica.proposals = [each for each in replica.proposals if each is not proposal]
            elif data.error_code == ErrorCode.NONE:
                _take_isr(replica, data)
    world.advance(leader, topic_partition)


def _take_isr(replica: SmallReplica, data: Any) -> None:
    if data.leader_epoch != replica.leader_epoch or data.partition_epoch < replica.partition_epoch:
        return
    replica.isr, replica.partition_epoch = tuple(data.isr), data.partition_epoch
    replica.has_eligible, replica.recovery = data.has_eligible, data.leader_recovery_state
    replica.proposals = [
        each for each in replica.proposals if each.partition_epoch >= data.partition_epoch
    ]


@controller_step(
    "rogue",
    2,
    lambda world: [
        (broker.broker_id, *topic_partition, kind)
        for broker in world.up()
        for topic_partition in broker.replicas
        for kind in range(6)
    ],
    "broker {0} asks for an ISR of {1}-{2} that it may not have (kind {3})",
    "rogues",
)
def _rogue(world: ControllerWorld, sender: int, topic: str, partition: int, kind: int) -> None:
    """Send an AlterPartition request that the controller must refuse (A3).

    No leader asked for this ISR, so `reference.asked` does not have it.
    """
    topic_partition = TopicPartition(topic, partition)
    state = world.reference.states.get(topic_partition)
    broker = world.brokers[sender]
    replica = broker.replicas[topic_partition]
    if state is None:
        return
    isr = [state.leader, *(each for each in world.brokers if each != state.leader)]
    leader, leader_epoch, partition_epoch = state.leader, state.leader_epoch, state.partition_epoch
    match kind:
        case 0:
            partition_epoch = -1
        case 1:
            leader_epoch = -1
        case 2:
            isr = [each for each in state.isr if each != state.leader]
        case 3:
            leader_epoch -= 1
        case 4:
            isr = [state.leader, state.leader]
        case _:
            leader = sender
            isr = [sender]
    if leader not in world.brokers or (kind == 5 and leader == state.leader):
        return
    members = [BrokerState(each, world.registered_epoch(each)) for each in isr]
    data = RequestPartitionData(
        partition_index=partition,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=members,
        leader_recovery_state=RECOVERED,
        partition_epoch=partition_epoch,
    )
    request = AlterPartitionRequest(
        leader,
        world.registered_epoch(leader),
        [RequestTopicData(topic_id=replica.topic_id, partitions=[data])],
    )

    def ask(host: ControllerHost, refusal: Any) -> Any:
        return host.controller.alter_partition(request, 3, refusal)

    world.requests.append(
        BrokerRequest(sender, world.processes[sender], f"rogue {kind}", ask, lambda response: None)
    )


@controller_step(
    "write_isr",
    4,
    lambda world: [choice for choice in proposals(world) if _is_published(world, choice)],
    "leader {0} of {1}-{2} adds or removes {3} in the state node itself",
    "direct",
)
def _write_isr(
    world: ControllerWorld, leader: int, topic: str, partition: int, member: int
) -> None:
    """Write the ISR to the store, as leaders with old `inter.broker.protocol.version` do (A12)."""
    topic_partition = TopicPartition(topic, partition)
    replica = world.brokers[leader].replicas[topic_partition]
    path = layout.partition_state_path(topic_partition)
    node = world.store.tree.get(path)
    assert node is not None, "a published state has a node"
    state = layout.decode_partition_state(path, node.data, node.stat)
    epochs = _epochs_after(world, leader, replica, member)
    known = eligible_replicas.members(state)
    recorded = {
        each: world.registered_epoch(each)
        if epoch < 0 and each not in known
        else known.get(each, epoch)
        for each, epoch in epochs.items()
    }
    minimum = world.effective_minimum(topic_partition, replica)
    assert replica.state is not None, "a leader has a role"
    eligible = eligible_replicas.after(state, tuple(epochs), minimum, replica.state.replicas)
    after = replace(
        state,
        isr=tuple(epochs),
        isr_epochs=tuple(recorded.values()),
        elr=eligible.elr,
        elr_epochs=eligible.elr_epochs,
        leader_recovery_state=RECOVERED,
    )
    asked = AskedIsr(leader, state.leader_epoch, state.partition_epoch, frozenset(recorded.items()))
    world.reference.asked.setdefault((replica.topic_id, partition), set()).add(asked)
    data = layout.rewrite_isr(path, node.data, after)
    world.store.commit([SetData(path, data, state.partition_epoch)], 0)
    notification = layout.encode_isr_change([topic_partition])
    world.store.commit([Create(layout.ISR_CHANGE_PREFIX, notification, sequence=True)], 0)
    replica.isr, replica.partition_epoch = tuple(epochs), state.partition_epoch + 1
    replica.has_eligible, replica.recovery = bool(eligible.elr), RECOVERED
    replica.proposals.clear()
    world.advance(leader, topic_partition)


def _is_published(world: ControllerWorld, choice: Arguments) -> bool:
    """Return whether the leader knows the newest published state, and has a live session.

    A new member must still be registered with the epoch of its fetch.
    """
    leader, topic, partition, member = map(str, choice)
    topic_partition = TopicPartition(topic, int(partition))
    state = world.reference.states.get(topic_partition)
    replica = world.brokers[int(leader)].replicas[topic_partition]
    if state is None or world.reference.topics[topic].topic_id != replica.topic_id:
        return False
    newest = (replica.leader_epoch, replica.partition_epoch)
    fetched = replica.fetched.get(int(member), (NO_BROKER_EPOCH, 0))[0]
    joins = int(member) not in state.isr
    return (
        newest == (state.leader_epoch, state.partition_epoch)
        and not replica.proposals
        and world.store.is_live(world.brokers[int(leader)].session_id)
        and (not joins or fetched == world.registered_epoch(int(member)))
    )


@controller_step(
    "unanswered",
    2,
    lambda world: [
        (leader, *topic_partition)
        for leader, topic_partition, replica in leaders(world)
        if replica.is_asking
    ],
    "leader {0} of {1}-{2} waits no longer for a response",
)
def _unanswered(world: ControllerWorld, leader: int, topic: str, partition: int) -> None:
    world.brokers[leader].replicas[TopicPartition(topic, partition)].is_asking = False


def _requests(world: ControllerWorld) -> list[Arguments]:
    return [
        (place, host.broker_id)
        for place in range(len(world.requests))
        for host in world.live_hosts()
        if host.controller.is_active
    ]


@controller_step("ask", 24, _requests, "request {0} of a broker arrives at controller {1}")
def _ask(world: ControllerWorld, place: int, host_id: int) -> None:
    ask_broker_request(world, world.requests.pop(place), host_id)


@controller_step("double", 2, _requests, "a copy of request {0} arrives at controller {1}", "links")
def _double(world: ControllerWorld, place: int, host_id: int) -> None:
    request = world.requests[place]
    copy = BrokerRequest(
        request.sender, request.process, request.what, request.ask, lambda response: None
    )
    ask_broker_request(world, copy, host_id)


def ask_broker_request(world: ControllerWorld, request: BrokerRequest, host_id: int) -> None:
    """Let a broker's request arrive at a controller; the response goes to `world.answers`."""
    host = world.hosts[host_id]

    def arrived(response: Any) -> None:
        world.answers.append((request, response))

    answer = request.ask(host, lambda: None)
    if answer is None:
        arrived(None)
    else:
        answer.deliver_to(arrived)


@controller_step(
    "drop",
    1,
    lambda world: [(place,) for place in range(len(world.requests))],
    "request {0} is lost",
    "links",
)
def _drop(world: ControllerWorld, place: int) -> None:
    world.requests.pop(place)


@controller_step(
    "answer",
    24,
    lambda world: [(place,) for place in range(len(world.answers))],
    "response {0} arrives",
)
def _answer(world: ControllerWorld, place: int) -> None:
    deliver_answer(world, place)


def deliver_answer(world: ControllerWorld, place: int) -> None:
    """Let a response of the controller arrive at a broker, if the broker's process still runs."""
    request, response = world.answers.pop(place)
    if world.processes[request.sender] == request.process:
        request.answered(response)


@controller_step(
    "relinquish",
    1,
    lambda world: [
        (leader, *topic_partition, unfit)
        for leader, topic_partition, _ in leaders(world)
        if world.brokers[leader].broker_epoch != NO_BROKER_EPOCH
        for unfit in (0, 1)
    ],
    "leader {0} resigns from {1}-{2} (bad disk: {3})",
    "resignations",
)
def _relinquish(
    world: ControllerWorld, leader: int, topic: str, partition: int, unfit: int
) -> None:
    broker = world.brokers[leader]
    replica = broker.replicas[TopicPartition(topic, partition)]
    named = RelinquishedPartition(partition, replica.leader_epoch, is_unfit=bool(unfit))
    request = RelinquishLeadershipRequest(
        leader, broker.broker_epoch, [RelinquishedTopic(replica.topic_id, [named])]
    )

    def ask(host: ControllerHost, refusal: Any) -> Any:
        return host.controller.ask(request, refusal)

    def answered(response: RelinquishLeadershipResponse | None) -> None:
        del response

    world.requests.append(
        BrokerRequest(leader, world.processes[leader], "resignation", ask, answered)
    )


@controller_step(
    "shut_down",
    1,
    lambda world: [(broker.broker_id,) for broker in world.registered() if not broker.is_leaving],
    "broker {0} asks for its controlled shutdown",
    "shutdowns",
)
def _shut_down(world: ControllerWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    broker.is_leaving = True
    request = ControlledShutdownRequest(broker_id, broker.broker_epoch)

    def ask(host: ControllerHost, refusal: Any) -> Any:
        return host.controller.ask(request, refusal)

    def answered(response: ControlledShutdownResponse | None) -> None:
        if response is not None and response.error_code == ErrorCode.NONE:
            led = [
                (each.topic_name, each.partition_index) for each in response.remaining_partitions
            ]
            world.reference.check_shutdown(broker_id, led)

    world.requests.append(
        BrokerRequest(broker_id, world.processes[broker_id], "shutdown", ask, answered)
    )


@controller_step(
    "fail_directory",
    1,
    lambda world: [
        (broker.broker_id, *topic_partition)
        for broker in world.registered()
        for topic_partition in broker.replicas
    ],
    "the log directory of {1}-{2} on broker {0} fails",
    "directories",
)
def _fail_directory(world: ControllerWorld, broker_id: int, topic: str, partition: int) -> None:
    broker = world.brokers[broker_id]
    topic_partition = TopicPartition(topic, partition)
    replica = broker.replicas.pop(topic_partition)
    replica.state, replica.isr = None, ()
    replica.proposals.clear()
    broker.offline[topic_partition] = replica
    create = Create(
        layout.LOG_DIR_EVENT_PREFIX, layout.encode_log_dir_event(broker_id), sequence=True
    )
    world.store.commit([create], 0)
