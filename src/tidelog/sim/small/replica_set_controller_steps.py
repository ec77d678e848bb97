"""Steps of the controller in the small world of replicas: ISR changes, commands, elections.

Requests for ISR changes reach the controller late, twice, or never. The controller accepts,
refuses, holds back or leaves open a request in every way that its contract with the leader allows
(`replica_set_register`).
"""

from __future__ import annotations

from typing import Final

from tidelog.core.errors import ErrorCode
from tidelog.replication.isr import NOT_MADE
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_values import MAX_LAG_MS, SmallRequest, SmallVerdict
from tidelog.sim.small.replica_set_world import (
    Arguments,
    ReplicaSetWorld,
    broker_ids,
    step_kind,
)

#: Errors of AlterPartition that leave the outcome to a later command (A3).
_UNDECIDED: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_UPDATE_VERSION)


@step_kind(
    "send",
    20,
    lambda world: broker_ids(
        each for each in world.leaders() if each.queue is not None and each.awaited is None
    ),
    "leader {0} sends its ISR change to the controller",
)
def _send(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    role, change, broker.queue = broker.leading, broker.queue, None
    assert role is not None and change is not None, "a leader has a change to send"
    if not role.is_to_be_sent(change):
        return
    role.change_sent(change)
    world.numbers += 1
    broker.awaited = (world.numbers, change)
    world.requests.append(SmallRequest(world.numbers, broker_id, broker.broker_epoch, change))


def _numbers(world: ReplicaSetWorld) -> list[int]:
    return [request.number for request in world.requests]


def _take(world: ReplicaSetWorld, number: int) -> SmallRequest:
    index = _numbers(world).index(number)
    return world.requests.pop(index)


def _respond(
    world: ReplicaSetWorld, request: SmallRequest, error: ErrorCode, **more: object
) -> None:
    verdict = SmallVerdict(request.number, request.sender, request.change, error)
    world.verdicts.append(verdict._replace(**more))  # type: ignore[arg-type]


@step_kind(
    "judge",
    10,
    lambda world: [(number, copy) for number in _numbers(world) for copy in (0, 1)],
    "the controller decides on request {0} (a copy of it stays: {1})",
)
def _judge(world: ReplicaSetWorld, number: int, copy: int) -> None:
    request = _take(world, number)
    before = world.register.state
    judged = world.register.judge(request)
    if copy:
        world.requests.append(request)
    _respond(world, request, judged.error, state=judged.state)
    if judged.is_commanded and world.brokers[request.sender].is_up:
        world.brokers[request.sender].inbox.append(world.register.command())
    if world.register.state is not before:
        world.publish()


def _open(world: ReplicaSetWorld) -> list[Arguments]:
    """Return the numbers of AlterPartition requests that the controller may still accept."""
    may_be_accepted = world.register.may_be_accepted
    return [(request.number,) for request in world.requests if may_be_accepted(request)]


@step_kind(
    "refuse",
    4,
    _open,
    "the controller refuses the change of request {0} under a new partition epoch",
    "refusals",
)
def _refuse(world: ReplicaSetWorld, number: int) -> None:
    request = _take(world, number)
    judged = world.register.refuse(request)
    _respond(world, request, judged.error)


@step_kind(
    "refuse_quietly",
    8,
    _open,
    "the controller refuses the change of request {0}, and will accept no copy of it",
    "refusals",
)
def _refuse_quietly(world: ReplicaSetWorld, number: int) -> None:
    request = _take(world, number)
    world.requests = [each for each in world.requests if each.change != request.change]
    _respond(world, request, ErrorCode.OPERATION_NOT_ATTEMPTED)


@step_kind(
    "leave_open",
    4,
    lambda world: [(number, which) for number in _numbers(world) for which in (0, 1)],
    "the controller leaves request {0} undecided (error: {1})",
    "undecided_requests",
)
def _leave_open(world: ReplicaSetWorld, number: int, which: int) -> None:
    request = next(each for each in world.requests if each.number == number)
    _respond(world, request, _UNDECIDED[which])


@step_kind(
    "hold",
    6,
    lambda world: [(number,) for number in _numbers(world)],
    "the controller holds request {0} back, and responds without it",
    "undecided_requests",
)
def _hold(world: ReplicaSetWorld, number: int) -> None:
    request = next(each for each in world.requests if each.number == number)
    _respond(world, request, ErrorCode.NONE, held=True)


@step_kind(
    "lose",
    4,
    lambda world: [(number,) for number in _numbers(world)],
    "request {0} never arrives",
    "lost_requests",
)
def _lose(world: ReplicaSetWorld, number: int) -> None:
    _take(world, number)


def _answerable(world: ReplicaSetWorld) -> list[Arguments]:
    return [(index,) for index in range(len(world.verdicts))]


@step_kind("answer", 12, _answerable, "the controller's response {0} arrives")
def _answer(world: ReplicaSetWorld, index: int) -> None:
    verdict = world.verdicts.pop(index)
    broker = world.brokers[verdict.receiver]
    if broker.awaited is None or broker.awaited[0] != verdict.number:
        return
    broker.awaited = None
    role = broker.leading
    if role is None:
        return
    wanted, change, now_ms = world.wanted(broker), verdict.change, world.now_ms
    if verdict.held:
        effects = role.change_unanswered(change, now_ms, MAX_LAG_MS)
    elif verdict.error is ErrorCode.STALE_BROKER_EPOCH:
        effects = role.change_unanswered(change, now_ms)
    elif verdict.error:
        if verdict.error in NOT_MADE:
            world.reference.change_dropped(broker.broker_id)
        effects = role.change_refused(change, verdict.error, now_ms)
    else:
        state = verdict.state
        assert state is not None, "an accepted change has a state"
        effects = role.change_accepted(
            change, state.isr, state.leader_epoch, state.partition_epoch, now_ms, bool(state.elr)
        )
    broker.run_leader(effects)
    world.settle(broker, wanted)


@step_kind(
    "unanswered",
    10,
    lambda world: broker_ids(each for each in world.up() if each.awaited is not None),
    "broker {0} waits no longer for the controller's response",
)
def _unanswered(world: ReplicaSetWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    assert broker.awaited is not None, "a request awaits its response"
    (_, change), broker.awaited = broker.awaited, None
    if broker.leading is not None:
        wanted = world.wanted(broker)
        broker.run_leader(broker.leading.change_unanswered(change, world.now_ms))
        world.settle(broker, wanted)


def _commanded(world: ReplicaSetWorld) -> list[Arguments]:
    register = world.register
    leader = register.state.leader
    if leader in register.live and not register.is_proven(leader):
        return []  # the controller first handles the leader's restart (V10)
    return broker_ids(
        each for each in world.up() if each.known != _newest(world) and not each.inbox
    )


def _newest(world: ReplicaSetWorld) -> tuple[int, int]:
    state = world.register.state
    return state.leader_epoch, state.partition_epoch


@step_kind("command", 8, _commanded, "the controller sends the role to broker {0} again")
def _command(world: ReplicaSetWorld, broker_id: int) -> None:
    world.brokers[broker_id].inbox.append(world.register.command())


@step_kind(
    "repeat",
    1,
    lambda world: [] if not _may_repeat(world) else broker_ids(world.up()),
    "the controller repeats the role of broker {0}",
)
def _repeat(world: ReplicaSetWorld, broker_id: int) -> None:
    world.brokers[broker_id].inbox.append(world.register.command())


def _may_repeat(world: ReplicaSetWorld) -> bool:
    register = world.register
    return register.state.leader not in register.live or register.is_proven(register.state.leader)


def _deliverable(world: ReplicaSetWorld) -> list[Arguments]:
    return [
        (broker.broker_id, index)
        for broker in world.up()
        if broker.operation is None or broker.operation.kind == "ask"
        for index in range(len(broker.inbox))
    ]


@step_kind("obey", 24, _deliverable, "command {1} arrives at broker {0}")
def _obey(world: ReplicaSetWorld, broker_id: int, index: int) -> None:
    broker = world.brokers[broker_id]
    world.obey(broker, broker.inbox.pop(index))


def _electable(world: ReplicaSetWorld) -> list[Arguments]:
    register = world.register
    sound = [each for each in register.proven if world.brokers[each].damaged_from is None]
    candidates = [member for member in sound if member in register.state.isr] or sound
    if candidates:
        return [(member,) for member in candidates]
    members = [world.brokers[member] for member in register.members]
    if not all(each.is_up and each.broker_id in register.live for each in members):
        return []
    members = [each for each in members if each.damaged_from is None]
    greatest = max(members, key=lambda each: (last_epoch(each), len(each.log)))
    return [(greatest.broker_id,)]


def last_epoch(broker: SmallBroker) -> int:
    """Return the leader epoch of the last record of a log, -1 without one."""
    if len(broker.log) == broker.log_start:
        return broker.epochs.latest_epoch
    return broker.log[-1].leader_epoch


@step_kind("elect", 3, _electable, "the controller elects broker {0}", "elections")
def _elect(world: ReplicaSetWorld, broker_id: int) -> None:
    world.register.elect(broker_id)
    world.publish()


@step_kind(
    "leaderless",
    1,
    lambda world: [] if world.register.state.leader < 0 or world.register.proven else [()],
    "the controller finds no member that may lead",
    "elections",
)
def _leaderless(world: ReplicaSetWorld) -> None:
    world.register.leave_leaderless()
    world.publish()


def _removable(world: ReplicaSetWorld) -> list[Arguments]:
    register = world.register
    state = register.state
    if not register.is_proven(state.leader):
        return []
    return [(member,) for member in state.isr if member != state.leader]


@step_kind("remove", 3, _removable, "the controller removes broker {0} from the ISR", "elections")
def _remove(world: ReplicaSetWorld, broker_id: int) -> None:
    world.register.remove(broker_id)
    world.publish()


@step_kind(
    "lead_on",
    2,
    lambda world: [()] if world.register.is_proven(world.register.state.leader) else [],
    "the controller raises the leader epoch",
    "elections",
)
def _lead_on(world: ReplicaSetWorld) -> None:
    world.register.lead_on()
    world.publish()


def _assignable(world: ReplicaSetWorld) -> list[Arguments]:
    state = world.register.state
    if not world.register.is_proven(state.leader):
        return []
    return [
        (broker_id,)
        for broker_id in world.settings.replicas
        if broker_id not in (*state.isr, *(member for member, _ in state.elr))
    ]


@step_kind(
    "assign",
    2,
    _assignable,
    "the assignment loses broker {0}, or gets it back",
    "reassignments",
)
def _assign(world: ReplicaSetWorld, broker_id: int) -> None:
    assigned = world.register.state.replicas
    wanted = [each for each in assigned if each != broker_id]
    if broker_id not in assigned:
        wanted = sorted((*assigned, broker_id))
    world.register.assign(tuple(wanted))
    world.publish()


@step_kind(
    "touch",
    2,
    lambda world: [()] if world.register.is_proven(world.register.state.leader) else [],
    "the controller publishes the same state under a new partition epoch",
    "elections",
)
def _touch(world: ReplicaSetWorld) -> None:
    world.register.touch()
    world.publish()
