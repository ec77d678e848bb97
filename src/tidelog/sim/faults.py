"""Faults drawn from the seed: which kinds a run has, how often, whom they strike, for how long.

Every seed draws its own subset of kinds and its own rates. A profile biases them, so that what is
rare comes often; `last_replica_standing` adds a scenario, drawn too in all that it leaves open.
What a power loss may take is the cluster's business (the fault budget).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.metadata import layout
from tidelog.sim.checkers.published import PublishedPartition
from tidelog.sim.cluster import STORE_HOST, STORE_LATENCY_MS, Cluster, SimBroker
from tidelog.sim.disk import Loss
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.node import Strike

#: A scenario yields how many ms to wait.
Scenario = Generator[float, None, None]

_STRIKE_PREFIXES: Final = (
    "", "", "files.", "files.pwritev", "files.fsync", "files.rename", "files.truncate",
    "network.send", "store", "lane.",
)  # fmt: skip
_LOSSES: Final = (Loss.NONE, Loss.NONE, Loss.UNSYNCED, Loss.UNSYNCED, Loss.ALL_UNSYNCED)
#: Weight of each kind before a seed draws its own.
_DEFAULT_WEIGHTS: Final[Mapping[str, float]] = {
    "strike": 5.0,
    "crash_leader": 3.0,
    "crash_any": 2.0,
    "crash_controller": 1.5,
    "stop": 1.5,
    "cut_one_way": 2.0,
    "cut_two_ways": 2.0,
    "isolate": 1.5,
    "cut_store": 1.5,
    "slow_link": 2.0,
    "pause": 2.5,
    "expire_session": 3.0,
    "lose_answer": 2.0,
    "lose_request": 1.0,
    "slow_disk": 1.5,
    "reset_connections": 1.5,
}
#: Kinds that only some profiles have.
_SPECIAL_KINDS: Final = ("late_roles", "expire_controller", "elect_preferred")


@dataclass(frozen=True, slots=True)
class Profile:
    """A named bias of the faults."""

    name: str
    weights: Mapping[str, float] = field(default_factory=lambda: _DEFAULT_WEIGHTS)
    #: Share of the kinds that a seed leaves out.
    left_out: float = 0.35
    mean_interval_ms: tuple[int, int] = (250, 1_100)
    #: Ranges of the time that a dead broker stays down; a seed draws one.
    restart_ms: tuple[tuple[int, int], ...] = ((20, 400), (20, 6_000), (200, 2_500))
    #: How long the volatile topic lives until it is deleted and made anew.
    topic_life_ms: tuple[int, int] = (2_000, 9_000)
    #: Share of the seeds in which that is done at all.
    recreates: float = 0.7
    #: Share of its topics whose replicas are chosen, alive or not; others wait for all brokers.
    chosen_replicas: float = 0.5
    #: Name of a scenario to run over and over beside the drawn faults.
    scenario: str = ""
    keeps_budget: bool = True
    #: What its brokers are configured with, apart from the simulator's own settings.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Whether its topics are compacted.
    compacted: bool = False
    #: Whether a topic is altered and given partitions all the time.
    churns: bool = False
    #: What it is known to show and nobody has mended yet: searches over all profiles leave it out.
    known_defect: str = ""
    #: Range of the delays of messages between nodes and the store.
    store_latency_ms: tuple[float, float] = STORE_LATENCY_MS


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("default"),
        # Brokers are away while a topic is deleted and made anew.
        Profile(
            "topic_churn",
            weights={"crash_any": 5.0, "crash_leader": 1.0, "strike": 1.0, "expire_session": 1.0},
            mean_interval_ms=(500, 1_500),
            restart_ms=((800, 4_000),),
            topic_life_ms=(500, 2_000),
            recreates=1.0,
            chosen_replicas=1.0,
        ),
        # Links are cut while topics are deleted and made anew: commands are repeated, and the first
        # of them arrive when the link is whole again.
        Profile(
            "late_commands",
            weights={"cut_two_ways": 4.0, "cut_one_way": 4.0, "isolate": 2.0},
            left_out=0.0,
            mean_interval_ms=(200, 600),
            topic_life_ms=(300, 1_200),
            recreates=1.0,
        ),
        # Brokers lose data and are back before the controller has heard of their death.
        Profile(
            "quick_restarts",
            weights={"crash_leader": 3.0, "crash_any": 2.0, "cut_store": 4.0, "slow_link": 1.0},
            left_out=0.0,
            mean_interval_ms=(80, 250),
            restart_ms=((20, 200),),
        ),
        # Leaders die while followers catch up batch by batch: some end between the high watermark
        # that the new leader knows of and what was committed.
        Profile(
            "slow_catch_up",
            weights={"crash_leader": 4.0, "crash_any": 2.0, "slow_link": 2.0},
            left_out=0.0,
            mean_interval_ms=(200, 600),
            restart_ms=((20, 400), (200, 1_500)),
            properties={"replica.fetch.max.bytes": "300"},
        ),
        # Leaders die while the links to their followers are slow or cut: what they told clients
        # before their followers had it is lost.
        Profile(
            "slow_followers",
            weights={"slow_link": 6.0, "cut_two_ways": 3.0, "crash_leader": 3.0},
            left_out=0.0,
            mean_interval_ms=(100, 400),
            restart_ms=((200, 1_500),),
        ),
        # Small segments of few keys, which the cleaner is at all the time.
        Profile(
            "compaction",
            mean_interval_ms=(300, 1_100),
            properties={
                "log.segment.bytes": "1500",
                "offsets.topic.segment.bytes": "1500",
                "log.segment.delete.delay.ms": "300",
                "log.cleaner.backoff.ms": "40",
                "log.cleaner.io.buffer.size": "1024",
                "log.cleaner.dedupe.buffer.size": "2048",
                "log.cleaner.min.cleanable.ratio": "0.01",
                "log.cleaner.delete.retention.ms": "1000",
            },
            compacted=True,
        ),
        # Configurations and numbers of partitions change while brokers miss the notifications.
        Profile(
            "topic_changes",
            weights={
                "crash_controller": 3.0,
                "crash_any": 3.0,
                "cut_store": 3.0,
                "expire_session": 3.0,
                "strike": 3.0,
                "lose_answer": 3.0,
            },
            left_out=0.2,
            churns=True,
        ),
        # Leaders move on and back while some brokers hear of it late, and go on as they were told.
        Profile(
            "late_roles",
            weights={
                "late_roles": 5.0,
                "elect_preferred": 5.0,
                "expire_session": 4.0,
                "expire_controller": 2.0,
                "slow_link": 4.0,
                "cut_one_way": 1.0,
            },
            left_out=0.0,
            mean_interval_ms=(60, 250),
            restart_ms=((20, 400), (200, 1_500)),
        ),
        # Changes of the ISR take their time, or come late, while followers fall behind and return.
        Profile(
            "late_isr",
            weights={
                "slow_link": 5.0,
                "cut_one_way": 4.0,
                "cut_two_ways": 2.0,
                "crash_any": 1.0,
                "expire_session": 1.0,
            },
            left_out=0.0,
            mean_interval_ms=(80, 300),
            restart_ms=((20, 60), (200, 1_500)),
            properties={"replica.fetch.max.bytes": "300"},
            store_latency_ms=(5.0, 150.0),
        ),
        # The store takes its time, so that what is asked of the controller waits, while brokers
        # come and go.
        Profile(
            "slow_store",
            weights={
                "crash_any": 4.0,
                "crash_leader": 1.0,
                "slow_link": 4.0,
                "cut_one_way": 2.0,
                "reset_connections": 2.0,
            },
            left_out=0.0,
            mean_interval_ms=(80, 300),
            restart_ms=((20, 200), (20, 600)),
            store_latency_ms=(20.0, 250.0),
        ),
        # Controllers are deposed with writes on their way to a store that takes its time.
        Profile(
            "controller_moves",
            weights={
                "expire_controller": 6.0,
                "expire_session": 3.0,
                "crash_leader": 2.0,
                "slow_link": 1.0,
            },
            left_out=0.0,
            mean_interval_ms=(80, 300),
            restart_ms=((20, 400),),
            store_latency_ms=(2.0, 80.0),
        ),
        # Answers of the store are lost: what a controller has written is not known.
        Profile(
            "lost_answers",
            weights={
                "lose_answer": 6.0,
                "lose_request": 6.0,
                "crash_leader": 2.0,
                "expire_session": 2.0,
                "slow_link": 1.0,
            },
            left_out=0.0,
            mean_interval_ms=(60, 250),
            restart_ms=((20, 400), (200, 1_500)),
        ),
        # A topic's node holds nonsense for a while, and controllers come and go meanwhile (V35).
        Profile(
            "unreadable_topic",
            weights={"crash_any": 1.0, "slow_link": 1.0},
            mean_interval_ms=(1_500, 3_000),
            scenario="unreadable_topic",
            known_defect="now and then a topic that is readable again takes no records",
        ),
        Profile(
            "last_replica_standing",
            weights={"slow_link": 1.0},
            mean_interval_ms=(2_000, 5_000),
            scenario="last_replica_standing",
            keeps_budget=False,
            known_defect="needs eligible leader replicas (rules E1, E2, E4)",
        ),
    )
}


class Faults:
    """Plays the faults of one run."""

    def __init__(
        self, cluster: Cluster, client_hosts: list[str], draw: random.Random, profile: Profile
    ) -> None:
        self.cluster = cluster
        self.profile = profile
        self.counts: dict[str, int] = {}
        self._draw = draw
        self._hosts = [broker.node.host for broker in cluster.brokers.values()] + client_hosts
        self._active = False
        self._mean_interval_ms = draw.randrange(*profile.mean_interval_ms)
        self._restart_ms = draw.choice(profile.restart_ms)
        self._weights = {
            kind: weight * draw.uniform(0.3, 1.7)
            for kind, weight in profile.weights.items()
            if draw.random() >= profile.left_out
        } or {"strike": 1.0}
        cluster.keeps_budget = profile.keeps_budget
        #: A topic's node that holds nonsense, and what it held.
        self._scribbled: tuple[str, bytes] | None = None
        cluster.on_broker_death = self._restart_later

    # Beginning and end

    def begin(self) -> None:
        """Let faults happen from now on."""
        self._active = True
        self._later(self._draw.uniform(0, self._mean_interval_ms), self._next)
        if self.profile.scenario:
            self._play(_SCENARIOS[self.profile.scenario](self))

    def end(self) -> None:
        """No more faults: everything is healed, every broker is up."""
        self._active = False
        cluster = self.cluster
        cluster.world.network.heal_everything()
        for broker in cluster.brokers.values():
            for disk in (broker.logs.disk,):
                disk.slow = False
            if broker.life is not None:
                broker.life.plan_strike(None)
                broker.life.resume()
        self._restore_topic()
        cluster.start()
        cluster.world.note(-1, "faults", "ended")

    def _next(self) -> None:
        if not self._active:
            return
        kinds = list(self._weights)
        kind = self._draw.choices(kinds, [self._weights[name] for name in kinds])[0]
        self._count(kind)
        _KINDS[kind](self)
        self._later(self._draw.expovariate(1.0) * self._mean_interval_ms, self._next)

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.cluster.world.scheduler.after(int(delay_ms * NS_PER_MS), None, callback)

    def _note(self, text: str) -> None:
        self.cluster.world.note(-1, "fault", text)

    def _play(self, scenario: Scenario) -> None:
        """Run a scenario step by step while faults happen."""
        if not self._active:
            return
        try:
            delay_ms = next(scenario)
        except StopIteration:
            return
        self._later(delay_ms, lambda: self._play(scenario))

    # Brokers that fall

    def _restart_later(self, broker: SimBroker) -> None:
        def restart() -> None:
            if broker.life is None:
                broker.start()

        self._later(self._draw.uniform(*self._restart_ms), restart)

    def _any_broker(self) -> SimBroker | None:
        """A broker that may fall: seldom one of the last."""
        up = [broker for broker in self.cluster.brokers.values() if broker.life is not None]
        if not up or (len(up) <= 1 and self._draw.random() < 0.8):
            return None
        return self._draw.choice(up)

    def leader(self) -> SimBroker | None:
        """The leader of some partition."""
        states = [
            state
            for state in self.cluster.published.partitions.values()
            if state.leader in self.cluster.brokers
            and self.cluster.brokers[state.leader].life is not None
        ]
        return self.cluster.brokers[self._draw.choice(states).leader] if states else None

    def crash(self, broker: SimBroker | None, reason: str) -> None:
        """Kill a broker, or cut its power."""
        if broker is not None and self._any_broker() is not None:
            broker.crash(self._draw.choice(_LOSSES), reason)

    def _strike(self) -> None:
        broker = self._draw.choice((self._any_broker(), self.leader()))
        if broker is not None and broker.life is not None:
            strike = Strike(
                self._draw.randrange(1, self._draw.choice((4, 40, 400))),
                self._draw.choice(_LOSSES),
                self._draw.choice(_STRIKE_PREFIXES),
            )
            self._note(f"strike {broker.node_id} {strike.countdown} {strike.prefix}")
            broker.life.plan_strike(strike)

    def _crash_leader(self) -> None:
        self.crash(self.leader(), "a leader crashes")

    def _crash_any(self) -> None:
        self.crash(self._any_broker(), "crashes")

    def _controller(self) -> SimBroker | None:
        for broker in self.cluster.brokers.values():
            if broker.broker is not None and broker.broker.controller.is_active:
                return broker
        return None

    def _crash_controller(self) -> None:
        controller = self._controller()
        if controller is not None:
            self.crash(controller, "the controller crashes")

    def _stop(self) -> None:
        broker = self._any_broker()
        if broker is not None:
            self._note(f"stop {broker.node_id}")
            broker.stop(self._draw.choice(_LOSSES))

    # Links

    def _cut_for_a_while(self, links: list[tuple[str, str]]) -> None:
        network = self.cluster.world.network
        for source, target in links:
            network.cut(source, target)
        self._note("cut " + " ".join(f"{source}>{target}" for source, target in links))

        def heal() -> None:
            for source, target in links:
                network.heal(source, target)
            self._note("healed " + " ".join(f"{source}>{target}" for source, target in links))

        self._later(self._draw.choice((60, 600, 4_000)) * self._draw.uniform(0.5, 1.5), heal)

    def _two_hosts(self) -> tuple[str, str]:
        one = self._draw.choice(list(self.cluster.brokers.values())).node.host
        other = self._draw.choice([host for host in self._hosts if host != one])
        return one, other

    def _cut_one_way(self) -> None:
        one, other = self._two_hosts()
        self._cut_for_a_while([self._draw.choice(((one, other), (other, one)))])

    def _cut_two_ways(self) -> None:
        one, other = self._two_hosts()
        self._cut_for_a_while([(one, other), (other, one)])

    def _isolate(self) -> None:
        broker = self._any_broker()
        if broker is None:
            return
        host = broker.node.host
        others = [other for other in self._hosts if other != host]
        with_store = self._draw.random() < 0.5
        if with_store:
            others.append(STORE_HOST)
        self._cut_for_a_while([pair for other in others for pair in ((host, other), (other, host))])

    def _late_roles(self) -> None:
        """What the controller tells one broker comes late; others hear of it at once."""
        controller = self._controller()
        if controller is None:
            return
        others = [one for one in self.cluster.brokers.values() if one is not controller]
        source, target = controller.node.host, self._draw.choice(others).node.host
        late_ms = self._draw.choice((150, 500, 1_200))
        network = self.cluster.world.network
        network.slow_down(source, target, late_ms * NS_PER_MS, late_ms * NS_PER_MS)
        self._note(f"roles come late: {source}>{target} {late_ms} ms")
        self._later(self._draw.uniform(500, 3_000), lambda: network.slow_down(source, target, 0, 0))

    def _elect_preferred(self) -> None:
        """An administrator asks for preferred leaders, as the old tool does (V8)."""
        path = layout.PREFERRED_REPLICA_ELECTION
        asked = [
            {"topic": topic.name, "partition": partition}
            for topic in self.cluster.published.topics.values()
            for partition in topic.assignment
        ]
        if asked and self.cluster.store.tree.get(path) is None:
            self._note("preferred leaders are asked for")
            content = json.dumps({"version": 1, "partitions": asked})
            self.cluster.store.write_from_outside(path, content.encode())

    def _cut_store(self) -> None:
        host = self._draw.choice(list(self.cluster.brokers.values())).node.host
        self._cut_for_a_while([(host, STORE_HOST)])

    def _slow_link(self) -> None:
        network = self.cluster.world.network
        one, other = self._two_hosts()
        extra_ms = self._draw.choice((5, 60, 400))
        network.slow_down(one, other, extra_ms * NS_PER_MS, extra_ms * NS_PER_MS)
        self._note(f"slow {one}>{other} {extra_ms} ms")
        self._later(self._draw.uniform(200, 4_000), lambda: network.slow_down(one, other, 0, 0))

    def _reset_connections(self) -> None:
        broker = self._any_broker()
        if broker is not None and broker.life is not None:
            self._note(f"reset connections of {broker.node_id}")
            self.cluster.world.network.reset_connections(broker.life)

    # Time and the store

    def _pause(self) -> None:
        broker = self._any_broker()
        life = None if broker is None else broker.life
        if broker is None or life is None or life.paused:
            return
        pause_ms = self._draw.choice((30, 500, 2_500)) * self._draw.uniform(0.5, 1.5)
        life.pause()

        def resume() -> None:
            silent_too_long = pause_ms >= self.cluster.settings.session_timeout_ms
            if silent_too_long and self._draw.random() < 0.5:
                broker.crash(Loss.NONE, "the watchdog ended it")
            life.resume()

        self._later(pause_ms, resume)

    def _expire_controller(self) -> None:
        self._expire(self._controller())

    def _replace_controller(self, epoch: int) -> None:
        """End the controller's session until another one is elected: some may not be ended."""
        if self.cluster.published.controller_epoch == epoch:
            self._expire_controller()
            self._later(200, lambda: self._replace_controller(epoch))

    def _expire_session(self) -> None:
        self._expire(self._any_broker())

    def _expire(self, broker: SimBroker | None) -> None:
        store = None if broker is None else broker.store
        if store is not None and store.session_id is not None:
            self._note(f"expire the session of broker {broker.node_id if broker else ''}")
            self.cluster.store.expire(store.session_id)

    def _lose_answer(self) -> None:
        broker = self._any_broker()
        if broker is not None and broker.store is not None:
            self._note(f"lose the next answer of the store to {broker.node_id}")
            broker.store.lose_next_answer()

    def _lose_request(self) -> None:
        broker = self._any_broker()
        if broker is not None and broker.store is not None:
            self._note(f"lose the next request of {broker.node_id} to the store")
            broker.store.lose_next_request()

    def _slow_disk(self) -> None:
        broker = self._any_broker()
        if broker is not None:
            disk = broker.logs.disk
            disk.slow = True
            self._note(f"slow disk of {broker.node_id}")

            def quick() -> None:
                disk.slow = False

            self._later(self._draw.uniform(100, 2_500), quick)

    # Scenarios

    def _healthy_partition(self) -> PublishedPartition | None:
        states = [
            state
            for state in self.cluster.published.partitions.values()
            if len(state.isr) == len(self.cluster.brokers) and state.leader in state.isr
        ]
        return self._draw.choice(states) if states else None

    def _push_out(self, state: PublishedPartition, followers: list[int]) -> None:
        """Keep followers from fetching from the leader."""
        leader = self.cluster.brokers[state.leader].node.host
        for follower in followers:
            host = self.cluster.brokers[follower].node.host
            self.cluster.world.network.cut(leader, host)
            self._note(f"push {host} out: {leader}>{host} cut")

    def _take_back(self, state: PublishedPartition, followers: list[int]) -> None:
        leader = self.cluster.brokers[state.leader].node.host
        for follower in followers:
            self.cluster.world.network.heal(leader, self.cluster.brokers[follower].node.host)

    def _isr_of(self, state: PublishedPartition) -> tuple[int, ...]:
        return self.cluster.published.partitions[state.key].isr

    def last_replica_standing(self) -> Scenario:
        """Both followers leave the ISR; the last member loses unsynced data and leads again."""
        lag_ms = self.cluster.settings.lag_time_max_ms
        while True:
            yield self._draw.uniform(200, 1_000)
            state = self._healthy_partition()
            if state is None:
                continue
            followers = [member for member in state.isr if member != state.leader]
            self._count("scenario")
            self._push_out(state, followers)
            for _ in range(20):
                yield lag_ms / 8
                if self._isr_of(state) == (state.leader,):
                    break
            self.cluster.brokers[state.leader].crash(Loss.ALL_UNSYNCED, "the last member dies")
            yield self._draw.uniform(500, 2_000)
            self._take_back(state, followers)
            yield 3_000

    def unreadable_topic(self) -> Scenario:
        """Somebody writes nonsense into a topic's node, and a new controller reads it."""
        cluster = self.cluster
        while True:
            yield self._draw.uniform(300, 1_500)
            topics = [name for name in cluster.published.topics if not name.startswith("__")]
            if not topics or cluster.health():
                continue
            self._count("scenario")
            path = layout.topic_path(self._draw.choice(topics))
            self._scribbled = (path, cluster.store.write_from_outside(path, b"{"))
            self._note(f"{path} holds nonsense")
            self._expire_controller()
            yield self._draw.uniform(500, 2_500)
            self._restore_topic()
            yield 3_000

    def _restore_topic(self) -> None:
        """What was scribbled on is as it was; the next controller reads it."""
        if self._scribbled is not None:
            path, data = self._scribbled
            self._scribbled = None
            if self.cluster.store.tree.get(path) is not None:
                self.cluster.store.write_from_outside(path, data)
            self._note("the topic's node is as it was")
            self._replace_controller(self.cluster.published.controller_epoch)


_KINDS: Final[Mapping[str, Callable[[Faults], None]]] = {
    name: getattr(Faults, f"_{name}") for name in (*_DEFAULT_WEIGHTS, *_SPECIAL_KINDS)
}
_SCENARIOS: Final[Mapping[str, Callable[[Faults], Scenario]]] = {
    "unreadable_topic": Faults.unreadable_topic,
    "last_replica_standing": Faults.last_replica_standing,
}
