"""Scenarios: sequences of faults that independent faults seldom bring about, with random details.

A profile plays one scenario repeatedly, in addition to its independent faults. A scenario yields
the time in ms to wait before its next step; it is stopped when the run's faults end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import FaultContext, Scenario, in_time, later_in_time
from tidelog.sim.faults.kinds import scenario, scenario_of_partition, scenario_of_rounds
from tidelog.sim.faults.store import expire_controller, replace_controller, strike_next_write
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.sim_broker import SimBroker

#: Number of the last write of its term at which the scenario `controller_lost_at_each_write`
#: crashes a controller; most controllers write less often.
MAX_CONTROLLER_WRITE: Final = 12
#: Interval in ms of the checks whether a broker has stopped, and of the later checks whether it is
#: back.
_LOOK_MS: Final = 25.0


@scenario_of_partition(200, 1_000)
def last_replica_standing(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Push both followers out of the ISR; the leader, the last member, loses unsynced data and
    leads again.
    """
    cluster = context.cluster
    lag_ms = cluster.settings.lag_time_max_ms
    followers = [member for member in state.isr if member != state.leader]
    context.count("scenario")
    context.push_out(state.leader, followers)
    partitions = cluster.published.partitions
    yield from later_in_time(lambda: partitions[state.key].isr == (state.leader,), lag_ms / 8, 20)
    cluster.brokers[state.leader].crash(Loss.ALL_UNSYNCED, "the last member dies")
    yield context.draw.uniform(500, 2_000)
    context.take_back(state.leader, followers)
    yield 3_000


@scenario_of_partition(300, 1_500)
def every_member_ends(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Stop all members of a partition together; one of them loses its power (E6).

    The other members are killed, or only their sessions expire. Sometimes a follower leaves the ISR
    before the members stop.
    """
    cluster = context.cluster
    members = context.draw.sample(state.isr, len(state.isr))
    context.count("scenario")
    pushed = [member for member in members if member != state.leader]
    pushed = pushed[: context.draw.choice((0, 0, 1, 2))]
    context.push_out(state.leader, pushed)
    if pushed:
        partitions, look_ms = cluster.published.partitions, cluster.settings.lag_time_max_ms / 8
        yield from later_in_time(
            lambda: not any(each in partitions[state.key].isr for each in pushed), look_ms, 20
        )
    loser = cluster.brokers[members[0]]
    for member in members[1:]:
        broker = cluster.brokers[member]
        if context.draw.random() < 0.6:
            broker.crash(Loss.NONE, "is killed with all others")
        else:
            context.expire(broker)
    loser.crash(Loss.ALL_UNSYNCED, "the power fails while all others end")
    for _ in range(context.draw.choice((0, 1, 2))):
        # End the session of the broker that lost its power, which may have restarted. Its earlier
        # broker epochs (E7) then include one under which it was never in sync.
        yield context.draw.uniform(100, 1_000)
        context.expire(loser)
    yield context.draw.uniform(500, 3_000)
    context.take_back(state.leader, pushed)
    yield context.draw.uniform(1_000, 3_000)


@scenario_of_partition(300, 1_500)
def older_disk_returns(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Restore an older copy of a broker's disk; the copy was made after a clean shutdown (E3).

    After the copy was taken, the broker runs with the original disk and is in sync. Later all other
    brokers are killed without data loss, and the broker starts with the older copy.
    """
    cluster = context.cluster
    broker = cluster.brokers[context.draw.choice(state.isr)]
    broker.stop(Loss.NONE)
    has_stopped = in_time(lambda: broker.life is None and broker.stopped_cleanly, _LOOK_MS, 80)
    if not (yield from has_stopped):
        return
    disk = context.any_disk(broker)
    copy = disk.contents()
    broker.start()
    yield from in_time(partial(context.is_member, state.key, broker.node_id), _LOOK_MS, 80)
    yield context.draw.uniform(100, 1_000)
    if not cluster.budget.may_fail(broker.node_id, loses_data=True):
        return
    context.count("scenario")
    broker.crash(Loss.ALL_UNSYNCED, "an older copy of its disk is put back")
    disk.put_back(copy)
    for other in context.others(broker):
        other.crash(Loss.NONE, "is killed with all others")
    broker.start()
    yield context.draw.uniform(500, 3_000)


@scenario_of_rounds(300, 1_500)
def brokers_catch_up(context: FaultContext) -> Scenario:
    """Restart a broker that is not the controller, and keep it from fetching from one leader.

    The broker cannot fetch from this leader for a while after the restart. It must lead its
    preferred partitions again only after it has caught up (V46).
    """
    controller = context.controller()
    if controller is None:
        return
    others = [broker for broker in context.others(controller) if broker.life is not None]
    if len(others) < 2:
        return
    returning, leader = context.draw.sample(others, 2)
    life = returning.incarnation
    if not context.crash(returning, "dies and has to catch up"):
        return
    context.count("scenario")
    yield from later_in_time(lambda: returning.incarnation != life, 50, 100)
    link = (context.draw.choice((leader, controller)).node.host, returning.node.host)
    context.cut([link])
    context.note(f"{link[1]} does not hear {link[0]}")
    yield context.draw.uniform(300, 3_500)
    context.heal([link])


@scenario_of_partition(200, 1_000)
def left_behind(context: FaultContext, state: PublishedPartition) -> Scenario:
    """Push both followers out of the ISR in turn, then kill the leader and the second follower.

    The first follower to leave the ISR lacks records that were committed without it. The second
    follower, which leaves an ISR of two, becomes an eligible replica (E1), so it has all committed
    records, like the leader. If unclean election is allowed, the first follower then becomes the
    leader (V13).
    """
    cluster = context.cluster
    followers = [member for member in state.isr if member != state.leader]
    context.count("scenario")
    for follower in followers:
        context.push_out(state.leader, [follower])
        yield from later_in_time(partial(_has_left, context, state, follower), 50, 100)
    if cluster.published.partitions[state.key].isr == (state.leader,):
        yield context.draw.uniform(0, 500)
        for member in (state.leader, followers[-1]):
            context.crash(cluster.brokers[member], "the last members end")
        yield context.draw.uniform(100, 1_000)
    context.take_back(state.leader, followers)
    yield context.draw.uniform(500, 2_500)


def _has_left(context: FaultContext, state: PublishedPartition, follower: int) -> bool:
    now = context.cluster.published.partitions[state.key]
    return follower not in now.isr or now.leader != state.leader


#: Content of an unreadable store node.
_NONSENSE: Final = b"{"


def _scribbling(
    context: FaultContext, what: str
) -> tuple[Callable[[str], None], Callable[[], None]]:
    """Return two functions: one writes unreadable content into a store node, the other restores the
    node.

    At most one store node is unreadable at a time. The node is restored at the latest when the
    faults end.
    """
    store = context.cluster.store
    #: The unreadable store node and its former content; empty if no node is unreadable.
    scribbled: list[tuple[str, bytes]] = []

    def scribble(path: str) -> None:
        scribbled.append((path, store.write_from_outside(path, _NONSENSE)))
        context.note(f"{path} holds nonsense")

    def restore() -> None:
        """Restore the store node; sometimes, let a new controller be elected, which reads the
        node.
        """
        if scribbled:
            path, data = scribbled.pop()
            node = store.tree.get(path)
            # leave a store node that another client has written since
            if node is not None and node.data == _NONSENSE:
                store.write_from_outside(path, data)
            context.note(f"the {what} is as it was")
            if context.draw.random() < 0.5:
                replace_controller(context, context.cluster.published.controller_epoch)

    context.at_end(restore)
    return scribble, restore


@scenario
def unreadable_topic(context: FaultContext) -> Scenario:
    """Make a topic's node unreadable, and let a new controller read it."""
    cluster = context.cluster
    scribble, restore = _scribbling(context, "topic's node")
    while True:
        yield context.draw.uniform(300, 1_500)
        topics = [name for name in cluster.published.topics if not name.startswith("__")]
        if not topics or cluster.health():
            continue
        context.count("scenario")
        path = layout.topic_path(context.draw.choice(topics))
        scribble(path)
        expire_controller(context)
        yield context.draw.uniform(500, 2_500)
        restore()
        yield 3_000


@scenario
def unreadable_partition(context: FaultContext) -> Scenario:
    """Make a partition's state node unreadable, and let a controller read it.

    Either a new controller reads the node, or the current controller does. Brokers restart
    meanwhile.
    """
    cluster = context.cluster
    scribble, restore = _scribbling(context, "partition's state node")
    while True:
        yield context.draw.uniform(300, 1_500)
        state = context.healthy_partition()
        if state is None or cluster.health():
            continue
        topics = cluster.published.topics.items()
        names = [name for name, topic in topics if topic.topic_id == state.key.topic_id]
        if not names or names[0].startswith("__"):
            continue
        context.count("scenario")
        path = layout.partition_state_path(TopicPartition(names[0], state.key.partition))
        scribble(path)
        if context.draw.random() < 0.7:
            expire_controller(context)
        yield context.draw.uniform(200, 1_000)
        if context.draw.random() < 0.5:
            context.crash(cluster.brokers[state.leader], "the unreadable partition's leader dies")
        yield context.draw.uniform(500, 2_500)
        restore()
        yield 3_000


@scenario
def controller_lost_at_each_write(context: FaultContext) -> Scenario:
    """Crash the controller before and after its first write, its second write, and so on.

    The scenario begins with a random write, and goes on with the next write until the faults
    end.
    """
    cluster = context.cluster
    turn = context.draw.randrange(2 * MAX_CONTROLLER_WRITE)
    while True:
        yield 10
        controller = context.controller()
        if controller is None:
            continue
        epoch = cluster.published.controller_epoch
        number, is_applied = 1 + turn // 2 % MAX_CONTROLLER_WRITE, turn % 2 == 1
        if not strike_next_write(context, controller, number, is_applied=is_applied):
            continue
        turn += 1
        context.count("scenario")
        yield from later_in_time(
            partial(_has_changed, context, controller, epoch, controller.incarnation), 50, 60
        )


def _has_changed(context: FaultContext, controller: SimBroker, epoch: int, life: int) -> bool:
    published = context.cluster.published
    return published.controller_epoch != epoch or controller.incarnation != life
