"""Steps of the store and of processes in the small world of controllers.

Messages between controllers and the store arrive or get lost, sessions expire, processes pause, die
and start, and time passes. A crash takes only records whose loss the guarantee of E6 allows.
"""

from __future__ import annotations

from tidelog.core.types import NO_BROKER_EPOCH, CleanEpochs, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Delete
from tidelog.sim.small.controller_broker import ScriptedBroker
from tidelog.sim.small.controller_world import HOSTS, Arguments, ControllerWorld, controller_step


def _turns(world: ControllerWorld) -> list[Arguments]:
    return [(host.broker_id,) for host in world.live_hosts() if host.has_turn]


def _writers(world: ControllerWorld) -> list[Arguments]:
    return [
        (host.broker_id,)
        for host in world.live_hosts()
        if host.session.writes and not host.is_paused
    ]


@controller_step("turn", 30, _turns, "messages of the store reach broker {0} until it writes")
def _turn(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].turn(serves_writes=False)


@controller_step(
    "message", 5, _turns, "the next message of broker {0} and the store arrives", "delays"
)
def _message(world: ControllerWorld, broker_id: int) -> None:
    session = world.hosts[broker_id].session
    if session.next_call is not None and not session.writes:
        session.serve()
    else:
        session.deliver()


@controller_step("write", 20, _writers, "the store applies the write of broker {0}")
def _write(world: ControllerWorld, broker_id: int) -> None:
    host = world.hosts[broker_id]
    host.session.serve()
    host.turn(serves_writes=False)


@controller_step(
    "serve_write", 4, _writers, "the store applies a write; broker {0} hears later", "delays"
)
def _serve_write(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].session.serve()


@controller_step(
    "lose_answer", 3, _writers, "the store applies a write; broker {0} never hears", "answers"
)
def _lose_answer(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].session.break_connection(serves_write=True)


@controller_step("lose_request", 3, _writers, "the write of broker {0} is lost", "answers")
def _lose_request(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].session.break_connection(serves_write=False)


@controller_step(
    "cut",
    1,
    lambda world: [(host.broker_id,) for host in world.live_hosts() if not host.session.is_cut],
    "broker {0} cannot reach the store",
    "cuts",
)
def _cut(world: ControllerWorld, broker_id: int) -> None:
    session = world.hosts[broker_id].session
    session.break_connection(serves_write=False)
    session.is_cut = True


@controller_step(
    "give_up",
    2,
    lambda world: [
        (host.broker_id,)
        for host in world.live_hosts()
        if host.session.is_cut and host.session.requests
    ],
    "broker {0} gives up its requests to the store",
    "cuts",
)
def _give_up(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].session.give_up()


@controller_step(
    "heal",
    4,
    lambda world: [(host.broker_id,) for host in world.live_hosts() if host.session.is_cut],
    "broker {0} reaches the store again",
    "cuts",
)
def _heal(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].session.is_cut = False


@controller_step(
    "pause",
    2,
    lambda world: [(host.broker_id,) for host in world.live_hosts() if not host.is_paused],
    "broker {0} hears nothing of the store for a while",
    "pauses",
)
def _pause(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].is_paused = True


@controller_step(
    "resume",
    3,
    lambda world: [(host.broker_id,) for host in world.live_hosts() if host.is_paused],
    "broker {0} hears of the store again",
    "pauses",
)
def _resume(world: ControllerWorld, broker_id: int) -> None:
    world.hosts[broker_id].is_paused = False


@controller_step(
    "depose",
    2,
    lambda world: [()] if world.store.tree.get(layout.CONTROLLER) is not None else [],
    "an operator deletes the node /controller",
    "depositions",
)
def _depose(world: ControllerWorld) -> None:
    # The session of the deposed controller stays alive, so only the controller epoch fences it.
    world.store.commit([Delete(layout.CONTROLLER, ANY_VERSION)], 0)


def _successors(world: ControllerWorld) -> list[Arguments]:
    if world.store.tree.get(layout.CONTROLLER) is not None:
        return []
    return [
        (host.broker_id,)
        for host in world.live_hosts()
        if not host.controller.is_active and not host.is_paused and not host.session.is_cut
    ]


@controller_step("succeed", 4, _successors, "broker {0} becomes the controller")
def _succeed(world: ControllerWorld, broker_id: int) -> None:
    host = world.hosts[broker_id]
    for _ in range(3):
        host.turn(serves_writes=False)
        if host.session.writes and not host.controller.is_active:
            host.session.serve()
    host.turn(serves_writes=False)


def _sessions(world: ControllerWorld) -> list[Arguments]:
    return [
        (broker.broker_id,)
        for broker in world.brokers.values()
        if broker.session_id and world.store.is_live(broker.session_id)
    ]


@controller_step("expire", 2, _sessions, "the session of broker {0} expires", "expiries")
def _expire(world: ControllerWorld, broker_id: int) -> None:
    world.store.expire(world.brokers[broker_id].session_id)


def end_session(world: ControllerWorld, broker_id: int) -> None:
    """End a broker's session in the store, if it is live."""
    broker = world.brokers[broker_id]
    if broker.session_id and world.store.is_live(broker.session_id):
        world.store.expire(broker.session_id)


def _without_session(world: ControllerWorld) -> list[Arguments]:
    found: list[Arguments] = []
    for broker in world.up():
        host = world.hosts.get(broker.broker_id)
        is_known = host is None or host.session.session_id is None
        if is_known and not world.store.is_live(broker.session_id):
            found.append((broker.broker_id,))
    return found


@controller_step("rejoin", 12, _without_session, "broker {0} registers again, and lost nothing")
def _rejoin(world: ControllerWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    if broker.latest_epoch != NO_BROKER_EPOCH:
        broker.clean_epochs = broker.clean_epochs.followed_by(broker.latest_epoch)
    broker.is_leaving = False
    world.register(broker_id)
    host = world.hosts.get(broker_id)
    if host is not None:
        host.registered(broker.broker_epoch)


@controller_step(
    "crash",
    2,
    lambda world: [(broker.broker_id, lost) for broker in world.up() for lost in (0, 1)],
    "broker {0} crashes (loses records: {1})",
    "crashes",
)
def _crash(world: ControllerWorld, broker_id: int, lost: int) -> None:
    broker = world.brokers[broker_id]
    if lost:
        _lose_records(world, broker)
    broker.clean_epochs = CleanEpochs()
    _end_process(world, broker_id)


@controller_step(
    "restart",
    3,
    lambda world: [(broker.broker_id,) for broker in world.up()],
    "broker {0} crashes, loses records, and starts at once",
    "crashes",
)
def _restart(world: ControllerWorld, broker_id: int) -> None:
    _crash(world, broker_id, 1)
    start_broker(world, broker_id)


@controller_step(
    "lose_replica",
    1,
    lambda world: [
        (broker.broker_id, *topic_partition)
        for broker in world.up()
        for topic_partition in broker.replicas
    ],
    "broker {0} crashes, its disk loses {1}-{2}, and it starts",
    "crashes",
)
def _lose_replica(world: ControllerWorld, broker_id: int, topic: str, partition: int) -> None:
    broker = world.brokers[broker_id]
    topic_partition = TopicPartition(topic, partition)
    replica = broker.replicas[topic_partition]
    committed = world.reference.committed.get((replica.topic_id, partition))
    if committed and not _may_lose(world, broker_id, topic_partition):
        return
    del broker.replicas[topic_partition]
    broker.lost_since = max(broker.lost_since, *world.epochs[broker_id])
    _crash(world, broker_id, 0)
    start_broker(world, broker_id)


def _end_process(world: ControllerWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    broker.end_process()
    world.processes[broker_id] += 1
    host = world.hosts.get(broker_id)
    if host is not None:
        host.die()
        if host.session.writes:
            host.session.serve()
    frames, world.frames[broker_id] = world.frames[broker_id], []
    for frame in frames:
        frame.link.close("the broker has died")


def _lose_records(world: ControllerWorld, broker: ScriptedBroker) -> None:
    """Take a broker's unsynced records, where the other members keep the guarantee of E6."""
    reference = world.reference
    for topic_partition, replica in broker.replicas.items():
        key = (replica.topic_id, topic_partition.partition)
        committed = reference.committed.get(key, [])
        kept = max(replica.synced, 0)
        if kept < len(committed) and not _may_lose(world, broker.broker_id, topic_partition):
            kept = len(committed)
        if kept < len(replica.log):
            del replica.log[kept:]
            broker.lost_since = max(broker.lost_since, *world.epochs[broker.broker_id])


def _may_lose(world: ControllerWorld, broker_id: int, topic_partition: TopicPartition) -> bool:
    """Return whether enough other members keep all committed records (E6)."""
    state = world.reference.states.get(topic_partition)
    if state is None:
        return True
    key = world.reference.key(topic_partition)
    committed = world.reference.committed.get(key, [])
    members = (*state.isr, *state.elr)
    whole = [
        each
        for each in members
        if each != broker_id
        and world.log(each, topic_partition, key[0])[: len(committed)] == committed
    ]
    replicas = world.reference.topics[topic_partition.topic].partitions[key[1]]
    targets = world.reference.targets.get(topic_partition, ())
    counts = [len(replicas), len(members), *map(len, targets)]
    minimum = min(world.least_minimums[topic_partition.topic], *counts)
    return len(members) - len(whole) < minimum


def _down(world: ControllerWorld) -> list[Arguments]:
    return [(broker.broker_id,) for broker in world.brokers.values() if not broker.is_up]


@controller_step("start", 8, _down, "broker {0} starts")
def _start(world: ControllerWorld, broker_id: int) -> None:
    start_broker(world, broker_id)


def start_broker(world: ControllerWorld, broker_id: int) -> None:
    """Start a broker's process; the store has ended its former session."""
    broker = world.brokers[broker_id]
    end_session(world, broker_id)
    broker.is_up = True
    if broker_id in HOSTS:
        world.new_host(broker_id)
    world.register(broker_id)
    if broker_id in HOSTS:
        world.hosts[broker_id].start(broker.broker_epoch)


@controller_step(
    "stop",
    1,
    lambda world: [
        (broker.broker_id,) for broker in world.up() if broker.broker_epoch != NO_BROKER_EPOCH
    ],
    "broker {0} stops cleanly",
    "crashes",
)
def _stop(world: ControllerWorld, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    for replica in broker.replicas.values():
        replica.synced = len(replica.log)
    broker.clean_epochs = broker.clean_epochs.followed_by(broker.latest_epoch)
    end_session(world, broker_id)
    _end_process(world, broker_id)


@controller_step("time", 6, lambda world: [(30,), (150,), (1_100,)], "{0} ms pass")
def _time(world: ControllerWorld, delay_ms: int) -> None:
    world.clock.advance(delay_ms)


@controller_step("long", 1, lambda world: [(6_000,)], "{0} ms pass")
def _long(world: ControllerWorld, delay_ms: int) -> None:
    world.clock.advance(delay_ms)
