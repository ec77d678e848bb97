"""Sequences of faults that no single draw brings about; drawn too in all that they leave open.

A profile plays one of them over and over, beside the kinds that it draws. Each yields how many ms
to wait, and stops where it stands when the faults end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.sim.checkers.published import PublishedPartition
from tidelog.sim.disk import Loss
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.stage import Scenario, Stage
from tidelog.sim.faults.store import (
    expire_controller,
    replace_controller,
    strike_next_write,
)

#: A controller in office is lost at its first, second, ... write; more are seldom made in a run.
MAX_CONTROLLER_WRITE: Final = 12


def _healthy_partition(stage: Stage) -> PublishedPartition | None:
    states = [
        state
        for state in stage.cluster.published.partitions.values()
        if len(state.isr) == len(stage.cluster.brokers) and state.leader in state.isr
    ]
    return stage.draw.choice(states) if states else None


def _push_out(stage: Stage, state: PublishedPartition, followers: list[int]) -> None:
    """Keep followers from fetching from the leader."""
    leader = stage.cluster.brokers[state.leader].node.host
    for follower in followers:
        host = stage.cluster.brokers[follower].node.host
        stage.cluster.world.network.cut(leader, host)
        stage.note(f"push {host} out: {leader}>{host} cut")


def _take_back(stage: Stage, state: PublishedPartition, followers: list[int]) -> None:
    leader = stage.cluster.brokers[state.leader].node.host
    for follower in followers:
        stage.cluster.world.network.heal(leader, stage.cluster.brokers[follower].node.host)


@scenario
def last_replica_standing(stage: Stage) -> Scenario:
    """Both followers leave the ISR; the last member loses unsynced data and leads again."""
    cluster = stage.cluster
    lag_ms = cluster.settings.lag_time_max_ms
    while True:
        yield stage.draw.uniform(200, 1_000)
        state = _healthy_partition(stage)
        if state is None:
            continue
        followers = [member for member in state.isr if member != state.leader]
        stage.count("scenario")
        _push_out(stage, state, followers)
        for _ in range(20):
            yield lag_ms / 8
            if cluster.published.partitions[state.key].isr == (state.leader,):
                break
        cluster.brokers[state.leader].crash(Loss.ALL_UNSYNCED, "the last member dies")
        yield stage.draw.uniform(500, 2_000)
        _take_back(stage, state, followers)
        yield 3_000


@scenario
def brokers_catch_up(stage: Stage) -> Scenario:
    """A broker that is not the controller dies and is back, and cannot fetch from one leader for a
    while: what others lead for it waits until it has caught up (V46)."""
    cluster = stage.cluster
    while True:
        yield stage.draw.uniform(300, 1_500)
        controller = stage.controller()
        others = [
            one
            for one in cluster.brokers.values()
            if one is not controller and one.life is not None
        ]
        if controller is None or len(others) < 2:
            continue
        returning, leader = stage.draw.sample(others, 2)
        life = returning.incarnation
        if not stage.crash(returning, "dies and has to catch up"):
            continue
        stage.count("scenario")
        for _ in range(100):
            yield 50
            if returning.incarnation != life:
                break
        link = (stage.draw.choice((leader, controller)).node.host, returning.node.host)
        cluster.world.network.cut(*link)
        stage.note(f"{link[1]} does not hear {link[0]}")
        yield stage.draw.uniform(300, 3_500)
        cluster.world.network.heal(*link)


@scenario
def left_behind(stage: Stage) -> Scenario:
    """Followers fall out of the ISR, what is written goes on without them, and the last member
    dies: where that is allowed, one of them leads with less than was committed (V13)."""
    cluster = stage.cluster
    while True:
        yield stage.draw.uniform(200, 1_000)
        state = _healthy_partition(stage)
        if state is None:
            continue
        followers = [member for member in state.isr if member != state.leader]
        stage.count("scenario")
        _push_out(stage, state, followers)
        now = state
        for _ in range(100):
            yield 50
            now = cluster.published.partitions[state.key]
            if now.isr == (state.leader,) or now.leader != state.leader:
                break
        if now.isr == (state.leader,):
            yield stage.draw.uniform(0, 500)
            stage.crash(cluster.brokers[state.leader], "the last member in sync dies")
            yield stage.draw.uniform(100, 1_000)
        _take_back(stage, state, followers)
        yield stage.draw.uniform(500, 2_500)


#: What a node holds while it cannot be read.
_NONSENSE: Final = b"{"


def _scribbling(stage: Stage, what: str) -> tuple[Callable[[str], None], Callable[[], None]]:
    """How somebody writes nonsense into a node, one at a time, and how it is as it was again: told
    to, and in any case at the end."""
    store = stage.cluster.store
    #: Nodes that hold nonsense, and what they held: one at most.
    scribbled: list[tuple[str, bytes]] = []

    def scribble(path: str) -> None:
        scribbled.append((path, store.write_from_outside(path, _NONSENSE)))
        stage.note(f"{path} holds nonsense")

    def restore() -> None:
        """The controller finds out, or the next one does."""
        if scribbled:
            path, data = scribbled.pop()
            node = store.tree.get(path)
            if node is not None and node.data == _NONSENSE:  # else it is of another incarnation
                store.write_from_outside(path, data)
            stage.note(f"the {what} is as it was")
            if stage.draw.random() < 0.5:
                replace_controller(stage, stage.cluster.published.controller_epoch)

    stage.at_end(restore)
    return scribble, restore


@scenario
def unreadable_topic(stage: Stage) -> Scenario:
    """Somebody writes nonsense into a topic's node, and a new controller reads it."""
    cluster = stage.cluster
    scribble, restore = _scribbling(stage, "topic's node")
    while True:
        yield stage.draw.uniform(300, 1_500)
        topics = [name for name in cluster.published.topics if not name.startswith("__")]
        if not topics or cluster.health():
            continue
        stage.count("scenario")
        path = layout.topic_path(stage.draw.choice(topics))
        scribble(path)
        expire_controller(stage)
        yield stage.draw.uniform(500, 2_500)
        restore()
        yield 3_000


@scenario
def unreadable_partition(stage: Stage) -> Scenario:
    """Somebody writes nonsense into a partition's state node, and a new controller reads it, or the
    one in office runs into it; brokers restart meanwhile."""
    cluster = stage.cluster
    scribble, restore = _scribbling(stage, "partition's state node")
    while True:
        yield stage.draw.uniform(300, 1_500)
        state = _healthy_partition(stage)
        if state is None or cluster.health():
            continue
        topics = cluster.published.topics.items()
        names = [name for name, topic in topics if topic.topic_id == state.key.topic_id]
        if not names or names[0].startswith("__"):
            continue
        stage.count("scenario")
        path = layout.partition_state_path(TopicPartition(names[0], state.key.partition))
        scribble(path)
        if stage.draw.random() < 0.7:
            expire_controller(stage)
        yield stage.draw.uniform(200, 1_000)
        if stage.draw.random() < 0.5:
            stage.crash(cluster.brokers[state.leader], "the leader of what cannot be read dies")
        yield stage.draw.uniform(500, 2_500)
        restore()
        yield 3_000


@scenario
def controller_lost_at_each_write(stage: Stage) -> Scenario:
    """The controller is lost before its first write in office, the next one after its first, then
    before and after the second, and so on: an enumeration, as far as the time goes."""
    cluster = stage.cluster
    turn = stage.draw.randrange(2 * MAX_CONTROLLER_WRITE)
    while True:
        yield 10
        controller = stage.controller()
        if controller is None:
            continue
        epoch = cluster.published.controller_epoch
        number, is_applied = 1 + turn // 2 % MAX_CONTROLLER_WRITE, turn % 2 == 1
        if not strike_next_write(stage, controller, number, is_applied=is_applied):
            continue
        turn += 1
        stage.count("scenario")
        life = controller.incarnation
        for _ in range(60):
            yield 50
            if cluster.published.controller_epoch != epoch or controller.incarnation != life:
                break
