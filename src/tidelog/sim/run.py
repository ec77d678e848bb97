"""One run from one seed: a cluster, clients, faults, and what must hold; many runs and their sums.

Phases: the cluster comes up and topics are made; clients work while faults happen; faults end and
within a minute everything must be in sync, acknowledged and read; then what clients were told is
judged as a history. A run ends at its first violation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.history.operations import Operation
from tidelog.sim.checkers.histories import check_history, operations
from tidelog.sim.checkers.logs import LogKey
from tidelog.sim.checkers.storage import check_disk
from tidelog.sim.cluster import Cluster, Settings
from tidelog.sim.faults import KINDS, SCENARIOS, Faults
from tidelog.sim.loop import NS_PER_MS, NS_PER_S
from tidelog.sim.mutants import applied
from tidelog.sim.outside import nothing_outside
from tidelog.sim.profiles import PROFILES, Profile
from tidelog.sim.reductions import Only, Played, parse
from tidelog.sim.results import COUNTERS, RunResult, Totals
from tidelog.sim.seeds import stream
from tidelog.sim.workload.admin import Administrator
from tidelog.sim.workload.churn import Churn
from tidelog.sim.workload.client import ClientNode
from tidelog.sim.workload.consumers import PartitionConsumer
from tidelog.sim.workload.groups import FAMILIES, Committer, GroupMember, GroupPlan
from tidelog.sim.workload.kinds import Churning, Work
from tidelog.sim.workload.producers import Numbers, PartitionProducer
from tidelog.sim.workload.record_churn import COMPACTED_TOPICS
from tidelog.sim.world import CollectorPaused, World

BROKERS: Final = 3
START_LIMIT_NS: Final = 30 * NS_PER_S
#: After the faults everything must be in sync, acknowledged and read within this time.
LIVENESS_LIMIT_NS: Final = 60 * NS_PER_S
_FIRST_CLIENT_ID: Final = 101
_CLIENT_TIMEOUT_MS: Final = 4_000
#: Clients whose links are struck too: the administrator, a writer, the reader, a member.
_CLIENTS_CUT_OFF: Final = (101, 102, 104, 105)
_STEADY_TOPIC: Final = "steady"
_VOLATILE_TOPIC: Final = "volatile"
_CHANGING_TOPIC: Final = "changing"
#: Highest versions that clients speak: a newest one, and old families'.
_PRODUCE_VERSIONS: Final = (None, None, 3, 7, 8, 9)
_FETCH_VERSIONS: Final = (4, 7, 11, 12, 13, 15)
#: What a topic of the simulator is made with.
_TOPIC_CONFIGS: Final = {"min.insync.replicas": "2"}


#: Not a profile: every second seed runs under the default one, the others take turns.
MIXED: Final = "mixed"


def profile_of(seed: int) -> str:
    """The profile of a seed where they are mixed."""
    if seed % 2 == 0:
        return "default"
    others = [name for name, one in PROFILES.items() if not one.known_defect and name != "default"]
    return others[seed // 2 % len(others)]


class SeedRun:
    """The run of one seed."""

    def __init__(
        self,
        seed: int,
        profile: str = "default",
        listener: Callable[[str], None] | None = None,
        limit_events: int | None = None,
        *,
        chosen: Sequence[str] = (),
        only: Only | None = None,
        played: Sequence[Played] = (),
    ) -> None:
        """`chosen`: kinds of faults instead of those of the profile. `only`: what is left of the
        run, of which `played` are the faults when it is whole."""
        self.seed = seed
        self._limit_events = limit_events
        self.profile = _choosing(PROFILES[profile], chosen)
        self.chosen = tuple(chosen)
        self.only = only or Only()
        self.world = World(seed)
        if self.only.links:
            self.world.network.draw = stream(seed, "network", self.only.links)
        self.world.trace.listener = listener
        self._draw = stream(seed, "run")
        settings = _settings(self._draw, self.profile.properties)
        settings.compacted = self.profile.compacted
        settings.compacted_topics = COMPACTED_TOPICS
        settings.store_latency_ms = self.profile.store_latency_ms
        self.cluster = Cluster(self.world, BROKERS, settings)
        self._clients: list[ClientNode] = []
        self._producers: list[PartitionProducer] = []
        self._consumers: list[PartitionConsumer] = []
        self._members: list[GroupMember | Committer] = []
        #: What changes a topic all the time, where the profile has that.
        self.churn: Churn | None = None
        #: All other churn, where the profile has it.
        self.churning: Churning | None = None
        self._numbers = Numbers()
        self._crashes = 0
        self.world.on_death.append(self._count_crash)
        self._admin = Administrator(self._client(), stream(seed, "admin"))
        hosts = [f"client{node_id}" for node_id in _CLIENTS_CUT_OFF]
        self.faults = Faults(
            self.cluster,
            hosts,
            stream(seed, "faults"),
            self.profile,
            leave_out=[name for name in SCENARIOS if not self.only.keeps_kind(name)],
        )
        if self.only.needs_whole:
            self.faults.script = self.only.of(played)
        drawn = self._draw.randrange(1, 4)
        self._partitions = min(drawn, self.only.partitions or drawn)
        self._fault_ns = self._draw.randrange(8, 16) * NS_PER_S
        if self.only.until_ms is not None:
            self._fault_ns = min(self._fault_ns, self.only.until_ms * NS_PER_MS)

    def run(self) -> RunResult:
        """Run it to its end or its first violation."""
        try:
            self._phases()
            return self._result()
        finally:
            self.world.close()

    def _phases(self) -> None:
        world = self.world
        self.cluster.start()
        if not self._wait(lambda: bool(self.cluster.health()), START_LIMIT_NS, "start"):
            return
        if not self._create_topics():
            return
        self._begin_work()
        self.faults.begin()
        faults_end_ns = world.now_ns + self._fault_ns
        while world.now_ns < faults_end_ns:
            if world.violations or self._is_cut_short():
                return
            world.run_until(min(faults_end_ns, world.now_ns + 20 * NS_PER_MS))
        if world.violations:
            return
        self.faults.end()
        self._admin.stopping = True
        if self.churn is not None:
            self.churn.stopping = True
        if self.churning is not None:
            self.churning.stop()
        limit_ns = world.now_ns + LIVENESS_LIMIT_NS
        if not self._wait(lambda: bool(self.cluster.health()), limit_ns, "in sync again"):
            return
        if self.churn is not None and not self._end_churn(self.churn, limit_ns):
            return
        if self.churning is not None and not self._settled(self.churning, limit_ns):
            return
        for producer in self._producers:
            producer.stopping = True
        if not self._wait(
            lambda: not all(producer.is_done for producer in self._all_producers()),
            limit_ns,
            "everything produced is acknowledged",
        ):
            return
        if not self._end_groups(limit_ns):
            return
        is_promised = self.profile.keeps_promises
        if is_promised and not self._wait(self._unread, limit_ns, "everything committed is read"):
            return
        if any(kind.startswith("damaged") for kind in self.faults.counts) and not self._read_anew():
            return
        check_history(self.operations(), world.violate, is_promised=is_promised)
        self._check_disks()

    def _read_anew(self) -> bool:
        """Somebody reads every partition from its beginning: damage that nobody has met so far is
        met now, and who led with it has what it lost from others (V68)."""
        client = self._client()
        known = {consumer.partition: consumer.gaps for consumer in self._consumers}
        readers = [self._consume(client, name, None, gaps=gaps) for name, gaps in known.items()]

        def is_behind(reader: PartitionConsumer) -> bool:
            topic = self.cluster.published.topics.get(reader.partition.topic)
            if topic is None:
                return False
            key = LogKey(topic.topic_id, reader.partition.partition)
            end = len(self.cluster.replication.truth(key).committed)
            waits = self.cluster.waits_for_operator(key)
            return not waits and (reader.topic_id != topic.topic_id or reader.position < end)

        limit_ns = self.world.now_ns + LIVENESS_LIMIT_NS
        return self._wait(
            lambda: any(map(is_behind, readers)) or bool(self.cluster.health()),
            limit_ns,
            "everything committed is read anew",
        )

    def _all_producers(self) -> list[PartitionProducer]:
        """All producers; those of a partition that waits for an operator wait for nothing any more.
        A topic that is made late may begin to do so at any time."""
        cluster = self.cluster
        for producer in self._producers:
            topic = cluster.published.topics.get(producer.partition.topic)
            if producer.is_done or topic is None:
                continue
            key = LogKey(topic.topic_id, producer.partition.partition)
            if cluster.waits_for_operator(key):
                producer.abandon()
        return self._producers

    def _check_disks(self) -> None:
        """What the brokers leave is in order, on every disk."""

        def has_gaps(topic: str) -> bool:
            is_compacted = self.profile.compacted or topic in COMPACTED_TOPICS
            return is_compacted or topic == CONSUMER_OFFSETS

        for (node_id, _), disk in self.world.disks.items():
            for problem in check_disk(disk, node_id, has_gaps):
                self.world.violate(f"disk of node {node_id}: {problem}")

    def operations(self) -> list[Operation]:
        """What clients did and were told so far, as a history."""
        cluster = self.cluster
        commits = (commit for each in cluster.groups.commits.values() for commit in each)
        return operations(
            cluster.history,
            commits,
            [topic.topic_id for topic in cluster.published.topics.values()],
            is_compacted=self.profile.compacted,
            compacted=COMPACTED_TOPICS,
        )

    def _settled(self, churning: Churning, limit_ns: int) -> bool:
        """All churn has come to its end, and what was acknowledged holds."""

        def unsettled() -> bool:
            self._all_producers()
            return bool(churning.unfinished() or self.cluster.health())

        if self._wait(unsettled, limit_ns, "churn settles"):
            return True
        self.world.note(-1, "churn", churning.unfinished())
        return False

    def _end_churn(self, churn: Churn, limit_ns: int) -> bool:
        """Every partition that was added is there, and every replica goes by what was set last."""
        done = self._wait(lambda: not churn.is_done, limit_ns, "alterations are acknowledged")
        if not done:
            return False
        topic = self.cluster.published.topics[churn.topic]
        if len(topic.assignment) < churn.partitions:
            self.world.violate(
                f"topic {churn.topic} has partitions {sorted(topic.assignment)}, but"
                f" {churn.partitions} were acknowledged"
            )
        if self._wait(
            lambda: bool(self._unaltered(churn) or self.cluster.health()),
            limit_ns,
            "replicas go by what was set",
        ):
            return True
        self.world.note(-1, "churn", "; ".join(self._unaltered(churn)))
        return False

    def _unaltered(self, churn: Churn) -> list[str]:
        return churn.differences(
            (f"{partition.topic_partition} on broker {node_id}", partition.log.config)
            for node_id, node in self.cluster.brokers.items()
            if node.broker is not None
            for partition in node.broker.replicas.all()
            if partition.topic_partition.topic == churn.topic
        )

    def _end_groups(self, limit_ns: int) -> bool:
        """Every member gets its share and commits; then each group has what was committed. A group
        may lose its coordinator for good meanwhile, to an operator."""

        def working() -> list[GroupMember | Committer]:
            return [member for member in self._members if not self._waits_for_operator(member)]

        for member in self._members:
            member.is_steady = True
        if not self._wait(
            lambda: not all(member.steady_rounds for member in working()),
            limit_ns,
            "every member of a group works",
        ):
            return False
        for member in self._members:
            member.stopping = True
        if not self._wait(
            lambda: not all(member.is_done for member in working()), limit_ns, "every member leaves"
        ):
            return False
        readers = {
            member: member.client.tasks.spawn("read the last offsets", member.read_last())
            for member in working()
        }
        return self._wait(
            lambda: not all(readers[member].done() for member in working()),
            limit_ns,
            "offsets are read",
        )

    def _waits_for_operator(self, member: GroupMember | Committer) -> bool:
        topic = self.cluster.published.topics.get(CONSUMER_OFFSETS)
        partition = self.cluster.groups.partition_of(member.plan.name)
        return topic is not None and self.cluster.waits_for_operator(
            LogKey(topic.topic_id, partition)
        )

    def _wait(self, unfinished: Callable[[], bool], limit_ns: int, what: str) -> bool:
        """Run until a condition holds; not in time is a violation of liveness."""
        world = self.world
        while unfinished():
            if world.violations or self._is_cut_short():
                return False
            if world.now_ns >= limit_ns:
                world.violate(f"not in time: {what} ({self._why_waiting()})")
                return False
            world.run_until(min(limit_ns, world.now_ns + 20 * NS_PER_MS))
        return not world.violations

    def _is_cut_short(self) -> bool:
        return self._limit_events is not None and self.world.trace.events >= self._limit_events

    def _why_waiting(self) -> str:
        open_operations = [
            str(operation)
            for operation in self.cluster.history.produces
            if operation.outcome.value == "open"
        ]
        churn = "" if self.churning is None else self.churning.unfinished()
        health = self.cluster.health() or "healthy"
        return f"{health}; open: {open_operations[:3]}" + (f"; {churn}" if churn else "")

    # Clients

    def _client(self) -> ClientNode:
        node_id = _FIRST_CLIENT_ID + len(self._clients)
        node = self.world.add_node(node_id, f"client{node_id}")
        client = ClientNode(node, self.cluster.history, self.cluster.bootstrap, _CLIENT_TIMEOUT_MS)
        self._clients.append(client)
        return client

    def _create_topics(self) -> bool:
        admin = self._admin
        tasks = [
            admin.client.tasks.spawn(
                f"create {name}", admin.create(name, partitions, BROKERS, self._topic_configs())
            )
            for name, partitions in self._topics()
        ]
        limit_ns = self.world.now_ns + START_LIMIT_NS

        def unfinished() -> bool:
            return not all(task.done() for task in tasks) or bool(self.cluster.health())

        return self._wait(unfinished, limit_ns, "topics are made")

    def _topic_configs(self) -> dict[str, str]:
        """That a topic is compacted stands with the topic, in the store, as for most users."""
        compaction = {"cleanup.policy": "compact"} if self.profile.compacted else {}
        return _TOPIC_CONFIGS | compaction

    def _topics(self) -> list[tuple[str, int]]:
        topics = [(_STEADY_TOPIC, self._partitions)]
        if self.only.topics:
            topics += [(_VOLATILE_TOPIC, 1)]
        return [*topics, (_CHANGING_TOPIC, 1)] if self._churns else topics

    @property
    def _churns(self) -> bool:
        return self.profile.churns and self.only.topics

    def _begin_churn(self) -> None:
        """A topic is changed all the time; its partitions are written to and read."""
        admin, writer, reader = self._client(), self._client(), self._client()

        def work(partition: TopicPartition) -> None:
            self._produce(writer, partition, acks=-1, idempotent=True)
            self._consume(reader, partition, None)

        work(TopicPartition(_CHANGING_TOPIC, 0))
        churn = self.churn = Churn(admin, stream(self.seed, "churn"), _CHANGING_TOPIC, work)
        admin.tasks.spawn("churn", churn.run())

    def _begin_churning(self, steady: list[TopicPartition]) -> None:
        work = Work(
            self.seed,
            self.cluster,
            BROKERS,
            _TOPIC_CONFIGS,
            steady,
            self._client,
            self._produce,
            self._consume,
            self._join,
        )
        self.churning = Churning(work, self.profile.churn_share)
        self.churning.begin()

    def _begin_work(self) -> None:
        draw = self._draw
        partitions = [TopicPartition(_STEADY_TOPIC, n) for n in range(self._partitions)]
        if self.only.topics:
            partitions.append(TopicPartition(_VOLATILE_TOPIC, 0))
        writers = [self._client(), self._client()]
        reader = self._client()
        for partition in partitions:
            self._produce(writers[0], partition, acks=-1, idempotent=True)
            style = draw.randrange(4)
            if not self.only.clients:
                pass
            elif style == 0:
                self._produce(writers[1], partition, acks=-1, idempotent=False)
            elif style == 1:
                self._produce(writers[1], partition, acks=1, idempotent=False)
            elif style == 2:
                self._produce(writers[1], partition, acks=-1, idempotent=True)
            else:
                self._produce(writers[1], partition, acks=0, idempotent=False)
            self._consume(reader, partition, None)
            if draw.random() < 0.3 and self.only.clients:
                self._consume(reader, partition, draw.choice(_FETCH_VERSIONS))
        self._begin_groups()
        if self._churns:
            self._begin_churn()
        if self.profile.churn_share and self.only.topics:
            self._begin_churning(partitions[:-1])
        self._admin.chooses_replicas = self.profile.chosen_replicas
        if draw.random() < self.profile.recreates and self.only.topics:
            self._admin.client.tasks.spawn(
                "recreate",
                self._admin.recreate_now_and_then(
                    _VOLATILE_TOPIC,
                    1,
                    BROKERS,
                    self._topic_configs(),
                    self.profile.topic_life_ms,
                ),
            )

    def _begin_groups(self) -> None:
        """Three members of one group, one of them static now and then, and a committer."""
        draw = self._draw
        shared = GroupPlan("shared", _STEADY_TOPIC, self._partitions)
        shared.has_static_members = draw.random() < 0.3
        for number in range(3):
            is_static = shared.has_static_members and number > 0
            self._add_member(
                GroupMember(
                    self._client(),
                    shared,
                    self.cluster.groups,
                    stream(self.seed, "member", number),
                    FAMILIES[0] if is_static else draw.choice(FAMILIES),
                    instance_id=f"instance-{number}" if is_static else None,
                )
            )
        alone = GroupPlan("committer", _STEADY_TOPIC, self._partitions)
        family = draw.choice(FAMILIES)
        self._add_member(
            Committer(
                self._client(), alone, self.cluster.groups, stream(self.seed, "committer"), family
            )
        )

    def _join(self, member: GroupMember, *, stays: bool) -> None:
        """A member that comes while the run lasts."""
        if stays:
            self._add_member(member)
        else:
            member.client.tasks.spawn("guest", member.run())

    def _add_member(self, member: GroupMember | Committer) -> None:
        if not self.only.groups:
            return
        self._members.append(member)
        member.client.tasks.spawn(f"member {len(self._members)}", member.run())

    def _consume(
        self,
        client: ClientNode,
        partition: TopicPartition,
        highest_version: int | None,
        *,
        gaps: bool = False,
    ) -> PartitionConsumer:
        number = len(self._consumers)
        draw = stream(self.seed, "consumer", number)
        consumer = PartitionConsumer(
            client,
            partition,
            draw,
            highest_version=highest_version,
            gaps=gaps or self.profile.compacted,
        )
        self._consumers.append(consumer)
        client.tasks.spawn(f"consume {number}", consumer.run())
        return consumer

    def _produce(
        self,
        client: ClientNode,
        partition: TopicPartition,
        *,
        acks: int,
        idempotent: bool,
        keyed: bool = False,
    ) -> PartitionProducer:
        number = len(self._producers)
        producer = PartitionProducer(
            client,
            partition,
            self._numbers,
            stream(self.seed, "producer", number),
            acks=acks,
            idempotent=idempotent,
            pace_ms=self._draw.choice((30, 100, 300)),
            highest_version=self._draw.choice(_PRODUCE_VERSIONS),
            keyed=keyed or self.profile.compacted,
        )
        self._producers.append(producer)
        client.tasks.spawn(f"produce {number}", producer.run())
        return producer

    def _unread(self) -> bool:
        """Whether consumers have something to read."""
        for topic in self.cluster.published.topics.values():
            if topic.is_internal:
                continue
            for key, truth in self.cluster.replication.truths.items():
                if key.topic_id == topic.topic_id and self.cluster.clients.read_end.get(
                    key, 0
                ) < len(truth.committed):
                    return True
        return False

    # What it showed

    def _count_crash(self, incarnation: object, _: object) -> None:
        self._crashes += 1

    def _result(self) -> RunResult:
        cluster, world = self.cluster, self.world
        history = cluster.history
        values = (
            cluster.published.elections,
            cluster.replication.truncations,
            cluster.published.shrinks,
            cluster.published.expansions,
            self._crashes,
            cluster.lossy_crashes,
            cluster.refused_losses,
            cluster.store.expiries,
            history.suppressed_duplicates,
            history.acknowledged_records,
            history.read_records,
            cluster.groups.coordinator_moves,
            cluster.groups.rebalances,
            cluster.groups.acknowledged_commits,
        )
        return RunResult(
            seed=self.seed,
            profile=self.profile.name,
            chosen=self.chosen,
            only=str(self.only),
            partitions=self._partitions,
            trace_hash=world.trace.digest(),
            events=world.trace.events,
            simulated_ns=world.now_ns,
            counters=dict(zip(COUNTERS, values, strict=True)),
            faults=dict(self.faults.counts),
            churn=self._changes(),
            marks=dict(world.trace.marks),
            violation=world.violations[0] if world.violations else "",
            recent=list(world.trace.recent) if world.violations else [],
        )

    def _changes(self) -> dict[str, int]:
        """What was changed while faults happened, by kind."""
        lives = self.cluster.history.topics.values()
        return {
            "topics made anew": len(lives) - len({life.name for life in lives}),
            "partitions added": self.churn.partitions - 1 if self.churn is not None else 0,
            "configs altered": self.churn.alterations if self.churn is not None else 0,
            "groups rebalanced": self.cluster.groups.rebalances,
            **({} if self.churning is None else self.churning.counts),
        }


def _settings(draw: random.Random, properties: Mapping[str, str]) -> Settings:
    """A seed's own timeouts, and whether a dead process is noticed at once."""
    return Settings(
        session_timeout_ms=draw.choice((900, 1_500, 3_000)),
        lag_time_max_ms=draw.choice((900, 2_000, 4_000)),
        detect_ms=draw.choice((None, 1.0, 20.0)),
        properties=dict(properties),
    )


def _choosing(profile: Profile, chosen: Sequence[str]) -> Profile:
    """A profile with other kinds of faults, none of which a seed leaves out."""
    if not chosen:
        return profile
    weights = {kind: profile.weights.get(kind, 1.0) for kind in chosen}
    return replace(profile, weights=weights, left_out=0.0, has_all_kinds=False)


def run_seed(
    seed: int,
    profile: str = "default",
    mutant: str = "",
    listener: Callable[[str], None] | None = None,
    on_history: Callable[[list[Operation]], None] | None = None,
    limit_events: int | None = None,
    *,
    chosen: Sequence[str] = (),
    only: str = "",
    observe: Callable[[SeedRun], None] | None = None,
) -> RunResult:
    """Run one seed, with a named mutant in the brokers if one is given; `on_history` is given what
    clients did and were told, `observe` the run before it begins. With `limit_events` it ends soon
    after so many events, and what was not reached by then is not judged. `chosen` and `only` as for
    SeedRun; ReductionError for an `only` that names no reduction."""
    if profile == MIXED:
        profile = profile_of(seed)
    left = parse(only, [*KINDS, *SCENARIOS])
    played = whole_run(seed, profile, mutant, chosen)[1] if left.needs_whole else []
    result, run = _run(
        lambda: SeedRun(
            seed, profile, listener, limit_events, chosen=chosen, only=left, played=played
        ),
        mutant,
        observe,
    )
    if on_history is not None:
        on_history(run.operations())
    return result


def whole_run(
    seed: int, profile: str, mutant: str, chosen: Sequence[str]
) -> tuple[RunResult, list[Played]]:
    """The run of which others are reductions, and the faults that it played."""
    result, run = _run(lambda: SeedRun(seed, profile, chosen=chosen), mutant)
    return result, run.faults.played


def reduced_run(whole: RunResult, played: Sequence[Played], only: Only) -> RunResult:
    """A reduction of a whole run."""
    return _run(
        lambda: SeedRun(whole.seed, whole.profile, chosen=whole.chosen, only=only, played=played),
        whole.mutant,
    )[0]


def _run(
    make: Callable[[], SeedRun],
    mutant: str,
    observe: Callable[[SeedRun], None] | None = None,
) -> tuple[RunResult, SeedRun]:
    with CollectorPaused(), applied(mutant), nothing_outside() as reached:
        run = make()
        if observe is not None:
            observe(run)
        result = run.run()
    result.mutant = mutant
    if reached and not result.violation:
        result.violation = reached[0]
    return result, run


def run_seeds(
    seeds: Iterable[int],
    profile: str = "default",
    mutant: str = "",
    on_result: Callable[[RunResult], None] | None = None,
) -> Totals:
    """Run seeds one after the other; `on_result` hears of each."""
    totals = Totals()
    for seed in seeds:
        result = run_seed(seed, profile, mutant)
        totals.add(result)
        if on_result is not None:
            on_result(result)
    return totals
